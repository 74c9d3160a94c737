"""The partitions of a consumer and the position of each. No I/O. The fetcher and the positions use it.

A position moves when a poll takes records, not when they are fetched.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Final, NamedTuple
from uuid import UUID

from fencepost.client.consumer.rewind import NOTHING, RewindPoint
from fencepost.client.net.topology import KnownTopic
from fencepost.client.records import Fetched, Record
from fencepost.client.types import Isolation, K, OffsetAndMetadata, TopicPartition
from fencepost.errors import UsageError

ROUNDS_AHEAD: Final = 2  # maximum number of fetched responses per partition in memory: the current one and the next


# The first fetch from a new position requests this size of a partition. Each next fetch requests four times as much, up
# to the setting. Without this limit, an application that goes back often, because its transactions fail, would fetch
# and decode megabytes each time for a few records.
FIRST_FETCH_BYTES = 131_072
FETCH_GROWTH = 4


class PartitionState:
    """The reading state of one partition.

    `epoch` is the leader epoch of the record before `position`, `fetch_epoch` that before `fetch_offset` (-1: unknown).
    `checked_epoch` is the leader epoch under which the position was last known to be in the log.
    """

    __slots__ = (
        "checked_epoch",
        "checking",
        "epoch",
        "error",
        "fetch_bytes",
        "fetch_epoch",
        "fetch_offset",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "not_before_ms",
        "paused",
        "position",
        "ready",
        "reason",
        "replica",
        "replica_until_ms",
        "resetting",
        "revoking",
        "rewind",
        "stored",
        "topic_id",
        "tries",
        "version",
        "versions",
    )

    def __init__(self, versions: Iterator[int]) -> None:
        self.rewind = RewindPoint()
        self.stored: OffsetAndMetadata | None = None  # set by the application, for the next commit
        self.position: int | None = None  # of the next record for a poll; None: unknown
        self.epoch = -1
        self.fetch_offset = -1
        self.fetch_epoch = -1
        self.fetch_bytes = FIRST_FETCH_BYTES
        self.checked_epoch = -1
        self.checking = False
        self.ready: deque[Fetched] = deque()
        self.paused = False
        self.revoking = False  # about to be given up: a poll returns no records of it
        self.resetting = False  # its position comes from auto_offset_reset, not from the group's commits
        # A new number whenever the position jumps. It shows that an older response or search is outdated. No two states
        # share a version, so this also holds after a partition was given up and assigned again.
        self.versions = versions
        self.version = next(versions)
        self.error: Exception | None = None  # raised after all records in `ready` were returned
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.replica = -1  # the follower to fetch from (KIP-392)
        self.replica_until_ms = 0
        self.tries = 0  # consecutive refused fetches
        self.not_before_ms = 0
        self.topic_id: UUID | None = None  # id of the topic of these positions, if it is known
        self.reason = "it was not looked for yet"

    def go_to(self, offset: int | None, epoch: int = -1) -> None:
        """Continue at this offset. Fetched records are dropped. None: the position is unknown."""
        self.position = offset
        self.epoch = self.fetch_epoch = epoch
        self.fetch_offset = -1 if offset is None else offset
        self.fetch_bytes = FIRST_FETCH_BYTES
        self.checked_epoch = -1
        self.checking = False
        self.ready.clear()
        self.version = next(self.versions)
        self.error = None
        self.tries = self.not_before_ms = 0

    def end_offset(self, isolation: Isolation) -> int:
        """Return the offset after the last record that this reader may see; -1 before the first fetch."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark

    @property
    def wants_more(self) -> bool:
        """Return true if the fetcher may request more of the partition."""
        return (
            self.position is not None
            and not self.paused
            and not self.revoking
            and not self.checking
            and self.error is None
            and len(self.ready) < ROUNDS_AHEAD
        )


class _Before(NamedTuple):
    """The reading state of a partition before records were handed out."""

    state: PartitionState
    version: int
    position: int | None
    epoch: int
    handed_out: bool

    @property
    def is_current(self) -> bool:
        """Return true if nothing else has moved the position since."""
        return self.state.version == self.version


