"""A Fetch that waits for records.

It is checked on arrival and whenever one of its partitions has more records. A check uses offsets and indexes only. The
records are read once, for the answer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from fencepost.broker.api.common import find_partition, leader_epoch_error
from fencepost.broker.api.visibility import when_ends_are_visible
from fencepost.broker.fetch_sessions import PartitionReader, StartedFetch
from fencepost.broker.log.read_bounds import ReadBounds, measure
from fencepost.broker.log.results import CorruptSegment
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.broker.timing.timers import Timer
from fencepost.broker.topics.opening import open_log
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.fetch_wire import (
    READ_COMMITTED,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopicResult,
)

if TYPE_CHECKING:
    from fencepost.broker.connection import Call
    from fencepost.broker.log.partition import PartitionLog
    from fencepost.broker.topics.topic import Partition

__all__ = ["FIRST_BY_TOPIC_ID", "ParkedFetch"]

FIRST_BY_TOPIC_ID = 13

_log = logging.getLogger("fencepost.broker.fetch")

Results = list[tuple[PartitionReader, FetchPartitionResult]]


class ParkedFetch:
    """A fetch until it is answered."""

    __slots__ = (
        "_as_first",
        "_as_replica",
        "_by_topic_id",
        "_call",
        "_committed",
        "_extents",
        "_first",
        "_indexes",
        "_is_valid",
        "_max_bytes",
        "_min_bytes",
        "_opened",
        "_sizes",
        "_timer",
        "_total",
    )

    def __init__(self, call: Call, request: FetchRequest, opened: StartedFetch) -> None:
        self._call = call
        self._opened = opened
        self._by_topic_id = call.version >= FIRST_BY_TOPIC_ID
        self._committed = request.isolation_level == READ_COMMITTED
        self._as_replica = request.replica_id >= 0
        self._is_valid = request.max_bytes >= 0
        self._max_bytes = min(request.max_bytes, call.core.config.number("fetch.max.bytes"))
        # A fetch for more bytes than an answer can hold would wait until its time is over.
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        if self._min_bytes > 1:
            most = sum(max(reader.request.max_bytes, 0) for reader in opened.readers)
            self._min_bytes = max(1, min(self._min_bytes, most))
        self._timer: Timer | None = None
        self._sizes: dict[Partition, dict[PartitionReader, int]] = {}
        """Position of each reader in the answer, while it waits."""
        self._extents: dict[PartitionReader, ReadBounds] = {}
        self._total = 0
        self._indexes: dict[PartitionReader, int] = {}
        """Bytes available to the first reader."""
        self._first: PartitionReader | None = None
        """The first reader with records. Its first batch is returned whole, regardless of its size."""
        self._as_first = 0
        """Bytes available to the first reader."""

    def start(self, now_ms: int, max_wait_ms: int) -> None:
        """Answer at once when there is enough, an error, or no time to wait; otherwise wait."""
        if self._committed:
            partitions = (reader.partition for reader in self._requested() if not self._find(reader))
            when_ends_are_visible(self._call, now_ms, None, lambda _: self._start(max_wait_ms), partitions)
        else:
            self._start(max_wait_ms)

    def _start(self, max_wait_ms: int) -> None:
        readers, requested = self._opened.readers, self._requested()
        if max_wait_ms <= 0 or self._min_bytes <= 0 or not readers or self._is_ready(requested):
            self._answer(self._collect(requested))
            return
        for index, reader in enumerate(readers):
            self._indexes[reader] = index
            if reader.partition is not None:
                self._sizes.setdefault(reader.partition, {}).setdefault(reader, 0)
                reader.partition.waiting[self] = None
        self._timer = self._call.after(max_wait_ms, self._expire)
        self._call.on_closed = self._leave

    def look(self, partition: Partition) -> None:
        """Answer if the changed partition makes the response large enough."""
        self._call.resume(None, partial(self._look, partition), self._call.core.now.ms)

    def _look(self, partition: Partition, now_ms: int) -> None:
        readers = list(self._sizes.get(partition, ()))
        # A topic that was deleted and created again has another partition, whose changes this fetch does not notice.
        if self._is_ready(readers) or any(reader.partition is not partition for reader in readers):
            self._expire(now_ms)

    def _expire(self, _now_ms: int) -> None:
        self._leave()
        self._answer(self._collect(self._requested()))

    def _leave(self) -> None:
        for partition in self._sizes:
            partition.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def _is_ready(self, readers: Iterable[PartitionReader]) -> bool:
        """Check these readers again. Return true if there is enough, or an error to report."""
        for reader in readers:
            size = self._size(reader)
            if size is None or reader.partition is None:
                return True
            sizes = self._sizes.setdefault(reader.partition, {})
            self._total += size - sizes.get(reader, 0)
            sizes[reader] = size
        extra = 0
        if self._first is not None and self._first.partition is not None:
            extra = self._as_first - self._sizes[self._first.partition][self._first]
        return self._total + extra >= self._min_bytes

    def _size(self, reader: PartitionReader) -> int | None:
        """Return the bytes that the answer has for the reader. None for an error, or if no more can come."""
        if self._find(reader) or reader.partition is None:
            return None
        log, offset = open_log(reader.partition, self._call.core.metrics), reader.request.fetch_offset
        if log is None or _is_out_of_range(log, reader.request):
            return None
        bound = log.last_stable_offset if self._committed else log.high_watermark
        try:
            extent = measure(log, offset, bound, self._extents.get(reader))
        except (CorruptSegment, OSError):
            return None  # the read for the answer reports the error
        if extent is None:
            return 0
        self._extents[reader] = extent
        if extent.segment is not log.segments[-1] and bound >= extent.segment.next_offset:
            return None  # an answer ends with the segment, and this one does not grow
        size = min(extent.end - extent.position, max(0, reader.request.max_bytes))
        self._note_first(reader, max(size, extent.first_size))
        return size

    def _note_first(self, reader: PartitionReader, size: int) -> None:
        """Note a reader with records. Before the fetch waits, readers are checked in the answer's order."""
        first = self._first
        if (
            first is None
            or first is reader
            or self._indexes.get(reader, len(self._indexes)) < self._indexes.get(first, 0)
        ):
            self._first, self._as_first = reader, size

    def _answer(self, results: Results) -> None:
        opened, sessions = self._opened, self._call.core.fetch_sessions
        session = opened.session
        if session is not None and opened.outdated:
            outdated = FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.session_id)
            self._call.reply(outdated)
            return
        session_id = 0
        if session is not None:
            session_id = session.session_id
            results = list(session.changed_results(results))
        elif opened.wants_session:
            core = self._call.core
            evictions = sessions.evictions
            session_id = sessions.create(core.now.ms, results, by_topic_id=self._by_topic_id)
            core.metrics.count("fetch_sessions", session_id != 0)
            core.metrics.count("evicted_fetch_sessions", sessions.evictions - evictions)
        topics: dict[str | UUID | None, FetchTopicResult] = {}
        for reader, result in results:
            key = reader.topic if reader.topic_id is None else reader.topic_id
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = FetchTopicResult(reader.topic, reader.topic_id, [])
            topic.partitions.append(result)
        self._call.reply(FetchResponse(list(topics.values()), session_id=session_id))

    def _requested(self) -> list[PartitionReader]:
        """Return the readers that may have records, or an error, for the response."""
        readers = self._opened.readers
        if self._opened.session is None or self._call.core.rights.enforced:
            return readers
        return [reader for reader in readers if not _is_read_to_end(reader)]

    def _collect(self, readers: Iterable[PartitionReader]) -> Results:
        """Read the present results, limited by the memory for all answers that clients have not read yet."""
        room = min(self._max_bytes, self._call.core.room_for_answer())
        results, nothing_yet = [], True
        for reader in readers:
            result = self._read(reader, room, nothing_yet)
            if size := len(result.records):
                room, nothing_yet = room - size, False
                if reader.partition is not None:
                    reader.partition.topic.traffic.read_bytes += size
            results.append((reader, result))
        return results

    def _find(self, reader: PartitionReader) -> int:
        """Set the reader's partition unless it is known. Return the error code, 0 for none."""
        core, request = self._call.core, reader.request
        partition = reader.partition
        if core.rights.enforced and not self._may_read(reader):
            reader.partition = None
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if partition is None or core.topics.get(partition.topic.name) is not partition.topic:
            reader.partition, code, _ = find_partition(core, reader.topic, reader.topic_id, request.partition)
            if code:
                return code
        if self._as_replica:  # there are no replicas, so the answer is that of Kafka to an unknown replica
            no_epoch = request.current_leader_epoch < 0
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if no_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        if not self._is_valid or request.max_bytes < 0:
            return ErrorCode.INVALID_REQUEST
        return leader_epoch_error(max(request.current_leader_epoch, -1))

    def _may_read(self, reader: PartitionReader) -> bool:
        name = self._call.core.topic_name(reader.topic, reader.topic_id)
        return name is None or self._call.may(Operation.READ, ResourceType.TOPIC, name)

    def _read(self, reader: PartitionReader, room: int, nothing_yet: bool) -> FetchPartitionResult:
        request = reader.request
        code = self._find(reader)
        partition = reader.partition
        if code or partition is None:
            aborted = () if partition is None else None
            return FetchPartitionResult(partition=request.partition, error_code=code, aborted=aborted)
        log, offset = open_log(partition, self._call.core.metrics), request.fetch_offset
        if log is None:
            return FetchPartitionResult(partition=request.partition, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        result = FetchPartitionResult(
            partition=request.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted=() if self._committed else None,
        )
        if _has_diverged(log, request):
            return replace(result, aborted=None, diverging=(0, log.high_watermark))
        if _is_out_of_range(log, request):
            return FetchPartitionResult(partition=request.partition, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        limit = min(request.max_bytes, room)
        end = result.last_stable_offset if self._committed else result.high_watermark
        if offset >= end or (limit <= 0 and not nothing_yet):
            return result
        # The first batch of an answer is returned even if it exceeds every limit. Otherwise the client could never pass
        # it.
        read = log.read(
            offset,
            max(limit, 0),
            committed_only=self._committed,
            min_one=nothing_yet,
            before=self._extents.get(reader),
        )
        result.records = read.records
        result.error_code = read.error_code
        if read.error_code:
            is_corrupt = read.error_code == ErrorCode.CORRUPT_MESSAGE
            self._call.core.metrics.count("corrupt_reads" if is_corrupt else "storage_errors")
            _log.error("cannot read %s at offset %s: %s", partition.directory, offset, read.message)
        if self._committed:
            result.aborted = read.aborted
        return result


def _has_diverged(log: PartitionLog, request: FetchPartition) -> bool:
    """Return true if the reader has read beyond the log's end in the only epoch, 0."""
    return request.last_fetched_epoch == 0 and request.fetch_offset > log.log_end_offset


def _is_out_of_range(log: PartitionLog, request: FetchPartition) -> bool:
    is_there = log.log_start_offset <= request.fetch_offset <= log.log_end_offset
    return not is_there or request.last_fetched_epoch > 0


def _is_read_to_end(reader: PartitionReader) -> bool:
    """Return true if a session's partition needs no check, because it was read to its end and has not changed.

    This runs for every partition of a session at every fetch. It is false for a deleted topic, whose logs are closed.
    """
    partition = reader.partition
    log = None if partition is None else partition.opened
    if log is None:
        return False
    end = reader.high_watermark
    return (
        reader.request.fetch_offset == end == log.high_watermark
        and reader.log_start_offset == log.log_start_offset
        and reader.request.current_leader_epoch <= 0
        and reader.request.last_fetched_epoch <= 0
    )
