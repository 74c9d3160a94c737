"""A fetch that may have to wait: it is looked at when it comes, when a partition it reads has more, and when its
time is over."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.broker.timers import Timer
from fencepost.broker.topics import Partition
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

__all__ = ["ParkedFetch", "Wanted"]

_log = logging.getLogger("fencepost.broker.fetch")


@dataclass(slots=True)
class Wanted:
    """One partition of a fetch: where to read, or the error that is its answer."""

    request: FetchPartition
    partition: Partition | None
    error_code: int


class ParkedFetch:
    """A fetch until it is answered. `topics` keeps the order of the request: (name, id, partitions)."""

    __slots__ = ("_call", "_committed", "_max_bytes", "_min_bytes", "_timer", "_topics", "session_id")

    def __init__(self, call: Call, request: FetchRequest, topics: list[tuple[FetchTopicResult, list[Wanted]]]) -> None:
        self._call = call
        self._topics = topics
        self._committed = request.isolation_level == READ_COMMITTED
        self._min_bytes = request.min_bytes
        self._max_bytes = min(request.max_bytes, call.core.config.number("fetch.max.bytes"))
        self._timer: Timer | None = None
        self.session_id = 0

    def start(self, now_ms: int, max_wait_ms: int) -> None:
        """Answer at once when there is enough, an error, or no time to wait; otherwise wait."""
        ready, response = self._collect()
        if ready or max_wait_ms <= 0 or self._min_bytes <= 0:
            self._call.reply(response)
            return
        for _, partitions in self._topics:
            for wanted in partitions:
                if wanted.partition is not None:
                    wanted.partition.waiting.add(self)
        self._timer = self._call.core.after(max_wait_ms, self._expire)
        self._call.on_closed = self._leave

    def look(self, now_ms: int) -> None:
        """Something has changed: answer when there is enough now."""
        ready, response = self._collect()
        if ready:
            self._leave()
            self._call.reply(response)

    def _expire(self) -> None:
        self._leave()
        self._call.reply(self._collect()[1])

    def _leave(self) -> None:
        for _, partitions in self._topics:
            for wanted in partitions:
                if wanted.partition is not None:
                    wanted.partition.waiting.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def _collect(self) -> tuple[bool, FetchResponse]:
        """(whether it may be answered before its time is over, the answer as of now)."""
        room, total, failed = self._max_bytes, 0, False
        response = FetchResponse(session_id=self.session_id)
        for topic, partitions in self._topics:
            results = []
            for wanted in partitions:
                result = self._read(wanted, room, total == 0)
                size = len(result.records)
                room -= size
                total += size
                failed = failed or result.error_code != ErrorCode.NONE
                results.append(result)
            response.topics.append(FetchTopicResult(topic.topic, topic.topic_id, results))
        return failed or total >= self._min_bytes, response

    def _read(self, wanted: Wanted, room: int, nothing_yet: bool) -> FetchPartitionResult:
        partition, request = wanted.partition, wanted.request
        if partition is None:
            return FetchPartitionResult(partition=request.partition, error_code=wanted.error_code)
        if self._call.core.topics.get(partition.topic.name) is not partition.topic:
            gone = ErrorCode.UNKNOWN_TOPIC_ID if self._call.version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return FetchPartitionResult(partition=request.partition, error_code=gone)
        log, offset = partition.log, request.fetch_offset
        result = FetchPartitionResult(
            partition=request.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted=() if self._committed else None,
        )
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return FetchPartitionResult(partition=request.partition, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        limit = min(request.max_bytes, room)
        end = log.last_stable_offset if self._committed else log.high_watermark
        if offset >= end or (limit <= 0 and not nothing_yet):
            return result
        # A batch larger than every limit still goes out when it is the answer's first, or the client would never get
        # past it.
        read = log.read(offset, max(limit, 0), committed_only=self._committed, min_one=nothing_yet)
        result.records = read.records
        result.error_code = read.error_code
        if read.error_code:
            _log.error("cannot read %s at offset %s: %s", partition.directory, offset, read.message)
        if self._committed:
            result.aborted = read.aborted
        return result
