"""OffsetDelete, v0: forget a group's offsets for partitions that no member subscribes to."""

from __future__ import annotations

from collections import defaultdict

from fencepost.broker.connection import Call
from fencepost.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

__all__ = ["handle"]


def handle(call: Call, now_ms: int, request: OffsetDeleteRequest) -> None:
    """Forget the offsets, and reply when that is durable."""
    partitions = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    groups = call.core.groups
    result = groups.coordinator.delete_offsets(request.group_id, partitions)
    by_topic: defaultdict[str, list[OffsetDeleteResponsePartition]] = defaultdict(list)
    for answer in result.reply.partitions:
        by_topic[answer.topic].append(
            OffsetDeleteResponsePartition(partition_index=answer.partition, error_code=answer.error_code)
        )
    response = OffsetDeleteResponse(
        error_code=result.reply.error_code,
        topics=[OffsetDeleteResponseTopic(name=name, partitions=results) for name, results in by_topic.items()],
    )
    groups.apply(now_ms, result, lambda: call.reply(response))
