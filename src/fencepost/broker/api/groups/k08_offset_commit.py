"""OffsetCommit, v2-10: a group's offsets. v2-4 name a retention, v6 leader epochs, v7 instance ids, v10 topic ids
instead of names.

Answered when the offsets are durable. A topic or partition that does not exist is refused alone; the others are
committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from fencepost.broker.api.common import partition_error
from fencepost.broker.api.groups.results_by_topic import listed
from fencepost.broker.api.handler import Handler
from fencepost.broker.api.pieces import in_pieces
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.requests import CommitOffsets, PartitionOffset
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

__all__ = ["HANDLER"]

_FIRST_WITH_TOPIC_IDS = 10


def _handle(call: Call, now_ms: int, request: OffsetCommitRequest) -> None:
    """Commit, and reply when durable."""
    offsets: list[PartitionOffset] = []
    refused: dict[tuple[str, UUID | None], list[OffsetCommitResponsePartition]] = {}
    taken: list[tuple[tuple[str, UUID | None], list[OffsetCommitResponsePartition]]] = []
    by_place: dict[tuple[str, int], list[OffsetCommitResponsePartition]] = {}
    for topic in request.topics:
        results = []
        key = topic.name, topic.topic_id
        by_id = call.version >= _FIRST_WITH_TOPIC_IDS
        known = call.core.topics.by_id(topic.topic_id) if by_id else call.core.topics.get(topic.name)
        if known is None:
            refused.setdefault(key, [])
        for wanted in topic.partitions:
            code = partition_error(known, wanted.partition_index, by_id=by_id)
            result = OffsetCommitResponsePartition(partition_index=wanted.partition_index, error_code=code)
            if known is None or code:
                refused.setdefault(key, []).append(result)
            else:
                results.append(result)
                by_place.setdefault((known.name, wanted.partition_index), []).append(result)
                offsets.append(
                    PartitionOffset(
                        topic=known.name,
                        partition=wanted.partition_index,
                        offset=wanted.committed_offset,
                        leader_epoch=wanted.committed_leader_epoch,
                        metadata=wanted.committed_metadata,
                        topic_id=topic.topic_id,
                    )
                )
        if results:
            taken.append((key, results))
    groups = call.core.groups

    def commit(now_ms: int, piece: Sequence[PartitionOffset]) -> None:
        committed = groups.coordinator.commit_offsets(
            now_ms,
            CommitOffsets(
                group_id=request.group_id,
                generation_id=request.generation_id_or_member_epoch,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                offsets=piece,
                retention_ms=request.retention_time_ms,
                api_version=call.version,
            ),
        )
        for answer in committed.reply:
            for partition in by_place[(answer.topic, answer.partition)]:
                partition.error_code = answer.error_code
        failed = groups.apply(now_ms, committed)
        for wanted in piece if failed else ():
            for partition in by_place[(wanted.topic, wanted.partition)]:
                partition.error_code = failed

    def finish(now_ms: int) -> None:
        topics = [
            OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=results)
            for (name, topic_id), results in listed(refused, taken)
        ]
        call.reply_when_durable(now_ms, OffsetCommitResponse(topics=topics))

    in_pieces(call, now_ms, request, offsets, commit, finish)


HANDLER = Handler(_handle)
