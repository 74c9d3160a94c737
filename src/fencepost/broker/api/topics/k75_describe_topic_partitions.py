"""DescribeTopicPartitions, v0 (KIP-966): topics and partitions in pages, by topic name.

An empty list asks for all.

`cursor` is the start of a page of at most 2000 partitions. There are no eligible leader replicas beside the leader:
empty lists, since the Java client cannot read the nulls that the schema allows.
"""

from __future__ import annotations

from fencepost.broker.api.common import BROKER_ID, absent_topic, may_see
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.security.acls import ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """Describe one page."""
    core = call.core
    if request.cursor is not None and _is_invalid_cursor(request, request.cursor):
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
                for topic in request.topics
            ]
        )
    requested = {topic.name for topic in request.topics}
    hidden = {name for name in requested if not may_see(call, name)}
    visible = (
        requested - hidden if requested else {each.name for each in core.topics if may_see(call, each.name, quiet=True)}
    )
    names = sorted(visible)
    first = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        first = request.cursor.partition_index if names and names[0] == request.cursor.topic_name else 0
    room = max(1, min(request.response_partition_limit, core.config.number("max.request.partition.size.limit")))
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topics = [DescribeTopicPartitionsResponseTopic(error_code=denied, name=name) for name in sorted(hidden)]
    for name in names:
        if room == 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=ResponseCursor(topic_name=name, partition_index=0)
            )
        topic = core.topics.get(name)
        if topic is None:
            code, _ = absent_topic(name)
            operations = call.operations(ResourceType.TOPIC, name)
            topics.append(
                DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_authorized_operations=operations)
            )
            continue
        indexes = range(first, min(len(topic.partitions), first + room))
        topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.internal,
                partitions=[_describe(index) for index in indexes],
                topic_authorized_operations=call.operations(ResourceType.TOPIC, name),
            )
        )
        if indexes.stop < len(topic.partitions):
            cursor = ResponseCursor(topic_name=name, partition_index=indexes.stop)
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)
        room -= len(indexes)
        first = 0
    return DescribeTopicPartitionsResponse(topics=topics)


def _is_invalid_cursor(request: DescribeTopicPartitionsRequest, cursor: Cursor) -> bool:
    """Return true if the cursor has an invalid partition, or a topic that is not requested."""
    names = {topic.name for topic in request.topics}
    return cursor.partition_index < 0 or bool(names and cursor.topic_name not in names)


def _describe(index: int) -> DescribeTopicPartitionsResponsePartition:
    brokers = (BROKER_ID,)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=BROKER_ID,
        leader_epoch=0,
        replica_nodes=brokers,
        isr_nodes=brokers,
        eligible_leader_replicas=(),
        last_known_elr=(),
    )


HANDLER = Handler(_handle)
