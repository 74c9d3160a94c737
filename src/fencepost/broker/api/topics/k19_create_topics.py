"""CreateTopics, v2-7: create topics. v4 accepts -1 for the default number of partitions and replicas.

v5 answers with the settings, v7 with the topic id. Replica assignments may only name this broker; the replication
factor is 1 (or -1). `validate_only` checks and creates nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from fencepost.broker.api.common import MOST_PARTITIONS, failure_code, wrong_replicas
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.disk.changes import Change
from fencepost.broker.parts import BrokerParts
from fencepost.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from fencepost.broker.settings.table import TOPIC_SETTINGS, InvalidSetting, Kind
from fencepost.broker.settings.values import TopicConfig, check_topic_config
from fencepost.broker.topics.internal import CLUSTER_METADATA, is_internal
from fencepost.broker.topics.names import flat_name, invalid_topic_name
from fencepost.broker.topics.topic import Topic
from fencepost.counted import counted_noun
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

__all__ = ["HANDLER", "create_topics"]

_log = logging.getLogger("fencepost.broker")


def _handle(call: Call, now_ms: int, request: CreateTopicsRequest) -> CreateTopicsResponse | None:
    """Create the valid topics together. Each has its own result."""
    core = call.core
    if _too_many_partitions(core, request):
        message = "Excessively large number of partitions per request."
        code = ErrorCode.POLICY_VIOLATION
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=name, error_code=code, error_message=message)
                for name in dict.fromkeys(topic.name for topic in request.topics)
            ]
        )
    call.change(request, _created(core, request))
    return None


def _created(core: BrokerParts, request: CreateTopicsRequest) -> Change[CreateTopicsResponse]:
    results = yield from create_topics(core, request.topics, only_check=request.validate_only)
    return CreateTopicsResponse(topics=results)


def create_topics(
    core: BrokerParts, topics: Sequence[CreatableTopic], *, only_check: bool = False
) -> Change[list[CreatableTopicResult]]:
    """Create the valid topics together. Return the result of each."""
    named = Counter(topic.name for topic in topics)
    results = []
    for name, times in named.items():
        if times > 1:
            message = "Duplicate topic name."
            results.append(CreatableTopicResult(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=message))
    planned: list[tuple[CreatableTopicResult, Mapping[str, str]]] = []
    taken: set[str] = set()
    room = core.partition_room()
    for topic in topics:
        if named[topic.name] == 1:
            result, given = _plan(core, topic, taken)
            if given is not None and result.num_partitions > room:
                message = f"There is room for {counted_noun(room, 'more partition')} (max.partitions)."
                core.refused_topics.note(core.now.ms, f"topic {topic.name}: {message}")
                code = ErrorCode.POLICY_VIOLATION
                result = CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
            elif given is not None:
                room -= result.num_partitions
                planned.append((result, given))
            results.append(result)
    if planned and not only_check:
        yield from _create(core, planned)
    return results


def _too_many_partitions(core: BrokerParts, request: CreateTopicsRequest) -> bool:
    """Return true if the topics of the request have more partitions together than one request may create."""
    usual = core.config.number("num.partitions")
    counts = (
        len(topic.assignments) or (usual if topic.num_partitions == -1 else topic.num_partitions)
        for topic in request.topics
    )
    return sum(count for count in counts if count > 0) > MOST_PARTITIONS


def _create(core: BrokerParts, planned: Sequence[tuple[CreatableTopicResult, Mapping[str, str]]]) -> Change[None]:
    """Create the topics and complete their results."""
    outcomes: Sequence[Topic | OSError]
    try:
        outcomes = yield from core.topics.create_all(
            (result.name, result.num_partitions, given) for result, given in planned
        )
    except OSError as error:
        outcomes = [error] * len(planned)
    for (result, _), topic in zip(planned, outcomes, strict=True):
        if isinstance(topic, OSError):
            _log.error("topic %s cannot be created: %s", result.name, topic)
            core.metrics.count("storage_errors")
            result.error_code = failure_code(topic)
            result.error_message = f"The topic could not be written down: {topic.strerror or topic}"
            result.num_partitions = result.replication_factor = -1
            result.configs = []
        else:
            result.topic_id = topic.topic_id


def _plan(
    core: BrokerParts, creatable: CreatableTopic, taken: set[str]
) -> tuple[CreatableTopicResult, Mapping[str, str] | None]:
    """Return the result and the settings of a valid topic, or the refusal and None.

    `taken`: names of the same request in the form that metrics use.
    """
    code, message = _check_name(core, creatable, taken)
    if code:
        return CreatableTopicResult(name=creatable.name, error_code=code, error_message=message), None
    requested = {config.name: config.value for config in creatable.configs}
    empty = [key for key, value in requested.items() if value is None]
    if empty:
        message = f"Null value not supported for topic configs: {','.join(empty)}"
        return CreatableTopicResult(
            name=creatable.name, error_code=ErrorCode.INVALID_CONFIG, error_message=message
        ), None
    try:
        given = check_topic_config({key: value for key, value in requested.items() if value is not None})
    except InvalidSetting as error:
        message = str(error)
        return CreatableTopicResult(
            name=creatable.name, error_code=ErrorCode.INVALID_CONFIG, error_message=message
        ), None
    code, message, count = _check_size(core, creatable)
    if code:
        return CreatableTopicResult(name=creatable.name, error_code=code, error_message=message), None
    taken.add(flat_name(creatable.name))
    configs = _settings(TopicConfig(given, core.config))
    return CreatableTopicResult(name=creatable.name, num_partitions=count, replication_factor=1, configs=configs), given


def _check_name(core: BrokerParts, creatable: CreatableTopic, taken: set[str]) -> tuple[int, str | None]:
    """Return (error code, message)."""
    why = invalid_topic_name(creatable.name)
    if why is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, why
    if creatable.name == CLUSTER_METADATA:
        return ErrorCode.INVALID_REQUEST, f"Creation of internal topic {creatable.name} is prohibited."
    if core.topics.get(creatable.name) is not None or is_internal(creatable.name):
        return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{creatable.name}' already exists."
    colliding = core.topics.colliding(creatable.name)
    if colliding is None and flat_name(creatable.name) in taken:
        colliding = "one of the same request"
    if colliding is not None:
        message = f"Topic '{creatable.name}' collides with existing topic: {colliding}"
        return ErrorCode.INVALID_TOPIC_EXCEPTION, message
    return ErrorCode.NONE, None


def _check_size(core: BrokerParts, wanted: CreatableTopic) -> tuple[int, str | None, int]:
    """Return (error code, message, number of partitions). Checked after the settings, as in Kafka."""
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
        if config.value(key) is None:
            continue
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


def _authorize(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse | None:
    """Refuse topics that the client may not create, one by one. Settings are shown only with the right to see them."""
    allowed = list(request.topics)
    if not call.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        allowed = [topic for topic in allowed if call.may(Operation.CREATE, ResourceType.TOPIC, topic.name)]
    refused = [
        CreatableTopicResult(
            name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message="Authorization failed."
        )
        for name in dict.fromkeys(topic.name for topic in request.topics if topic not in allowed)
    ]
    if not allowed:
        return CreateTopicsResponse(topics=refused)
    request.topics = allowed

    def finish(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for topic in response.topics:
            may_see = call.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, quiet=True)
            if topic.error_code == ErrorCode.NONE and not may_see:
                topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = ()
        response.topics = [*response.topics, *refused]
        return response

    call.finish = finish
    return None


HANDLER = Handler(_handle, authorize=_authorize)
