"""Compaction: only the last record of each key remains, and offsets do not change.

The rules are Kafka's (KIP-58, KIP-98, KIP-354, KIP-534). Offsets from the last stable offset on, and the active
segment, are not touched. Tombstones, and markers of transactions without batches, are removed after their delete
horizon, which the first round that meets them sets. Aborted records are removed at once. The last batch of every
remembered producer remains, without its records if necessary, so that a scan of the log finds its epoch and last
sequence. Records without a key are removed, too: a compacted topic accepts none.

A round reads the dirty part into a map of keys, then rewrites every segment below it. It runs in small steps between
requests, in the one task that owns the log: there are no locks, and the log cannot change within a step. Steps are
limited by counted work instead of time, so that a simulated run can be repeated. A change between two steps (retention
removes a segment, the topic is deleted) ends the round with `Abandoned`. A thread would not be faster, because the work
is Python code.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from fencepost.broker.disk.changes import Change
from fencepost.broker.disk.files import File, changed_nothing
from fencepost.broker.log.cleaning.cleaned_transactions import CleanedTransactions
from fencepost.broker.log.cleaning.swap import announcing, announcing_indexes, discard, replace_segments
from fencepost.broker.log.layout import CLEANED, SWAP, CleanPoint
from fencepost.broker.log.recovery import marker_in
from fencepost.broker.log.results import CorruptSegment
from fencepost.broker.log.segment import Segment
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import BatchHeader, parse_header
from fencepost.protocol.records.walk import WalkedRecord, rebuild, rebuilding, records_of
from fencepost.values import Value

if TYPE_CHECKING:
    from fencepost.broker.log.partition import PartitionLog

__all__ = ["Abandoned", "Compaction", "CompactionPlan", "Step", "plan"]

Step = Sequence[File] | Change[None]
"""Files to sync, or a change to carry out."""

# A step is the work of this number of records, about half a millisecond. A batch counts as four records, each KiB as
# one.
_STEP_RECORDS: Final = 200
_BATCH_RECORDS: Final = 4
_STAGES: Final = 5  # of a replacement
_WRITE_BYTES: Final = 1 << 17
_LONG_KEY_BYTES: Final = 24
_RELATIVE_MAX: Final = 2**31 - 1


class Abandoned(Exception):
    """The log changed, so this round ends. No data is lost, and a later round starts again."""


class CompactionPlan(Value):
    """The work of a round. Offsets from dirty_offset to end_offset have not been compacted yet."""

    dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """True if dirty records are older than max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        """Fraction of dirty bytes among all that can be compacted."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def plan(log: PartitionLog, now_ms: int) -> CompactionPlan | None:
    """Return the work to do now, or None if it is too little or impossible. Raises OSError, CorruptSegment."""
    config = log.config
    if not config.compacted or log.read_only:
        return None
    dirty = log.clean_point.dirty_offset
    if not log.log_start_offset <= dirty <= log.log_end_offset:
        dirty = log.log_start_offset
    # Compact only below a snapshot on disk. Then no snapshot refers to a position in a rewritten segment.
    bound = min(log.last_stable_offset, log.segments[-1].base_offset, log.snapshots.newest)
    if config.min_compaction_lag_ms > 0:
        young = now_ms - config.min_compaction_lag_ms
        for segment in log.segments[:-1]:
            if segment.next_offset > dirty and segment.largest_timestamp() > young:
                bound = min(bound, segment.base_offset)
                break
    closed = [segment for segment in log.segments[:-1] if segment.next_offset <= bound and segment.size]
    clean = [segment for segment in closed if segment.next_offset <= dirty]
    fresh = closed[len(clean) :]
    if not fresh:
        return None
    overdue = False
    if config.max_compaction_lag_ms < now_ms:
        oldest = min((t for t in (segment.first_batch_timestamp() for segment in fresh) if t > 0), default=now_ms)
        overdue = oldest < now_ms - config.max_compaction_lag_ms
    found = CompactionPlan(dirty, fresh[-1].next_offset, _bytes_of(clean), _bytes_of(fresh), overdue)
    return found if overdue or found.ratio > config.min_cleanable_dirty_ratio else None


class Compaction:
    """One round over one log. Run `steps`, then read the counters."""

    def __init__(self, log: PartitionLog, compaction_plan: CompactionPlan, now_ms: int) -> None:
        self._log = log
        self._plan = compaction_plan
        self._now_ms = now_ms
        self._horizon_ms = now_ms + log.config.delete_retention_ms
        self._last: dict[bytes, int] = {}  # offset by key
        self._mapped_end = compaction_plan.end_offset
        self._work = 0
        self._target: Segment | None = None  # the segment being written
        self._transactions = CleanedTransactions([])
        self.is_swapping = False
        """True while a replacement is in progress. If it fails for lack of a descriptor, the next step continues it."""
        self.bytes_read = 0
        self.bytes_written = 0
        self.records_read = 0
        self.records_retained = 0
        self.clean_offset = compaction_plan.dirty_offset

    def steps(self) -> Iterator[Step]:
        """Yield steps of bounded work.

        Sync the yielded files, or carry out the yielded change, before the next step.

        Most steps yield nothing to do. Raises Abandoned, OSError, CorruptSegment. Call `discard` after an error, and if
        the round is not completed.
        """
        log = self._log
        yield from self._map_keys()
        segments = [segment for segment in log.segments[:-1] if segment.base_offset < self._mapped_end]
        if not segments:
            raise Abandoned("its segments are gone")
        end = segments[-1].next_offset
        yield log.moving_clean_point(CleanPoint(self._plan.dirty_offset, max(end, log.clean_point.gaps_below)))
        self._transactions = CleanedTransactions(log.aborted_between(log.segments[0].base_offset, end))
        for group in self._groups(segments):
            yield from self._clean(group)
        yield log.moving_clean_point(CleanPoint(self._mapped_end, log.clean_point.gaps_below))
        self.clean_offset = self._mapped_end

    def discard(self) -> None:
        """Remove the unfinished segment. Raises OSError."""
        target, self._target = self._target, None
        if target is not None:
            target.close()
            if not self._log.closed:
                discard(self._log.files, self._log.directory, target.base_offset)

    # First pass

    def _map_keys(self) -> Iterator[Step]:
        log, start = self._log, self._plan.dirty_offset
        transactions = CleanedTransactions(log.aborted_between(start, self._plan.end_offset))
        dirty = [s for s in log.segments[:-1] if s.next_offset > start and s.base_offset < self._plan.end_offset]
        for segment in dirty:
            position, base = segment.locate(start)[:2] if segment.base_offset < start else (0, segment.base_offset)
            for at, header, batch in segment.intact(position, base):
                if header.is_control:
                    transactions.marker(header, marker_in(header, batch, segment, at))
                elif not transactions.is_aborted(header) and header.last_offset >= start:
                    if len(self._last) >= log.config.compaction_keys_max:
                        self._mapped_end = header.base_offset
                        return
                    for number, record in enumerate(_records(header, batch, segment, at), 1):
                        if record.key is not None and record.offset >= start:
                            self._last[_short(record.key)] = record.offset
                        if number % _STEP_RECORDS == 0:
                            yield ()
                            self._check([segment])
                if self._is_enough(header, len(batch)):
                    yield ()
                    self._check([segment])

    # Second pass

    def _groups(self, segments: Sequence[Segment]) -> list[list[Segment]]:
        """Return groups of neighbours that fit into one segment."""
        config = self._log.config
        groups: list[list[Segment]] = []
        for segment in segments:
            group = groups[-1] if groups else []
            fits = _bytes_of(group) + segment.size <= config.segment_bytes
            if group and fits and segment.next_offset - group[0].base_offset <= _RELATIVE_MAX:
                group.append(segment)
            else:
                groups.append([segment])
        return groups

    def _clean(self, group: list[Segment]) -> Iterator[Step]:
        log, base = self._log, group[0].base_offset
        self._check(group)
        self._target = target = Segment(log.files, log.directory, base, CLEANED)
        if target.size:  # left by a round that was given up
            target.log.truncate(0)
            target.size = 0
        target.reset_indexes()
        pending: list[Buffer] = []
        waiting = 0
        for segment in group:
            for at, header, batch in segment.intact(0, segment.base_offset):
                is_end = segment is group[-1] and header.last_offset + 1 == segment.next_offset
                if header.is_control:
                    cleaned = self._filtered_marker(header, batch, segment, at, target, is_end)
                else:
                    records: list[WalkedRecord] = []
                    all_valued = True
                    for number, record in enumerate(self._records_of(header, batch, segment, at), 1):
                        if self._stays(header, record):
                            records.append(record)
                            all_valued = all_valued and record.has_value
                        if number % _STEP_RECORDS == 0:
                            yield ()
                            self._check(group)
                    cleaned = yield from self._rebuilt(header, batch, records, is_end, all_valued=all_valued)
                    self._check(group)
                if cleaned is not None:
                    target.index_batch(
                        parse_header(cleaned), target.size, len(cleaned), log.config.index_interval_bytes
                    )
                    target.size += len(cleaned)
                    pending.append(bytes(cleaned))
                    waiting += len(cleaned)
                if waiting >= _WRITE_BYTES:
                    target.log.append(*pending)
                    pending, waiting = [], 0
                if self._is_enough(header, len(batch)):
                    yield ()
                    self._check(group)
        if pending:
            target.log.append(*pending)
        target.aborted.create()
        target.flush_indexes(final=True)
        self.bytes_written += target.size
        yield [target.log, *target.index_files()]
        yield from self._swapping(group, target)

    def _swapping(self, group: list[Segment], target: Segment) -> Iterator[Step]:
        """Replace the group by the new segment. A change that failed without an effect is tried again."""
        stages = deque(self._stages(group, target))
        while stages:
            self.is_swapping = True
            yield self._through(stages)
        self.is_swapping = False

    def _through(self, stages: deque[Callable[[], Change[None]]]) -> Change[None]:
        """Carry out the stages.

        Changes of a log's files run one at a time, so no other change can remove the group's segments before the last
        stage, unless a stage fails. Between the stages records are appended and read.

        Raises:
            OSError: The disk failed.
            Abandoned: The log changed.
        """
        try:
            while stages:
                yield from stages[0]()
                stages.popleft()
        except Exception as error:
            if isinstance(error, Abandoned) and (len(stages) == _STAGES or self._log.closed):
                raise
            if not (isinstance(error, OSError) and changed_nothing(error)):
                # The next start finds out if the old or the new segments are valid.
                self._log.sync_failed(error if isinstance(error, OSError) else OSError(str(error)))
            raise

    def _stages(self, group: list[Segment], target: Segment) -> Iterator[Callable[[], Change[None]]]:
        """Yield the stages of a replacement. Each can be repeated after a call that has changed nothing."""
        log, base, end = self._log, group[0].base_offset, group[-1].next_offset
        new: list[Segment] = []

        def begin() -> Change[None]:
            self._check(group)
            target.close()
            log.snapshots.keep_from(end)
            yield from announcing_indexes(log.files, log.directory, base)

        def announce() -> Change[None]:
            self._check_begun(group)
            yield from announcing(log.files, log.directory, base)

        def replace() -> Change[None]:
            self._check_begun(group)
            self._target = None
            new.append(self._replace(group, end))  # first: if a later stage fails, the log reads the new segment
            for segment in group:
                log.snapshots.forget_files(segment.open_index_files())
                segment.close()
            yield from ()

        def take() -> Change[None]:
            replace_segments(log.files, log.directory, base, [segment.base_offset for segment in group[1:]])
            yield partial(log.files.sync_directory, log.directory)

        def name() -> Change[None]:
            self._check_begun(new)
            new[0].take_name()
            yield partial(log.files.sync_directory, log.directory)

        yield from (begin, announce, replace, take, name)

    def _replace(self, group: list[Segment], end: int) -> Segment:
        """Let the log read the new segment, whose log file still has its temporary name."""
        log = self._log
        new = Segment(log.files, log.directory, group[0].base_offset, log_suffix=SWAP)
        new.next_offset, new.gaps_below = end, log.clean_point.gaps_below
        new.touched_ms = max(segment.touched_ms for segment in group)
        number = log.segments.index(group[0])
        log.segments[number : number + len(group)] = [new]
        return new

    def _records_of(self, header: BatchHeader, batch: memoryview, segment: Segment, at: int) -> Iterator[WalkedRecord]:
        """Yield the records of a batch, unless its transaction is aborted."""
        return iter(()) if self._transactions.is_aborted(header) else _records(header, batch, segment, at)

    def _rebuilt(
        self, header: BatchHeader, batch: memoryview, retained: list[WalkedRecord], is_end: bool, *, all_valued: bool
    ) -> Generator[Step, None, Buffer | None]:
        """Return the batch that replaces the old one."""
        self.records_read += header.record_count
        self.records_retained += len(retained)
        if not retained:
            return rebuild(header, ()) if is_end or self._is_last_of_producer(header) else None
        horizon = header.base_timestamp if header.has_delete_horizon else -1
        if horizon < 0 and not all_valued:
            horizon = self._horizon_ms
        elif len(retained) == header.record_count:
            return batch
        return (yield from rebuilding(header, retained, horizon_ms=horizon, at_once=_STEP_RECORDS))

    def _filtered_marker(
        self, header: BatchHeader, batch: memoryview, segment: Segment, at: int, target: Segment, is_end: bool
    ) -> Buffer | None:
        marker = marker_in(header, batch, segment, at)
        removable, aborted = self._transactions.marker(header, marker)
        if aborted is not None:
            target.aborted.add(aborted)
        if not removable:
            return batch
        if marker is not None and not header.has_delete_horizon:
            return rebuild(header, list(_records(header, batch, segment, at)), horizon_ms=self._horizon_ms)
        over = marker is None or header.base_timestamp <= self._now_ms
        return None if over and not is_end and not self._is_last_of_producer(header) else batch

    def _stays(self, header: BatchHeader, record: WalkedRecord) -> bool:
        if record.offset >= self._mapped_end:
            return True
        if record.key is None or record.offset < self._last.get(_short(record.key), -1):
            return False
        return record.has_value or not header.has_delete_horizon or self._now_ms < header.base_timestamp

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        state = self._log.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if state is None:
            return False
        if state.last_offset >= 0:
            return header.last_offset == state.last_offset
        return header.is_control and header.producer_epoch == state.epoch

    # Both

    def _is_enough(self, header: BatchHeader, size: int) -> bool:
        """Return true if this batch completes a step. Whole steps within a large batch are already counted."""
        self.bytes_read += size
        self._work += _BATCH_RECORDS + header.record_count % _STEP_RECORDS + (size >> 10)
        if self._work < _STEP_RECORDS:
            return False
        self._work = 0
        return True

    def _check(self, segments: Sequence[Segment]) -> None:
        """Raise Abandoned if a segment no longer belongs to the log, or if the log is read-only."""
        if self._log.read_only:
            raise Abandoned("the log is read-only")
        self._check_begun(segments)

    def _check_begun(self, segments: Sequence[Segment]) -> None:
        """Raise Abandoned if a replacement that has begun cannot continue.

        A failed append makes the log read-only for a while. The replacement continues then, because it does not touch
        the active segment.
        """
        if self._log.has_failed_sync or self._log.closed:
            raise Abandoned("the log is closed, or its state on the disk is unknown")
        if any(segment not in self._log.segments for segment in segments):
            raise Abandoned("its segments are gone")


def _records(header: BatchHeader, batch: memoryview, segment: Segment, at: int) -> Iterator[WalkedRecord]:
    try:
        yield from records_of(header, batch)
    except CorruptBatch as error:
        raise CorruptSegment(segment.path, at, str(error)) from error


def _short(key: bytes) -> bytes:
    """Return the key, or a digest of a long one."""
    return key if len(key) <= _LONG_KEY_BYTES else b"#" + hashlib.blake2b(key, digest_size=_LONG_KEY_BYTES).digest()


def _bytes_of(segments: Sequence[Segment]) -> int:
    return sum(segment.size for segment in segments)
