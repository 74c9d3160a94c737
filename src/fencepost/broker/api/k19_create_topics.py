"""CreateTopics, v2-7. v4 takes -1 for the default number of partitions and replicas, v5 answers with the settings, v7
with the topic id.

Replica assignments may only name this broker; the replication factor is 1 (or -1). `validate_only` checks and creates
nothing.
"""

from __future__ import annotations

from collections import Counter

from fencepost.broker.api.common import MOST_PARTITIONS, wrong_replicas
from fencepost.broker.config import TopicConfig, check_topic_config
from fencepost.broker.connection import Call
from fencepost.broker.core import BrokerCore
from fencepost.broker.settings import TOPIC_SETTINGS, InvalidSetting, Kind
from fencepost.broker.topics import CONSUMER_OFFSETS, TRANSACTION_STATE, invalid_topic_name
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

__all__ = ["handle"]


def handle(call: Call, now_ms: int, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create the topics one by one; each has its own result."""
    named = Counter(topic.name for topic in request.topics)
    results = []
    for name, times in named.items():
        if times > 1:
            message = "Duplicate topic name."
            results.append(CreatableTopicResult(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=message))
    results += [_create(call.core, topic, request.validate_only) for topic in request.topics if named[topic.name] == 1]
    return CreateTopicsResponse(topics=results)


def _create(core: BrokerCore, wanted: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
    code, message, count = _check(core, wanted)
    if code:
        return CreatableTopicResult(name=wanted.name, error_code=code, error_message=message)
    asked = {config.name: config.value for config in wanted.configs}
    empty = [key for key, value in asked.items() if value is None]
    if empty:
        message = f"Null value not supported for topic configs: {','.join(empty)}"
        return CreatableTopicResult(name=wanted.name, error_code=ErrorCode.INVALID_CONFIG, error_message=message)
    try:
        given = check_topic_config({key: value for key, value in asked.items() if value is not None})
    except InvalidSetting as error:
        return CreatableTopicResult(name=wanted.name, error_code=ErrorCode.INVALID_CONFIG, error_message=str(error))
    topic_id = None if validate_only else core.topics.create(wanted.name, count, given).topic_id
    return CreatableTopicResult(
        name=wanted.name,
        topic_id=topic_id,
        num_partitions=count,
        replication_factor=1,
        configs=_settings(TopicConfig(given, core.config)),
    )


def _check(core: BrokerCore, wanted: CreatableTopic) -> tuple[int, str | None, int]:
    """(error code, message, number of partitions)."""
    why = invalid_topic_name(wanted.name)
    if why is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, why, 0
    if core.topics.get(wanted.name) is not None or wanted.name in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{wanted.name}' already exists.", 0
    colliding = core.topics.colliding(wanted.name)
    if colliding is not None:
        message = f"Topic '{wanted.name}' collides with existing topic: {colliding}"
        return ErrorCode.INVALID_TOPIC_EXCEPTION, message, 0
    if wanted.assignments:
        return _check_assignments(wanted)
    if wanted.replication_factor < -1 or wanted.replication_factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        return ErrorCode.INVALID_REPLICATION_FACTOR, message, 0
    count = core.config.number("num.partitions") if wanted.num_partitions == -1 else wanted.num_partitions
    if count <= 0:
        return ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.", 0
    if wanted.replication_factor > 1:
        times = wanted.replication_factor
        message = (
            f"Unable to replicate the partition {times} time(s): The target replication factor of {times} cannot be "
            "reached because only 1 broker(s) are registered."
        )
        return ErrorCode.INVALID_REPLICATION_FACTOR, message, 0
    if count > MOST_PARTITIONS:
        return ErrorCode.INVALID_PARTITIONS, f"At most {MOST_PARTITIONS} partitions are possible.", 0
    return ErrorCode.NONE, None, count


def _check_assignments(wanted: CreatableTopic) -> tuple[int, str | None, int]:
    if wanted.replication_factor != -1 or wanted.num_partitions != -1:
        which = "replication factor" if wanted.replication_factor != -1 else "number of partitions"
        message = f"A manual partition assignment was specified, but {which} was not set to -1."
        return ErrorCode.INVALID_REQUEST, message, 0
    indexes = sorted(assignment.partition_index for assignment in wanted.assignments)
    if indexes != list(range(len(indexes))):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence", 0
    for assignment in wanted.assignments:
        wrong = wrong_replicas(assignment.broker_ids)
        if wrong is not None:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong, 0
    return ErrorCode.NONE, None, len(indexes)


def _settings(config: TopicConfig) -> list[CreatableTopicConfigs]:
    result = []
    for key, setting in TOPIC_SETTINGS.items():
        secret = setting.kind is Kind.PASSWORD
        result.append(
            CreatableTopicConfigs(
                name=key,
                value=None if secret else config.value(key),
                config_source=config.source(key),
                is_sensitive=secret,
            )
        )
    return result
