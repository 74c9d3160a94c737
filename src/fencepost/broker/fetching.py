"""A fetch that may have to wait: it is looked at when it comes, when a partition it reads has more, and when its
time is over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import UUID

from fencepost.broker.acl.model import Operation, ResourceType
from fencepost.broker.api.common import find_partition, leader_epoch_error
from fencepost.broker.fetch_sessions import Opened, Reader
from fencepost.broker.recovery_notes import open_log
from fencepost.broker.timers import Timer
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.fetch_wire import (
    READ_COMMITTED,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopicResult,
)

if TYPE_CHECKING:
    from fencepost.broker.connection import Call

__all__ = ["ParkedFetch"]

_FIRST_BY_TOPIC_ID = 13

_log = logging.getLogger("fencepost.broker.fetch")

Results = list[tuple[Reader, FetchPartitionResult]]


class ParkedFetch:
    """A fetch until it is answered."""

    __slots__ = ("_by_topic_id", "_call", "_committed", "_max_bytes", "_min_bytes", "_opened", "_timer")

    def __init__(self, call: Call, request: FetchRequest, opened: Opened) -> None:
        self._call = call
        self._opened = opened
        self._by_topic_id = call.version >= _FIRST_BY_TOPIC_ID
        self._committed = request.isolation_level == READ_COMMITTED
        self._min_bytes = request.min_bytes
        self._max_bytes = min(request.max_bytes, call.core.config.number("fetch.max.bytes"))
        self._timer: Timer | None = None

    def start(self, max_wait_ms: int) -> None:
        """Answer at once when there is enough, an error, or no time to wait; otherwise wait."""
        ready, results = self._collect()
        if ready or max_wait_ms <= 0 or self._min_bytes <= 0 or not self._opened.readers:
            self._answer(results)
            return
        for reader in self._opened.readers:
            if reader.partition is not None:
                reader.partition.waiting.add(self)
        self._timer = self._call.core.after(max_wait_ms, self._expire)
        self._call.on_closed = self._leave

    def look(self, now_ms: int) -> None:
        """Something has changed: answer when there is enough now."""
        ready, results = self._collect()
        if ready:
            self._leave()
            self._answer(results)

    def _expire(self) -> None:
        self._leave()
        self._answer(self._collect()[1])

    def _leave(self) -> None:
        for reader in self._opened.readers:
            if reader.partition is not None:
                reader.partition.waiting.discard(self)
        if self._timer is not None:
            self._timer.cancel()

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
            results = list(session.tell(results))
        elif opened.wants_session:
            core = self._call.core
            evictions = sessions.evictions
            session_id = sessions.create(core.topics.now_ms, results, by_topic_id=self._by_topic_id)
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

    def _collect(self) -> tuple[bool, Results]:
        """(whether it may be answered before its time is over, the results as of now)."""
        room, total, failed = self._max_bytes, 0, False
        results = []
        readers = self._opened.readers
        if self._opened.session is not None:
            enforced = self._call.core.rights.enforced
            readers = [reader for reader in readers if enforced or not _has_no_news(reader)]
        for reader in readers:
            result = self._read(reader, room, total == 0)
            size = len(result.records)
            room -= size
            total += size
            failed = failed or result.error_code != ErrorCode.NONE
            results.append((reader, result))
        return failed or total >= self._min_bytes, results

    def _find(self, reader: Reader) -> int:
        """Look the reader's partition up, unless it is the one that is known already; returns an error code."""
        core, request = self._call.core, reader.request
        partition = reader.partition
        if core.rights.enforced and not self._may_read(reader):
            reader.partition = None
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if partition is None or core.topics.get(partition.topic.name) is not partition.topic:
            reader.partition, code, _ = find_partition(core, reader.topic, reader.topic_id, request.partition)
            if code:
                return code
        return leader_epoch_error(request.current_leader_epoch)

    def _may_read(self, reader: Reader) -> bool:
        name = self._call.core.topic_name(reader.topic, reader.topic_id)
        return name is None or self._call.may(Operation.READ, ResourceType.TOPIC, name)

    def _read(self, reader: Reader, room: int, nothing_yet: bool) -> FetchPartitionResult:
        request = reader.request
        code = self._find(reader)
        partition = reader.partition
        if code or partition is None:
            return FetchPartitionResult(partition=request.partition, error_code=code)
        log, offset = open_log(self._call.core, partition), request.fetch_offset
        if log is None:
            return FetchPartitionResult(partition=request.partition, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
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
            is_corrupt = read.error_code == ErrorCode.CORRUPT_MESSAGE
            self._call.core.metrics.count("corrupt_reads" if is_corrupt else "storage_errors")
            _log.error("cannot read %s at offset %s: %s", partition.directory, offset, read.message)
        if self._committed:
            result.aborted = read.aborted
        return result


def _has_no_news(reader: Reader) -> bool:
    """Whether a session's partition need not be looked at: it was read to its end, and nothing has moved since.

    This is asked for every partition of a session with every fetch. A deleted topic's logs are closed, and so it does
    not hold there.
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
    )
