"""Metadata, v0-13: the broker, the topics and the leaders of their partitions.

v0 asks for all topics with an empty list, later versions with null; v4 allows or forbids creating missing topics; v8
can ask for the permitted operations; v10 has topic ids, v12 accepts them in the request; v13 has an error for the whole
answer. A created topic is available at once. This broker leads every partition with epoch 0.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from fencepost.broker.api.common import (
    BROKER_ID,
    MOST_PARTITIONS,
    absent_topic,
    authorized_operations,
    cluster_operations,
    may_see,
)
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.disk.changes import Change
from fencepost.broker.parts import BrokerParts
from fencepost.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from fencepost.broker.topics.internal import CLUSTER_METADATA, internal_configs
from fencepost.broker.topics.names import flat_name, invalid_topic_name
from fencepost.broker.topics.topic import Topic
from fencepost.counted import counted_noun
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

__all__ = ["HANDLER"]

_log = logging.getLogger("fencepost.broker")

_FIRST_BY_ID = 12


def _handle(call: Call, now_ms: int, request: MetadataRequest) -> MetadataResponse | None:
    """Describe the requested topics. Missing ones that may be created are created first."""
    core = call.core
    requested = request.topics or ()
    if call.version < _FIRST_BY_ID and any(topic.name is None or topic.topic_id is not None for topic in requested):
        return MetadataResponse(topics=[_refuse_id(topic) for topic in requested])
    if request.topics is None or (call.version == 0 and not request.topics):
        operations = request.include_topic_authorized_operations
        visible = (topic for topic in core.topics if may_see(call, topic.name, quiet=True))
        return _response(call, request, [_describe(call, topic, operations) for topic in visible])
    wanted = _distinct(request.topics)
    may_create = request.allow_auto_topic_creation or call.version < 4
    if may_create and core.config.flag("auto.create.topics.enable") and _is_missing(core, wanted):
        call.change(request, _created(call, request, wanted))
        return None
    return _described(call, request, wanted, {})


def _is_missing(core: BrokerParts, wanted: Sequence[MetadataRequestTopic]) -> bool:
    return any(each.topic_id is None and core.topics.get(each.name or "") is None for each in wanted)


def _created(call: Call, request: MetadataRequest, wanted: Sequence[MetadataRequestTopic]) -> Change[MetadataResponse]:
    missing = yield from _create_missing(call, wanted)
    return _described(call, request, wanted, missing)


def _described(
    call: Call, request: MetadataRequest, wanted: Sequence[MetadataRequestTopic], missing: Mapping[str, int]
) -> MetadataResponse:
    operations = request.include_topic_authorized_operations
    return _response(call, request, [_answer(call, topic, operations, missing) for topic in wanted])


def _response(call: Call, request: MetadataRequest, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    core = call.core
    host, port = core.address(call.connection)
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=BROKER_ID, host=host, port=port),),
        cluster_id=core.meta.cluster_id,
        controller_id=BROKER_ID,
        topics=topics,
        cluster_authorized_operations=cluster_operations(call, requested=request.include_cluster_authorized_operations),
    )


def _distinct(requested: Sequence[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Return each topic once. If any is requested by its id, only ids count."""
    by_id = {topic.topic_id: topic for topic in requested if topic.topic_id is not None}
    return [*by_id.values()] if by_id else [*{topic.name: topic for topic in requested}.values()]


def _refuse_id(requested: MetadataRequestTopic) -> MetadataResponseTopic:
    refused = ErrorCode.INVALID_REQUEST
    return MetadataResponseTopic(error_code=refused, name=requested.name or "", topic_id=requested.topic_id)


def _create_missing(call: Call, requested: Sequence[MetadataRequestTopic]) -> Change[dict[str, int]]:
    """Create the missing topics that are requested by name together. Return the error codes of those not created."""
    core = call.core
    codes: dict[str, int] = {}
    partition_counts: dict[str, int] = {}
    taken: set[str] = set()
    room, left = MOST_PARTITIONS, core.partition_room()
    for topic in requested:
        name = topic.name
        if name is None or topic.topic_id is not None or name in codes or name in partition_counts:
            continue
        if core.topics.get(name) is not None or not may_see(call, name, quiet=True):
            continue
        if invalid_topic_name(name) is not None or name == CLUSTER_METADATA:
            continue
        if core.topics.colliding(name) is not None or flat_name(name) in taken:
            continue
        count = core.topics.usual_partitions(name)
        if not _may_create(call, name):
            codes[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif count > left:
            what = f"topic {name}: there is room for {counted_noun(left, 'more partition')} (max.partitions)"
            core.refused_topics.note(core.now.ms, what)
        elif count > room:
            codes[name] = ErrorCode.LEADER_NOT_AVAILABLE  # at the limit of one request; clients retry
        else:
            partition_counts[name] = count
            taken.add(flat_name(name))
            room -= count
            left -= count
    outcomes: Sequence[Topic | OSError]
    try:
        outcomes = yield from core.topics.create_all(
            (name, count, internal_configs(name)) for name, count in partition_counts.items()
        )
    except OSError as error:
        outcomes = [error] * len(partition_counts)
    for name, created in zip(partition_counts, outcomes, strict=True):
        if isinstance(created, OSError):
            _log.error("topic %s cannot be created: %s", name, created)
            core.metrics.count("storage_errors")
            codes[name] = ErrorCode.KAFKA_STORAGE_ERROR
    return codes


def _answer(
    call: Call, requested: MetadataRequestTopic, operations: bool, missing: Mapping[str, int]
) -> MetadataResponseTopic:
    core = call.core
    if requested.name is None or requested.topic_id is not None:
        topic = core.topics.by_id(requested.topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=requested.topic_id)
        if not may_see(call, topic.name):
            return MetadataResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=requested.topic_id
            )
        return _describe(call, topic, operations)
    if not may_see(call, requested.name):
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=requested.name)
    topic = core.topics.get(requested.name)
    if topic is None:
        code = missing.get(requested.name) or absent_topic(requested.name)[0]
        return MetadataResponseTopic(error_code=code, name=requested.name)
    return _describe(call, topic, operations)


def _may_create(call: Call, name: str) -> bool:
    return call.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True) or call.may(
        Operation.CREATE, ResourceType.TOPIC, name
    )


def _describe(call: Call, topic: Topic, operations: bool) -> MetadataResponseTopic:
    brokers = (BROKER_ID,)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            MetadataResponsePartition(
                partition_index=partition.index,
                leader_id=BROKER_ID,
                leader_epoch=0,
                replica_nodes=brokers,
                isr_nodes=brokers,
            )
            for partition in topic.partitions
        ],
        topic_authorized_operations=authorized_operations(call, ResourceType.TOPIC, topic.name, requested=operations),
    )


HANDLER = Handler(_handle)
