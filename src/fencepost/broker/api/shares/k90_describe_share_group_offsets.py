"""DescribeShareGroupOffsets, v0-1 (KIP-932): start offsets of share groups, and since v1 their lag (KIP-1226).

A partition that the group has not started to read, or that does not exist, has the offset -1, as with OffsetFetch.
"""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.visibility import when_ends_are_visible
from fencepost.broker.connection import Call
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.broker.share.share_partition import SharePartition
from fencepost.broker.share.share_partitions import reads_committed
from fencepost.broker.topics.opening import open_log
from fencepost.broker.topics.topic import Topic
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.share_state_log import ShareStateKey
from fencepost.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DescribeShareGroupOffsetsRequest) -> None:
    """Describe the partitions of each group."""

    def answer(_now_ms: int) -> None:
        call.reply(DescribeShareGroupOffsetsResponse(groups=[_of_group(call, group) for group in request.groups]))

    when_ends_are_visible(call, now_ms, request, answer)


def _of_group(call: Call, group: DescribeShareGroupOffsetsRequestGroup) -> DescribeShareGroupOffsetsResponseGroup:
    topics = _all_topics(call, group.group_id) if group.topics is None else group.topics
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group.group_id, topics=[_of_topic(call, group.group_id, topic) for topic in topics]
    )


def _all_topics(call: Call, group_id: str) -> list[DescribeShareGroupOffsetsRequestTopic]:
    """Return the partitions that the group has started to read, of topics that the client may see."""
    by_name: dict[str, list[int]] = {}
    for key, _ in call.core.shares.of_group(group_id):
        name = call.core.topic_name(None, key.topic_id)
        if name is not None and call.may(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True):
            by_name.setdefault(name, []).append(key.partition)
    return [
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=sorted(found))
        for name, found in sorted(by_name.items())
    ]


def _of_topic(
    call: Call, group_id: str, requested: DescribeShareGroupOffsetsRequestTopic
) -> DescribeShareGroupOffsetsResponseTopic:
    topic = call.core.topics.get(requested.topic_name)
    if not call.may(Operation.DESCRIBE, ResourceType.TOPIC, requested.topic_name):
        code: int = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = None
    else:
        code = ErrorCode.NONE
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=requested.topic_name,
        topic_id=None if topic is None else topic.topic_id,
        partitions=[_of_partition(call, group_id, topic, index, code) for index in dict.fromkeys(requested.partitions)],
    )


def _of_partition(
    call: Call, group_id: str, topic: Topic | None, index: int, code: int
) -> DescribeShareGroupOffsetsResponsePartition:
    shared = None if topic is None else call.core.shares.find(ShareStateKey(group_id, topic.topic_id, index))
    if topic is None or shared is None or topic.partition(index) is None:
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=-1, lag=-1, error_code=code
        )
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=shared.start_offset, lag=_lag(call, group_id, topic, index, shared)
    )


def _lag(call: Call, group_id: str, topic: Topic, index: int, shared: SharePartition) -> int:
    """Return the number of offsets still to be acknowledged; -1 if the log cannot be read."""
    log = open_log(topic.partitions[index], call.core.metrics)
    if log is None:
        return -1
    committed = reads_committed(call.core.settings.of_group(group_id))
    return shared.lag(log.last_stable_offset if committed else log.high_watermark)


HANDLER = Handler(_handle)
