"""Fetch sessions (KIP-227), the broker's side: what a client wants to read is remembered, so that a request names only
what changed and an answer tells only what is new.

Pure: the time and new ids are handed in. The rules are Kafka's, also which session has to go when there is no room: one
unused for longer than the eviction time, else one older than that which reads fewer partitions than the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from fencepost.broker.topics.catalogue import Partition
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.fetch_wire import FetchPartition, FetchPartitionResult, FetchRequest

__all__ = ["FetchSession", "FetchSessions", "Opened", "Reader"]

NO_SESSION = 0
FINAL_EPOCH, INITIAL_EPOCH = -1, 0
_MOST = 2**31 - 1

Key = tuple[str | UUID | None, int]


@dataclass(slots=True, eq=False)
class Reader:
    """One partition that is to be read, and what its reader was told of it last. `partition`: None until it is found.

    The topic has a name or an id, as the request had.
    """

    topic: str | None
    topic_id: UUID | None
    request: FetchPartition
    partition: Partition | None = None
    high_watermark: int = -1
    log_start_offset: int = -1

    @property
    def key(self) -> Key:
        """What it is known by within its session."""
        return (self.topic if self.topic_id is None else self.topic_id, self.request.partition)

    def has_news(self, result: FetchPartitionResult) -> bool:
        """Whether the answer has to tell this result."""
        return bool(
            len(result.records)
            or result.error_code
            or result.diverging is not None
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
        )

    def told(self, result: FetchPartitionResult) -> None:
        """Remember what is told. After an error the partition is told again as soon as it is well."""
        self.high_watermark = -1 if result.error_code else result.high_watermark
        self.log_start_offset = result.log_start_offset


@dataclass(slots=True, eq=False)
class FetchSession:
    """One session. `epoch`: the one that the next request has to come with. `readers` are in order of their turn."""

    session_id: int
    by_topic_id: bool
    created_ms: int
    used_ms: int
    epoch: int = INITIAL_EPOCH + 1
    readers: dict[Key, Reader] = field(default_factory=dict)

    def tell(
        self, pairs: Iterable[tuple[Reader, FetchPartitionResult]]
    ) -> Iterator[tuple[Reader, FetchPartitionResult]]:
        """What of these results the answer has to tell.

        It counts as told, and a partition with records goes to the end of the line, so that none of them starves.
        """
        for reader, result in pairs:
            if not reader.has_news(result):
                continue
            reader.told(result)
            if len(result.records) and self.readers.get(reader.key) is reader:
                del self.readers[reader.key]
                self.readers[reader.key] = reader
            yield reader, result

    def update(self, request: FetchRequest) -> None:
        """Take in what a request names and let go what it forgets."""
        for reader in _readers_of(request):
            known = self.readers.get(reader.key)
            if known is None:
                self.readers[reader.key] = reader
            else:
                known.request = reader.request
        for gone in request.forgotten:
            for index in gone.partitions:
                self.readers.pop((gone.topic if gone.topic_id is None else gone.topic_id, index), None)


@dataclass(slots=True)
class Opened:
    """How a fetch goes on: an error, or what to read. `session`: the one it belongs to, and the epoch that it has to
    have still when the answer is made. `wants_session`: open a session with the answer, if there is room."""

    readers: list[Reader]
    session: FetchSession | None = None
    epoch: int = 0
    wants_session: bool = False
    error_code: int = ErrorCode.NONE

    @property
    def outdated(self) -> bool:
        """Whether the session has gone on without this request, which can have been a repeated one only."""
        return self.session is not None and self.session.epoch != self.epoch


class FetchSessions:
    """All sessions: at most `slots`. `new_id` draws a number of 31 bits."""

    def __init__(self, slots: int, eviction_ms: int, new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}  # the least recently used first
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """The session of that id."""
        return self._sessions.get(session_id)

    def open(self, now_ms: int, request: FetchRequest, *, by_topic_id: bool) -> Opened:
        """What this request asks for. An epoch of 0 asks for a new session, -1 for none."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            return Opened(list(_readers_of(request)), wants_session=request.session_epoch == INITIAL_EPOCH)
        session = self._sessions.get(request.session_id)
        if session is None:
            return Opened([], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return Opened([], error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_topic_id != by_topic_id:
            return Opened([], error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        del self._sessions[session.session_id]
        if not session.readers:
            return Opened([])
        self._sessions[session.session_id] = session
        session.used_ms = now_ms
        session.epoch = 1 if session.epoch == _MOST else session.epoch + 1
        return Opened(list(session.readers.values()), session, session.epoch)

    def create(self, now_ms: int, pairs: Iterable[tuple[Reader, FetchPartitionResult]], *, by_topic_id: bool) -> int:
        """Open a session for a full request that is being answered with these results.

        Returns its id, or 0 when there is no room: the client's next request is a full one again.
        """
        readers = {}
        for reader, result in pairs:
            reader.told(result)
            readers[reader.key] = reader
        if len(self._sessions) >= self._slots and not self._evict(now_ms, len(readers)):
            return NO_SESSION
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        self._sessions[session_id] = FetchSession(session_id, by_topic_id, now_ms, now_ms, readers=readers)
        return session_id

    def _evict(self, now_ms: int, size: int) -> bool:
        """Make room for a session of that many partitions, if it is worth it."""
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


def _readers_of(request: FetchRequest) -> Iterable[Reader]:
    """One for each partition: of one that is named more than once the last counts."""
    readers = (Reader(topic.topic, topic.topic_id, wanted) for topic in request.topics for wanted in topic.partitions)
    return {reader.key: reader for reader in readers}.values()
