"""What a consumer reads, and where reading of each partition stands. No I/O: the fetcher and the positions use it.

Positions move when records are handed out, not when they are fetched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from fencepost.client.records import Fetched
from fencepost.client.types import Isolation, OffsetAndMetadata, TopicPartition
from fencepost.errors import KafkaError, UsageError

ROUNDS_AHEAD: Final = 2  # fetched answers of one partition that may wait: the one being handed out, and the next


class Place:
    """Where reading of one partition stands.

    `epoch` is the leader epoch of the record before `position`, `fetch_epoch` that before `fetch_offset` (-1: not
    known); `checked_epoch` is the leader's epoch under which the position was last known to be in the log.
    """

    __slots__ = (
        "checked_epoch",
        "checking",
        "epoch",
        "error",
        "fetch_epoch",
        "fetch_offset",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "not_before_ms",
        "paused",
        "position",
        "ready",
        "replica",
        "replica_until_ms",
        "resetting",
        "revoking",
        "tries",
        "version",
        "why",
    )

    def __init__(self) -> None:
        self.position: int | None = None  # of the next record to hand out; None: not known yet
        self.epoch = -1
        self.fetch_offset = -1
        self.fetch_epoch = -1
        self.checked_epoch = -1
        self.checking = False
        self.ready: deque[Fetched] = deque()
        self.paused = False
        self.revoking = False  # about to be given up: nothing more is handed out
        self.resetting = False  # its position comes from auto_offset_reset, not from the group's commits
        self.version = 0  # raised by seek, so that older fetches are forgotten
        self.error: KafkaError | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.replica = -1  # the follower to fetch from (KIP-392)
        self.replica_until_ms = 0
        self.tries = 0  # fetches in a row that were refused, and when to fetch again
        self.not_before_ms = 0
        self.why = "it was not looked for yet"

    def go_to(self, offset: int | None, epoch: int = -1) -> None:
        """Read on from there; what was fetched is dropped."""
        self.position = offset
        self.epoch = self.fetch_epoch = epoch
        self.fetch_offset = -1 if offset is None else offset
        self.checked_epoch = -1
        self.ready.clear()
        self.version += 1
        self.error = None

    def end_offset(self, isolation: Isolation) -> int:
        """Behind the last record that this reader may see, as the last fetch told; -1 before there was one."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark

    @property
    def wants_more(self) -> bool:
        """Whether to fetch."""
        return (
            self.position is not None
            and not self.paused
            and not self.revoking
            and not self.checking
            and self.error is None
            and len(self.ready) < ROUNDS_AHEAD
        )


class Reading:
    """The assigned partitions."""

    def __init__(self) -> None:
        self.places: dict[TopicPartition, Place] = {}
        self._turn: deque[TopicPartition] = deque()  # who is served next
        self._paused_before: set[TopicPartition] = set()

    def assigned(self) -> list[TopicPartition]:
        """In order."""
        return sorted(self.places)

    def take(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these too. What was paused when it was given up last, and comes back at once, is paused again."""
        for one in partitions:
            if one not in self.places:
                self.places[one] = Place()
                self.places[one].paused = one in self._paused_before
        self._paused_before = set()
        self._turn = deque(sorted(self.places))

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no more."""
        for one in partitions:
            gone = self.places.pop(one, None)
            if gone is not None and gone.paused:
                self._paused_before.add(one)
        self._turn = deque(sorted(self.places))

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these; what stays keeps its position."""
        wanted = list(partitions)
        self.drop([one for one in self.places if one not in wanted])
        self._paused_before = set()
        self.take(wanted)

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing more of these; `drop` follows."""
        for one in partitions:
            if one in self.places:
                self.places[one].revoking = True

    def place(self, one: tuple[str, int]) -> Place:
        """Raises UsageError."""
        found = self.places.get(TopicPartition(*one))
        if found is None:
            raise UsageError(f"{one[0]}-{one[1]} is not assigned")
        return found

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit now, per partition with a known position."""
        return {
            one: OffsetAndMetadata(place.position, "", place.epoch)
            for one, place in sorted(self.places.items())
            if place.position is not None
        }

    def missing(self) -> list[TopicPartition]:
        """Partitions whose position has to be found."""
        return [
            one
            for one, place in self.places.items()
            if place.position is None and not place.resetting and not place.revoking
        ]

    def found(self, one: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Take a position that was looked for, unless the partition is gone or a seek was faster."""
        place = self.places.get(one)
        if place is not None and place.position is None:
            place.go_to(offset, epoch)

    def lag(self, one: tuple[str, int], isolation: Isolation) -> int | None:
        """Records (offsets, to be exact) between the position and the end; None before the first fetch."""
        place = self.place(one)
        end = place.end_offset(isolation)
        return None if end < 0 or place.position is None else max(end - place.position, 0)

    def hand_out(self, most: int) -> list[Fetched]:
        """Up to `most` records, partitions in turn. Raises the error of a partition when it is that one's turn."""
        got: list[Fetched] = []
        for _ in range(len(self._turn)):
            if most <= 0:
                break
            one = self._turn[0]
            self._turn.rotate(-1)
            place = self.places[one]
            if place.paused or place.revoking:
                continue
            if place.error is not None and not place.ready:
                if got:
                    break  # it comes with the next poll
                error, place.error = place.error, None
                raise error
            most -= _from_place(place, most, got)
        return got


def _from_place(place: Place, most: int, got: list[Fetched]) -> int:
    """Move up to `most` records of a place to `got`; how many."""
    rows = 0
    while place.ready and rows < most:
        fetched = place.ready.popleft()
        if len(fetched.columns) > most - rows:
            fetched, rest = fetched.split(most - rows)
            place.ready.appendleft(rest)
        place.position = fetched.next_offset
        epoch = fetched.epoch_before(fetched.next_offset)
        if epoch >= 0:
            place.epoch = epoch
        if len(fetched.columns):
            rows += len(fetched.columns)
            got.append(fetched)
    return rows


def normalised(positions: Mapping[TopicPartition, OffsetAndMetadata | int]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Bare offsets and plain tuples as what they stand for."""
    return {TopicPartition(*one): OffsetAndMetadata(at) if isinstance(at, int) else at for one, at in positions.items()}
