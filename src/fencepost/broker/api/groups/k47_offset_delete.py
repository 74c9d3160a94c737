"""OffsetDelete, v0: delete a group's offsets for partitions that no member subscribes to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: OffsetDeleteRequest) -> None:
    """Delete the offsets, and reply when that is durable. A missing partition is refused by itself."""
    requested = [(topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    errors: dict[tuple[str, int], int] = {}
    known = []
    for topic_partition in requested:
        if call.core.topics.partition(*topic_partition) is None:
            errors[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            known.append(topic_partition)
    groups = call.core.groups
    result = groups.coordinator.delete_offsets(request.group_id, known)
    if result.reply.error_code:
        call.reply(OffsetDeleteResponse(error_code=result.reply.error_code))
        return
    errors.update({(answer.topic, answer.partition): answer.error_code for answer in result.reply.partitions})
    refused = groups.apply(now_ms, result, lambda: call.reply(_response(requested, errors)))
    if refused:
        call.reply(OffsetDeleteResponse(error_code=refused))


def _response(requested: Iterable[tuple[str, int]], errors: Mapping[tuple[str, int], int]) -> OffsetDeleteResponse:
    by_topic: defaultdict[str, list[OffsetDeleteResponsePartition]] = defaultdict(list)
    for name, index in requested:
        by_topic[name].append(OffsetDeleteResponsePartition(partition_index=index, error_code=errors[name, index]))
    return OffsetDeleteResponse(
        topics=[OffsetDeleteResponseTopic(name=name, partitions=results) for name, results in by_topic.items()]
    )


def _refuse(call: Call, code: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)


HANDLER = Handler(_handle, refuse=_refuse)