class HandOut:
    """The records that one poll took. Until `delivered` is set, the positions before the poll count.

    The call that returns the records sets it as its last step, by a plain store. Python runs no signal handler between
    that and the return, so a call that raises has delivered nothing. An iterator returns `records` one by one instead,
    and those before `given` are delivered. `rest` begins with a record that cannot be deserialized, of partition
    `failed`. The next poll continues with it.
    """

    __slots__ = ("before", "delivered", "failed", "given", "pieces", "records", "rest")

    def __init__(self) -> None:
        self.pieces: list[Fetched] = []
        self.before: dict[TopicPartition, tuple[_Before, list[Fetched]]] = {}
        self.delivered = False
        self.records: list[Record] | None = None
        self.given = 0
        self.rest: list[Record] = []
        self.failed: TopicPartition | None = None

    @property
    def is_divided(self) -> bool:
        """Return true if only a part of the records has reached the application, or may have."""
        return self.records is not None or (self.delivered and bool(self.rest))

    def by_topic(self) -> dict[str, int]:
        """Return the number of records of each topic."""
        found: dict[str, int] = {}
        for piece in self.pieces:
            topic = piece.partition.topic
            found[topic] = found.get(topic, 0) + len(piece.columns)
        return found

    def one_by_one(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records one at a time. Records that are not yielded yet do not count as read."""
        self.given, self.records = 0, list(records)
        while self.given < len(self.records):
            record = self.records[self.given]
            self.given += 1  # no call between this and the yield
            yield record

    def left(self) -> list[Record]:
        """Return the records that have not reached the application yet, if it `is_divided`."""
        return [*([] if self.records is None else self.records[self.given :]), *self.rest]

    def first_left(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the position of the first of these in each partition.

        It has the record's own epoch. The log of that epoch ends after the position, even if the epoch changed in a gap
        before it.
        """
        return {
            TopicPartition(record.topic, record.partition): OffsetAndMetadata(record.offset, "", record.leader_epoch)
            for record in reversed(self.left())
        }

    def forget(self, gone: TopicPartition) -> None:
        """Remove the remaining records of a partition."""
        left = [] if self.records is None else self.records[self.given :]
        if left:
            self.given, self.records = 0, [record for record in left if (record.topic, record.partition) != gone]
        self.rest = [record for record in self.rest if (record.topic, record.partition) != gone]


class SubscriptionState:
    """The assigned partitions of one consumer."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        self._versions = count(1)
        self._turn: deque[TopicPartition] = deque()  # the partition for the next poll is the first
        self._paused_before: set[TopicPartition] = set()
        self._handed = HandOut()  # records of the current or the last poll
        self.transactional = False  # positions are committed in transactions; without commits, rewind points count
        self.uncommitted_gone = False  # a rebalance took uncommitted records away
        self._rewinds: dict[TopicPartition, RewindPoint] = {}

    def assigned(self) -> list[TopicPartition]:
        """Return the assigned partitions in order."""
        return sorted(self.states)

    def take(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions.

        A partition that was paused when it was last given up, and is assigned again at once, is paused again.
        """
        for partition in partitions:
            if partition not in self.states:
                state = self.states[partition] = PartitionState(self._versions)
                state.paused = partition in self._paused_before
                state.rewind = self._rewinds.pop(partition, state.rewind)
        self._paused_before = set()
        self._turn = deque(sorted(self.states))

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions."""
        for partition in partitions:
            gone = self.states.pop(partition, None)
            if gone is None:
                continue
            if gone.paused:
                self._paused_before.add(partition)
            if self.transactional and gone.rewind.committed == NOTHING:
                self._rewinds[partition] = gone.rewind
            self._handed.forget(partition)
        self._turn = deque(sorted(self.states))

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that a rebalance took away.

        Records that were returned from them cannot be committed any more.
        """
        gone = list(partitions)
        taken = [self.states[partition].rewind for partition in gone if partition in self.states]
        self.uncommitted_gone = self.uncommitted_gone or any(rewind.handed_out for rewind in taken)
        self.drop(gone)

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Those that stay keep their positions."""
        wanted = list(partitions)
        self.drop([partition for partition in self.states if partition not in wanted])
        self._paused_before = set()
        self.take(wanted)

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no more records of these partitions. `drop` follows."""
        for partition in partitions:
            if partition in self.states:
                self.states[partition].revoking = True

    def state(self, partition: tuple[str, int]) -> PartitionState:
        """Return the state of an assigned partition. Raises UsageError."""
        found = self.states.get(TopicPartition(*partition))
        if found is None:
            raise UsageError(f"{partition[0]}-{partition[1]} is not assigned")
        return found

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit by partition: the offset after the last record that the application received."""
        offsets = {
            partition: OffsetAndMetadata(state.position, "", state.epoch)
            for partition, state in sorted(self.states.items())
            if state.position is not None
        }
        handed = self._handed
        if handed.is_divided:
            offsets |= {partition: at for partition, at in handed.first_left().items() if partition in offsets}
        elif not handed.delivered:
            for partition, (before, _) in handed.before.items():
                state = self.states.get(partition)
                if state is before.state and before.is_current and before.position is not None:
                    offsets[partition] = OffsetAndMetadata(before.position, "", before.epoch)
        return offsets

    def store(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Store positions to commit later. If a partition is not assigned, raises UsageError and stores nothing."""
        for state, at in [(self.state(partition), at) for partition, at in positions.items()]:
            state.stored = at

    def stored(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions that the application stored."""
        return {partition: state.stored for partition, state in sorted(self.states.items()) if state.stored is not None}

    # --- records that were taken by a poll, and have not reached the application ---

    def settle(self) -> Mapping[str, int]:
        """Make undelivered records of the last poll available again, at the beginning of a poll.

        Returns:
            Their number by topic.
        """
        handed, self._handed = self._handed, HandOut()
        self._take_turns(handed)
        if handed.is_divided:
            return self.put_back(handed)
        return {} if handed.delivered else self.take_back(handed)

    def _take_turns(self, handed: HandOut) -> None:
        """Reorder the partitions after a record that cannot be deserialized.

        The next poll raises its error, and later polls read the other partitions first. So the error is raised soon,
        and the other partitions are read even if the application does not seek past the record.
        """
        failed = handed.failed
        if failed is not None and failed in self._turn:
            self._turn.remove(failed)
            (self._turn.appendleft if handed.rest else self._turn.append)(failed)

    def put_back(self, handed: HandOut) -> Mapping[str, int]:
        """Seek to the records that an iterator or a poll has not returned. Return their number by topic."""
        left, first = handed.left(), handed.first_left()
        handed.records, handed.rest = (handed.records or [])[: handed.given], []
        for partition, at in first.items():
            if partition in self.states:
                self.states[partition].go_to(at.offset, at.leader_epoch)
        return Counter(record.topic for record in left)

    def take_back(self, handed: HandOut) -> Mapping[str, int]:
        """Put the records of a poll back before later ones and restore the positions. Return their number by topic."""
        for before, pieces in handed.before.values():
            state = before.state
            if before.is_current:
                state.ready.extendleft(reversed(pieces))
                state.position, state.epoch = before.position, before.epoch
                state.rewind.handed_out = before.handed_out
        return handed.by_topic()

    def one_by_one(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records of the last poll to the application one at a time."""
        self._handed = HandOut()
        return self._handed.one_by_one(records)

    # --- seeking and rewinding ---

    def seek(self, partition: tuple[str, int], offset: int, epoch: int = -1) -> None:
        """Continue at this offset. Raises UsageError."""
        state = self.state(partition)
        self._handed.forget(TopicPartition(*partition))
        state.rewind.sought(offset, epoch)
        state.go_to(offset, epoch)

    def with_topics(
        self, topics: Mapping[str, KnownTopic]
    ) -> Iterator[tuple[TopicPartition, PartitionState, KnownTopic | None]]:
        """Yield each partition with the metadata of its topic.

        A look-up for each partition of a topic would take most of the time of a poll.
        """
        name, known = "", None
        for partition, state in self.states.items():
            if partition.topic != name:
                name = partition.topic
                known = topics.get(name)
            yield partition, state, known

    def is_of(self, partition: TopicPartition, topic_id: UUID | None) -> bool:
        """Return false if the topic was deleted and created again. The position is then offset 0, its first record."""
        state = self.states[partition]
        if topic_id is None:
            return True
        before, state.topic_id = state.topic_id, topic_id
        if before is None or before == topic_id:
            return True
        self._handed.forget(partition)
        state.rewind.began(0, -1)
        state.stored = None
        state.go_to(0)
        return False

    def forget(self) -> None:
        """Forget all positions since the last commit. Every position has to be found again."""
        for state in self.states.values():
            state.go_to(None)
            state.stored = None
            state.rewind.handed_out = False
        for partition in self.states:
            self._handed.forget(partition)
        self.uncommitted_gone = False

    def attempted(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record that these positions may be committed from now on.

        Without any, the attempt is known to have failed.
        """
        for partition, state in self.states.items():
            at = positions.get(partition)
            state.rewind.attempted = NOTHING if at is None else at.offset

    def committed(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record that these positions are committed."""
        for partition, at in positions.items():
            state = self.states.get(partition)
            if state is not None:
                state.rewind.found(at.offset, at.leader_epoch)
                state.rewind.handed_out = state.position is not None and state.position > at.offset
        self.uncommitted_gone = False

    def missing(self) -> list[TopicPartition]:
        """Return the partitions whose position has to be found."""
        return [
            partition
            for partition, state in self.states.items()
            if state.position is None and not state.resetting and not state.revoking
        ]

    def versions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the versions of these positions. `unchanged` compares them later."""
        return {partition: self.states[partition].version for partition in partitions if partition in self.states}

    def unchanged(self, partition: TopicPartition, versions: Mapping[TopicPartition, int]) -> bool:
        """Return true if the position has not moved since its version was taken."""
        state = self.states.get(partition)
        return state is not None and state.version == versions.get(partition)

    def found(self, partition: TopicPartition, version: int, offset: int, epoch: int = -1) -> None:
        """Set a position that was searched at `version`, unless the partition is gone or was moved meanwhile."""
        state = self.states.get(partition)
        if state is not None and state.position is None and state.version == version:
            state.go_to(offset, epoch)

    def lag(self, partition: tuple[str, int], isolation: Isolation) -> int | None:
        """Return the number of offsets between position and end; None before the first fetch."""
        state = self.state(partition)
        end = state.end_offset(isolation)
        return None if end < 0 or state.position is None else max(end - state.position, 0)

    def distances(self, isolation: Isolation) -> dict[TopicPartition, tuple[int, int]]:
        """Return lag and lead of partitions that were fetched: the offsets from the position to the end and the start.

        Any thread may call it.
        """
        found = {}
        for partition, state in list(self.states.items()):
            end, position = state.end_offset(isolation), state.position
            if end >= 0 and position is not None:
                found[partition] = max(end - position, 0), max(position - state.log_start_offset, 0)
        return found

    def hand_out(self, most: int) -> HandOut:
        """Take up to `most` records, from the partitions in turn. Raises the error of a partition when its turn comes.

        Call `settle` first: the records of one poll are delivered or put back before another poll takes any.
        """
        handed = self._handed = HandOut()
        for _ in range(len(self._turn)):
            if most <= 0:
                break
            partition = self._turn[0]
            self._turn.rotate(-1)
            state = self.states[partition]
            if state.paused or state.revoking:
                continue
            if state.error is not None and not state.ready:
                if handed.pieces:
                    break  # the next poll raises it
                error, state.error = state.error, None
                raise error
            if not state.ready:
                continue
            before = _Before(state, state.version, state.position, state.epoch, state.rewind.handed_out)
            pieces: list[Fetched] = []
            handed.before[partition] = before, pieces
            most -= _take_ready(state, most, pieces)
            handed.pieces += pieces
        handed.delivered = not handed.pieces  # only markers and aborted records were passed
        return handed


def _take_ready(state: PartitionState, most: int, taken: list[Fetched]) -> int:
    """Move up to `most` records of a partition to `taken`. Return their number."""
    rows = 0
    while state.ready and rows < most:
        fetched = state.ready.popleft()
        if len(fetched.columns) > most - rows:
            fetched, rest = fetched.split(most - rows)
            state.ready.appendleft(rest)
        state.position = fetched.next_offset
        epoch = fetched.epoch_before(fetched.next_offset)
        if epoch >= 0:
            state.epoch = epoch
        if len(fetched.columns):
            state.rewind.handed_out = True
            rows += len(fetched.columns)
            taken.append(fetched)
    return rows


def normalised(positions: Mapping[K, OffsetAndMetadata | int]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the positions with all offsets and partitions as OffsetAndMetadata and TopicPartition."""
    return {
        TopicPartition(*partition): OffsetAndMetadata(at) if isinstance(at, int) else at
        for partition, at in positions.items()
    }
