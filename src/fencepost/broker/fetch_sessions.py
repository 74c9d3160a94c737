"""Fetch sessions in the broker (KIP-227): requests contain only changes of what to read, responses only news.

The code is pure: the time and new ids are parameters. The rules are Kafka's, also for eviction: a session unused for
longer than the eviction time, or else one older than that with fewer partitions than the new session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from fencepost.broker.topics.topic import Partition
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.fetch_wire import FetchPartition, FetchPartitionResult, FetchRequest

__all__ = ["FetchSession", "FetchSessions", "PartitionReader", "StartedFetch"]

NO_SESSION = 0
FINAL_EPOCH, INITIAL_EPOCH = -1, 0
_MOST = 2**31 - 1

Key = tuple[str | UUID | None, int]


@dataclass(slots=True, eq=False)
class PartitionReader:
    """A partition to read, and its last reported values. `partition` is None until it is found.

    Topic name or id is set as in the request.
    """

    topic: str | None
    topic_id: UUID | None
    request: FetchPartition
    partition: Partition | None = None
    high_watermark: int = -1
    log_start_offset: int = -1

    @property
    def key(self) -> Key:
        """Key of the partition in its session."""
        return (self.topic if self.topic_id is None else self.topic_id, self.request.partition)

    def has_changes(self, result: FetchPartitionResult) -> bool:
        """Return true if the response must contain this result."""
        return bool(
            len(result.records)
            or result.error_code
            or result.diverging is not None
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
        )

    def record_reported(self, result: FetchPartitionResult) -> None:
        """Record a reported result. After an error the next good result is always reported."""
        self.high_watermark = -1 if result.error_code else result.high_watermark
        self.log_start_offset = result.log_start_offset


@dataclass(slots=True, eq=False)
class FetchSession:
    """A fetch session (KIP-227).

    The next request must have `epoch`. The next response reads the partitions in the order of `readers`.
    """

    session_id: int
    by_topic_id: bool
    created_ms: int
    used_ms: int
    epoch: int = INITIAL_EPOCH + 1
    readers: dict[Key, PartitionReader] = field(default_factory=dict)

    def changed_results(
        self, pairs: Iterable[tuple[PartitionReader, FetchPartitionResult]]
    ) -> Iterator[tuple[PartitionReader, FetchPartitionResult]]:
        """Yield the results that the response must contain, and record them as reported.

        A partition with records moves to the end of the order, so that none starves.
        """
        for reader, result in pairs:
            if not reader.has_changes(result):
                continue
            reader.record_reported(result)
            if len(result.records) and self.readers.get(key := reader.key) is reader:
                del self.readers[key]
                self.readers[key] = reader
            yield reader, result

    def update(self, request: FetchRequest) -> None:
        """Add the partitions that a request names, and remove those that it forgets."""
        for key, reader in _readers_of(request).items():
            known = self.readers.get(key)
            if known is None:
                self.readers[key] = reader
            else:
                known.request = reader.request
        for gone in request.forgotten:
            for index in gone.partitions:
                self.readers.pop((gone.topic if gone.topic_id is None else gone.topic_id, index), None)


@dataclass(slots=True)
class StartedFetch:
    """Start of a fetch: an error, or the partitions to read.

    Attributes:
        readers: The partitions to read.
        session: The session of the request, or None.
        epoch: Epoch that the session must still have when the response is built.
        wants_session: Open a session with the response, if there is room.
        error_code: The error.
    """

    readers: list[PartitionReader]
    session: FetchSession | None = None
    epoch: int = 0
    wants_session: bool = False
    error_code: int = ErrorCode.NONE

    @property
    def outdated(self) -> bool:
        """True if the session has advanced without this request, which then is a repeated one."""
        return self.session is not None and self.session.epoch != self.epoch


class FetchSessions:
    """All sessions, at most `slots`. `new_id` returns a random number of 31 bits."""

    def __init__(self, slots: int, eviction_ms: int, new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """Return the session with this id, or None."""
        return self._sessions.get(session_id)

    def open(self, now_ms: int, request: FetchRequest, *, by_topic_id: bool) -> StartedFetch:
        """Return what this request reads. Epoch 0 asks for a new session, -1 for none."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            return StartedFetch(
                list(_readers_of(request).values()), wants_session=request.session_epoch == INITIAL_EPOCH
            )
        session = self._sessions.get(request.session_id)
        if session is None:
            return StartedFetch([], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return StartedFetch([], error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_topic_id != by_topic_id:
            return StartedFetch([], error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        del self._sessions[session.session_id]
        if not session.readers:
            return StartedFetch([])
        self._sessions[session.session_id] = session
        session.used_ms = now_ms
        session.epoch = 1 if session.epoch == _MOST else session.epoch + 1
        return StartedFetch(list(session.readers.values()), session, session.epoch)

    def create(
        self, now_ms: int, pairs: Iterable[tuple[PartitionReader, FetchPartitionResult]], *, by_topic_id: bool
    ) -> int:
        """Open a session for a full request with these results.

        Returns its id, or 0 if there is no room. The client's next request is then a full one again.
        """
        readers = {}
        for reader, result in pairs:
            reader.record_reported(result)
            readers[reader.key] = reader
        if len(self._sessions) >= self._slots and not self._evict(now_ms, len(readers)):
            return NO_SESSION
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        self._sessions[session_id] = FetchSession(session_id, by_topic_id, now_ms, now_ms, readers=readers)
        return session_id

    def _evict(self, now_ms: int, size: int) -> bool:
        """Evict a session for a new one with `size` partitions, if the rules allow it."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms > self._eviction_ms:
            doomed = oldest
        else:
            settled = (each for each in self._sessions.values() if each.used_ms - each.created_ms > self._eviction_ms)
            smallest = min(settled, key=lambda each: (len(each.readers), each.session_id), default=None)
            if smallest is None or len(smallest.readers) >= size:
                return False
            doomed = smallest
        del self._sessions[doomed.session_id]
        self.evictions += 1
        return True


def _readers_of(request: FetchRequest) -> dict[Key, PartitionReader]:
    """Return one reader per partition; the last one counts if a partition is named twice."""
    readers: dict[Key, PartitionReader] = {}
    for topic in request.topics:
        name, topic_id = topic.topic, topic.topic_id
        key = name if topic_id is None else topic_id
        for wanted in topic.partitions:
            readers[key, wanted.partition] = PartitionReader(name, topic_id, wanted)
    return readers
