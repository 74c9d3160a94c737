"""OffsetCommit, v2-10: commit a group's offsets.

v2-4 have a retention, v6 leader epochs, v7 instance ids, v10 topic ids instead of names. The answer is sent when the
offsets are durable. A missing topic or partition is refused by itself; the others are committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fencepost.broker.api.common import partition_error
from fencepost.broker.api.groups.results_by_topic import NameOrId, listed
from fencepost.broker.api.handler import Handler
from fencepost.broker.api.time_slices import in_pieces
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.base.requests import CommitOffsets, PartitionOffset
from fencepost.broker.topics.topic import Topic
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

__all__ = ["HANDLER"]

_FIRST_WITH_TOPIC_IDS = 10


class _Results:
    """The results of a request by partition. The coordinator commits `offsets`."""

    def __init__(self, call: Call, request: OffsetCommitRequest) -> None:
        self.offsets: list[PartitionOffset] = []
        self._refused: dict[NameOrId, list[OffsetCommitResponsePartition]] = {}
        self._taken: list[tuple[NameOrId, list[OffsetCommitResponsePartition]]] = []
        self._by_partition: dict[tuple[str, int], list[OffsetCommitResponsePartition]] = {}
        by_id = call.version >= _FIRST_WITH_TOPIC_IDS
        for topic in request.topics:
            known = call.core.topics.by_id(topic.topic_id) if by_id else call.core.topics.get(topic.name)
            self._sort(topic, known, by_id=by_id)

    def _sort(self, topic: OffsetCommitRequestTopic, known: Topic | None, *, by_id: bool) -> None:
        key = topic.name, topic.topic_id
        if known is None:
            self._refused.setdefault(key, [])
        taken = []
        for requested in topic.partitions:
            code = partition_error(known, requested.partition_index, by_id=by_id)
            result = OffsetCommitResponsePartition(partition_index=requested.partition_index, error_code=code)
            if known is None or code:
                self._refused.setdefault(key, []).append(result)
                continue
            taken.append(result)
            self._by_partition.setdefault((known.name, requested.partition_index), []).append(result)
            self.offsets.append(
                PartitionOffset(
                    topic=known.name,
                    partition=requested.partition_index,
                    offset=requested.committed_offset,
                    leader_epoch=requested.committed_leader_epoch,
                    metadata=requested.committed_metadata,
                    topic_id=topic.topic_id,
                )
            )
        if taken:
            self._taken.append((key, taken))

    def add(self, topic: str, partition: int, code: int) -> None:
        """Add a result. A partition that the request names twice gets two results."""
        for result in self._by_partition[topic, partition]:
            result.error_code = code

    def response(self) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=results)
                for (name, topic_id), results in listed(self._refused, self._taken)
            ]
        )


def _handle(call: Call, now_ms: int, request: OffsetCommitRequest) -> None:
    """Commit the offsets, and reply when they are durable."""
    results = _Results(call, request)

    def finish(now_ms: int) -> None:
        call.reply_when_durable(now_ms, results.response())

    in_pieces(call, now_ms, request, results.offsets, partial(_commit, call, request, results), finish)


def _commit(
    call: Call, request: OffsetCommitRequest, results: _Results, now_ms: int, piece: Sequence[PartitionOffset]
) -> None:
    groups = call.core.groups
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
        results.add(answer.topic, answer.partition, answer.error_code)
    failed = groups.apply(now_ms, committed)
    for wanted in piece if failed else ():
        results.add(wanted.topic, wanted.partition, failed)


HANDLER = Handler(_handle)
