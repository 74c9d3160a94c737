"""A parked ShareFetch.

It is checked on arrival, and when one of its partitions has more records to acquire.

When there are enough, or its time is over, it acquires as many as it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from fencepost.broker.api.common import find_partition
from fencepost.broker.api.visibility import when_ends_are_visible
from fencepost.broker.coordinator.group.share.membership import ShareGroups
from fencepost.broker.log.read_bounds import measure
from fencepost.broker.log.results import CorruptSegment
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.broker.share.share_partition import AcquiredRange, ShareLimits, SharePartition, Span
from fencepost.broker.share.share_partitions import limits_of, reads_committed
from fencepost.broker.timing.timers import Timer
from fencepost.broker.topics.opening import open_log
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.logs.share_state_log import ShareStateKey
from fencepost.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from fencepost.protocol.records.batch import iter_batches
from fencepost.protocol.records.markers import parse_marker

if TYPE_CHECKING:
    from fencepost.broker.connection import Call
    from fencepost.broker.log.partition import PartitionLog
    from fencepost.broker.log.results import ReadResult
    from fencepost.broker.topics.topic import Partition

__all__ = ["ParkedShareFetch"]

_RECORD_LIMIT = 1


class ParkedShareFetch:
    """A ShareFetch until it is answered. `acknowledged`: the codes of its acknowledgements by partition."""

    __slots__ = (
        "_acknowledged",
        "_call",
        "_committed",
        "_group_id",
        "_limits",
        "_max_bytes",
        "_min_bytes",
        "_partitions",
        "_request",
        "_sizes",
        "_timer",
        "_waits_at",
    )

    def __init__(
        self,
        call: Call,
        request: ShareFetchRequest,
        partitions: list[TopicIdPartition],
        acknowledged: Mapping[TopicIdPartition, int],
    ) -> None:
        self._call = call
        self._request = request
        self._group_id = request.group_id or ""
        self._partitions = partitions
        self._acknowledged = acknowledged
        settings = call.core.settings.of_group(self._group_id)
        self._limits: ShareLimits = limits_of(settings)
        self._committed = reads_committed(settings)
        self._max_bytes = min(request.max_bytes, call.core.config.number("fetch.max.bytes"))
        self._min_bytes = max(1, min(request.min_bytes, self._max_bytes))
        self._timer: Timer | None = None
        self._waits_at: dict[Partition, TopicIdPartition] = {}
        self._sizes: dict[TopicIdPartition, int] = {}
        """Bytes available in each partition at its last check."""

    def start(self, now_ms: int) -> None:
        """Answer at once if there is enough, an error, or no time to wait. Wait otherwise."""
        if self._committed:
            found = (find_partition(self._call.core, None, *wanted)[0] for wanted in self._partitions)
            when_ends_are_visible(self._call, now_ms, self._request, lambda _: self._start(), found)
        else:
            self._start()

    def _start(self) -> None:
        # The request's acknowledgements are answered with it, and the member may wait for them.
        wait_ms = 0 if self._acknowledged else self._request.max_wait_ms
        if wait_ms <= 0 or not self._wants_any() or self._is_ready():
            self._answer()
            return
        for wanted in self._partitions:
            partition, _, _ = find_partition(self._call.core, None, wanted.topic_id, wanted.partition)
            if partition is not None:
                self._waits_at[partition] = wanted
                partition.waiting[self] = None
        self._timer = self._call.after(wait_ms, self._expire)
        self._call.on_closed = self._leave

    def _wants_any(self) -> bool:
        """Return true if the request's limits allow any record."""
        return bool(self._partitions) and self._request.max_records > 0 and self._request.max_bytes > 0

    def look(self, partition: Partition) -> None:
        """Check a changed partition, and answer if there is enough now."""
        self._call.resume(self._request, partial(self._look, partition), self._call.core.now.ms)

    def _look(self, partition: Partition, now_ms: int) -> None:
        wanted = self._waits_at[partition]
        size = self._size(wanted)
        if size is not None:
            self._sizes[wanted] = size
        # Other members may have acquired records of the other partitions, so all are checked again before the answer.
        if size is None or (sum(self._sizes.values()) >= self._min_bytes and self._is_ready()):
            self._expire(now_ms)

    def _expire(self, _now_ms: int) -> None:
        self._leave()
        self._answer()

    def _leave(self) -> None:
        for partition in self._waits_at:
            partition.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def _is_ready(self) -> bool:
        """Return true if there are enough bytes to acquire, or an error to report."""
        self._sizes.clear()
        for wanted in self._partitions:
            size = self._size(wanted)
            if size is None:
                return True
            self._sizes[wanted] = size
        return sum(self._sizes.values()) >= self._min_bytes

    def _size(self, wanted: TopicIdPartition) -> int | None:
        """Return the bytes available in the partition; None for an error, or if no more can come."""
        opened = self._open(wanted)
        if isinstance(opened, int):
            return None
        shared, log = opened
        offset = shared.next_offset(self._limits)
        bound = log.last_stable_offset if self._committed else log.high_watermark
        if offset is None or offset >= bound:
            return 0
        try:
            extent = measure(log, offset, bound, None)
        except (CorruptSegment, OSError):
            return None  # reading it reports the error
        if extent is None:
            return 0
        if extent.segment is not log.segments[-1] and bound >= extent.segment.next_offset:
            return None  # an answer ends with the segment, and this one does not grow
        return extent.end - extent.position

    def _open(self, wanted: TopicIdPartition) -> tuple[SharePartition, PartitionLog] | int:
        """Return the group's state of the partition and its log, or an error code."""
        core = self._call.core
        partition, code, topic = find_partition(core, None, wanted.topic_id, wanted.partition)
        if topic is not None and not self._call.may(Operation.READ, ResourceType.TOPIC, topic.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if partition is None:
            return code
        if core.groups.coordinator.kind(ShareGroups).find(self._group_id) is None:
            return ErrorCode.GROUP_ID_NOT_FOUND  # names without members have no state
        log = open_log(partition, core.metrics)
        if log is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            return core.shares.begin(core.now.ms, self._group_id, partition), log
        except (CorruptSegment, OSError):
            return ErrorCode.KAFKA_STORAGE_ERROR

    def _answer(self) -> None:
        """Acquire records, and answer with them and the codes of the acknowledgements."""
        results: dict[TopicIdPartition, PartitionData] = {
            wanted: PartitionData(
                partition_index=wanted.partition, acknowledge_error_code=code, current_leader=LeaderIdAndEpoch()
            )
            for wanted, code in self._acknowledged.items()
        }
        room = min(self._max_bytes, self._call.core.room_for_answer())
        count = self._request.max_records
        for wanted in self._partitions if self._wants_any() else ():
            data = self._take(wanted, room, count, nothing_yet=count == self._request.max_records)
            room -= len(data.records)
            count -= sum(each.last_offset - each.first_offset + 1 for each in data.acquired_records)
            if data.records and (topic := self._call.core.topics.by_id(wanted.topic_id)) is not None:
                topic.traffic.read_bytes += len(data.records)
            if data.records or data.error_code:
                results[wanted] = data
        topics: dict[UUID, list[PartitionData]] = {}
        for wanted, data in results.items():
            topics.setdefault(wanted.topic_id, []).append(data)
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=self._limits.lock_ms,
            responses=[
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=data) for topic_id, data in topics.items()
            ],
        )
        if self._acknowledged:
            self._call.reply_when_durable(self._call.core.now.ms, response)
        else:
            self._call.reply(response)

    def _take(self, partition: TopicIdPartition, room: int, count: int, *, nothing_yet: bool) -> PartitionData:
        """Acquire records of one partition: about `count` at most, and `room` bytes."""
        data = PartitionData(
            partition_index=partition.partition,
            acknowledge_error_code=self._acknowledged.get(partition, ErrorCode.NONE),
            current_leader=LeaderIdAndEpoch(),
        )
        opened = self._open(partition)
        if isinstance(opened, int):
            data.error_code = opened
            return data
        shared, log = opened
        while count > 0 and (room > 0 or nothing_yet):
            offset = shared.next_offset(self._limits)
            bound = log.last_stable_offset if self._committed else log.high_watermark
            if offset is None or offset >= bound:
                return data
            read = log.read(offset, max(room, 0), committed_only=self._committed, min_one=nothing_yet)
            if read.error_code or not len(read.records):
                data.error_code = read.error_code
                return data
            found = self._acquire(shared, partition, list(_spans(read, self._committed)), count)
            if found:
                data.records = _up_to(read.records, found[-1].last_offset)
                data.acquired_records = [
                    AcquiredRecords(first_offset=a, last_offset=b, delivery_count=c) for a, b, c in found
                ]
                return data
            if shared.next_offset(self._limits) == offset:
                return data  # nothing moved, because the limit of acquired records leaves no room for the batch
        return data

    def _acquire(
        self, shared: SharePartition, wanted: TopicIdPartition, spans: list[Span], count: int
    ) -> list[AcquiredRange]:
        core, request = self._call.core, self._request
        strict = request.share_acquire_mode == _RECORD_LIMIT
        member_id = request.member_id or ""
        found = shared.acquire(core.now.ms, member_id, spans, count, self._limits, strict=strict)
        core.shares.handed_out(ShareStateKey(self._group_id, *wanted), found)
        return found


def _up_to(records: bytes | memoryview, offset: int) -> bytes:
    """Return the whole batches up to the one that contains the offset."""
    size = 0
    for header, batch in iter_batches(records):
        if header.base_offset > offset:
            break
        size += len(batch)
    return bytes(records[:size])


def _spans(read: ReadResult, committed: bool) -> Iterator[Span]:
    """Yield the batches read that have no records to acquire: markers and aborted batches."""
    waiting = sorted(read.aborted, key=lambda pair: pair[1]) if committed else []
    aborting: set[int] = set()
    for header, batch in iter_batches(read.records):
        while waiting and waiting[0][1] <= header.last_offset:
            aborting.add(waiting.pop(0)[0])
        missing = header.is_control or (header.is_transactional and header.producer_id in aborting)
        if header.is_control and header.record_count and not parse_marker(batch).commit:
            aborting.discard(header.producer_id)
        yield Span(header.base_offset, header.last_offset, missing)
