"""A share group's state in a partition (KIP-932): the delivery state of each record and its lock.

The code is pure; times are parameters. The *window* begins with the first record that is not done, and ends before the
first that was never delivered. Acknowledgements become `Changes`. They are decided here, written to the log as a
snapshot by the caller, and then applied. Deliveries and locks are not written: a restarted broker delivers those
records again, and does not count the earlier delivery.

Source: `SharePartition` of Apache Kafka 4.3.1. Differences: states are kept by record, not by batch. Gaps left by
compaction, markers and aborted records are archived when they are read, without an acknowledgement of a member. A
record near its delivery limit is not delivered alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fencepost.broker.share.states import TERMINAL, RecordEvent, RecordState, record_step
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.share_state_log import ShareSnapshot, StateBatch

__all__ = ["Acknowledgement", "AcquiredRange", "Changes", "ShareLimits", "SharePartition", "Span"]

_EVENTS: Final = {
    0: RecordEvent.MISSING,
    1: RecordEvent.ACCEPTED,
    2: RecordEvent.RELEASED,
    3: RecordEvent.REJECTED,
    4: RecordEvent.RENEWED,
}
"""Event by the acknowledge type on the wire."""


class ShareLimits(NamedTuple):
    """Limits of the group: deliveries of a record, locked records, and the duration of a lock in ms."""

    deliveries: int
    locks: int
    lock_ms: int


class Span(NamedTuple):
    """A batch that was read, both offsets included. With `missing` none of its records can be delivered."""

    first_offset: int
    last_offset: int
    missing: bool = False


class AcquiredRange(NamedTuple):
    """Delivered records, both offsets included, and their delivery count with this delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """A member's acknowledgement of records, both offsets included: one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


Changes = dict[int, RecordEvent]
"""Events by offset."""


@dataclass(slots=True)
class _Record:
    state: RecordState
    deliveries: int
    member_id: str = ""
    locked_until_ms: int = 0


class SharePartition:
    """A share group's state in one partition, as of its last snapshot."""

    __slots__ = ("_first_free", "_locks", "_records", "acquired", "end_offset", "start_offset", "state_epoch")

    def __init__(self, snapshot: ShareSnapshot) -> None:
        self.state_epoch = snapshot.state_epoch
        self.start_offset = self.end_offset = snapshot.start_offset
        self._records: dict[int, _Record] = {}  # the whole window, by offset
        self._locks: list[tuple[int, int, int]] = []  # a heap of (until, first, last)
        self._first_free = snapshot.start_offset  # no record before it is available
        self.acquired = 0
        for batch in snapshot.batches:
            self._extend(batch.first_offset, RecordState.AVAILABLE, 0)
            self._extend(batch.last_offset + 1, RecordState(batch.state), batch.delivery_count)
        self._drop_done()

    @property
    def window(self) -> int:
        """Number of records in the window."""
        return len(self._records)

    def lag(self, end: int) -> int:
        """Return the number of offsets before `end` that are not done (KIP-1226)."""
        done = sum(record.state in TERMINAL for record in self._records.values())
        return max(0, end - self.start_offset - done)

    def next_offset(self, limits: ShareLimits) -> int | None:
        """Return the offset from which to read next; None while the maximum number of records is locked."""
        for offset in range(self._first_free, self.end_offset):
            if self._records[offset].state is RecordState.AVAILABLE:
                self._first_free = offset
                return offset
        self._first_free = self.end_offset
        return self.end_offset if self.acquired < limits.locks else None

    def acquire(
        self,
        now_ms: int,
        member_id: str,
        spans: Iterable[Span],
        most_records: int,
        limits: ShareLimits,
        *,
        strict: bool,
    ) -> list[AcquiredRange]:
        """Deliver about `most_records` available records of batches that were read from `next_offset` on.

        With `strict` the number is not exceeded; otherwise the batch in which it is reached is delivered completely.
        """
        offset = self.next_offset(limits)
        until_ms = now_ms + limits.lock_ms
        ranges: list[AcquiredRange] = []
        count = 0
        for span in spans:
            if (
                offset is None
                or count >= most_records
                or (span.last_offset >= self.end_offset and not self._room(limits))
            ):
                break
            self._give_up(offset, span.first_offset)
            first = max(offset, span.first_offset)
            offset = max(offset, span.last_offset + 1)
            if span.missing:
                self._give_up(first, offset)
                continue
            end = offset
            if strict:
                end = min(end, first + most_records - count)
            for acquired in self._take(first, end, member_id, until_ms):
                ranges.append(acquired)
                count += acquired.last_offset - acquired.first_offset + 1
        self._drop_done()
        return ranges

    def decide_acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], limits: ShareLimits
    ) -> Changes | ErrorCode:
        """Return the changes for a member's acknowledgements, or an error: it may acknowledge only its own records.

        Records before the window are done; acknowledgements of them are ignored.
        """
        changes: Changes = {}
        for batch in acknowledgements:
            if batch.last_offset < self.start_offset:
                continue
            if batch.last_offset >= self.end_offset:
                return ErrorCode.INVALID_REQUEST
            for offset in range(max(batch.first_offset, self.start_offset), batch.last_offset + 1):
                record = self._records[offset]
                if record.state is not RecordState.ACQUIRED or record.member_id != member_id:
                    return ErrorCode.INVALID_RECORD_STATE
                kind = batch.types[0] if len(batch.types) == 1 else batch.types[offset - batch.first_offset]
                event = _EVENTS[kind]
                changes[offset] = self._given_back(record, limits) if event is RecordEvent.RELEASED else event
        return changes

    def decide_release(self, member_id: str, limits: ShareLimits) -> Changes:
        """Return the changes that release all records of a member that is gone."""
        return {
            offset: self._given_back(record, limits)
            for offset, record in self._records.items()
            if record.state is RecordState.ACQUIRED and record.member_id == member_id
        }

    def decide_expiry(self, now_ms: int, limits: ShareLimits) -> Changes:
        """Return the changes that release records whose lock has expired."""
        changes: Changes = {}
        for until_ms, first, last in self._locks:
            for offset in range(max(first, self.start_offset), last + 1) if until_ms <= now_ms else ():
                record = self._records[offset]
                if record.state is RecordState.ACQUIRED and record.locked_until_ms <= now_ms:
                    changes[offset] = self._given_back(record, limits)
        return changes

    def forget_locks(self, now_ms: int) -> None:
        """Remove expired locks after their changes were applied."""
        while self._locks and self._locks[0][0] <= now_ms:
            heapq.heappop(self._locks)

    def next_expiry_ms(self) -> int | None:
        """Return the time at which a lock may expire next, or None."""
        return self._locks[0][0] if self._locks else None

    def postpone(self, by_ms: int) -> None:
        """Move all locks later after a jump of time."""
        self._locks = [(until + by_ms, first, last) for until, first, last in self._locks]
        for record in self._records.values():
            record.locked_until_ms += by_ms

    def move_start(self, log_start_offset: int) -> bool:
        """Move the start to a later log start; records before it are dropped. Return true if it moved."""
        if log_start_offset <= self.start_offset:
            return False
        for offset in range(self.start_offset, min(log_start_offset, self.end_offset)):
            self.acquired -= self._records.pop(offset).state is RecordState.ACQUIRED
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        self._first_free = max(self._first_free, log_start_offset)
        return True

    def snapshot(self, changes: Changes, now_ms: int) -> ShareSnapshot:
        """Return the snapshot to write for these changes."""
        start = self.start_offset
        batches: list[StateBatch] = []
        complete = 0
        for offset, state, deliveries in self._as_stored(changes):
            done = state in TERMINAL
            if done and offset == start:
                start += 1
                continue
            complete += done
            if state is RecordState.AVAILABLE and deliveries == 0:
                continue
            last = batches[-1] if batches else None
            if last is not None and (last.last_offset, last.state, last.delivery_count) == (
                offset - 1,
                state,
                deliveries,
            ):
                batches[-1] = StateBatch(last.first_offset, offset, state, deliveries)
            else:
                batches.append(StateBatch(offset, offset, state, deliveries))
        return ShareSnapshot(self.state_epoch, start, tuple(batches), complete, now_ms)

    def apply(self, changes: Changes, locked_until_ms: int) -> None:
        """Apply the changes. Renewed locks last until `locked_until_ms`."""
        for offset, event in changes.items():
            record = self._records[offset]
            self._step(record, event)
            if event is RecordEvent.RENEWED:
                record.locked_until_ms = locked_until_ms
            elif record.state is RecordState.AVAILABLE:
                self._first_free = min(self._first_free, offset)
        renewed = [offset for offset, event in changes.items() if event is RecordEvent.RENEWED]
        if renewed:
            heapq.heappush(self._locks, (locked_until_ms, min(renewed), max(renewed)))
        self._drop_done()

    def _as_stored(self, changes: Changes) -> Iterator[tuple[int, RecordState, int]]:
        """Yield (offset, state, deliveries) of the window. A locked record is stored as available and not delivered."""
        for offset, record in self._records.items():
            event = changes.get(offset)
            state = record.state if event is None else record_step(record.state, event)
            if state is RecordState.ACQUIRED:
                yield offset, RecordState.AVAILABLE, record.deliveries - 1
            else:
                yield offset, state, record.deliveries

    def _room(self, limits: ShareLimits) -> bool:
        return self.acquired < limits.locks

    def _given_back(self, record: _Record, limits: ShareLimits) -> RecordEvent:
        return RecordEvent.EXHAUSTED if record.deliveries >= limits.deliveries else RecordEvent.RELEASED

    def _extend(self, end: int, state: RecordState, deliveries: int) -> None:
        """Extend the window to `end`; new records have this state."""
        for offset in range(self.end_offset, end):
            self._records[offset] = _Record(state, deliveries)
        self.end_offset = max(self.end_offset, end)

    def _give_up(self, first: int, end: int) -> None:
        """Archive the available records from `first` to before `end`, which cannot be delivered."""
        self._extend(end, RecordState.AVAILABLE, 0)
        for offset in range(first, end):
            record = self._records[offset]
            if record.state is RecordState.AVAILABLE:
                self._step(record, RecordEvent.MISSING)

    def _take(self, first: int, end: int, member_id: str, until_ms: int) -> Iterator[AcquiredRange]:
        """Deliver the available records from `first` to before `end`, in runs of equal delivery counts."""
        self._extend(end, RecordState.AVAILABLE, 0)
        run: AcquiredRange | None = None
        for offset in range(first, end):
            record = self._records[offset]
            if record.state is not RecordState.AVAILABLE:
                continue
            self._step(record, RecordEvent.HANDED_OUT)
            record.deliveries += 1
            record.member_id, record.locked_until_ms = member_id, until_ms
            if run is not None and (run.last_offset, run.delivery_count) == (offset - 1, record.deliveries):
                run = run._replace(last_offset=offset)
                continue
            if run is not None:
                yield run
            run = AcquiredRange(offset, offset, record.deliveries)
        if run is not None:
            heapq.heappush(self._locks, (until_ms, first, end - 1))
            yield run

    def _step(self, record: _Record, event: RecordEvent) -> None:
        before = record.state
        record.state = record_step(before, event)
        self.acquired += (record.state is RecordState.ACQUIRED) - (before is RecordState.ACQUIRED)

    def _drop_done(self) -> None:
        """Move the start of the window to the first record that is not done."""
        while self.start_offset < self.end_offset and self._records[self.start_offset].state in TERMINAL:
            del self._records[self.start_offset]
            self.start_offset += 1
        self._first_free = max(self._first_free, self.start_offset)
