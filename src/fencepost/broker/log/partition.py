"""One partition's log: append, read, and the offsets that bound reads.

A client's batches are checked record by record (`validate.py`) and stored unchanged, except for base offset and leader
epoch (always 0), which are outside the CRC. One append is one write to one file. Not thread-safe: one owner calls it;
only the files from `unsynced()` may be synced elsewhere.

After a crash the log alone decides: indexes and producer snapshots are written after the bytes they describe, and are
rebuilt from them if they are missing or damaged. Not supported: replication, and leader epochs other than 0. Compaction
(`cleaning/compaction.py`) replaces closed segments from outside.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from operator import attrgetter, itemgetter

from fencepost.broker.disk.changes import Begin, Change, carry_out
from fencepost.broker.disk.files import File, Files, is_full
from fencepost.broker.log.aborted import Aborted
from fencepost.broker.log.batch_walk import LEADER_EPOCH
from fencepost.broker.log.cleaning.swap import write_clean_point
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.fresh_files import FreshFiles
from fencepost.broker.log.index import RecentBatches
from fencepost.broker.log.layout import CleanPoint
from fencepost.broker.log.producers.idempotence import NEWEST_PRODUCE, BatchFacts, ProducerRefusal
from fencepost.broker.log.producers.joint_append import CheckedBatch, JointAppend
from fencepost.broker.log.producers.snapshot import LogPosition, SegmentSeal
from fencepost.broker.log.producers.snapshot_files import SnapshotKeeper
from fencepost.broker.log.producers.snapshot_pace import SnapshotPace
from fencepost.broker.log.producers.table import ProducerTable, facts_of
from fencepost.broker.log.read_bounds import ReadBounds, slice_of
from fencepost.broker.log.recovery import Recovered, aborted_between, claim, keep_indexes, make_durable, recover
from fencepost.broker.log.recovery_points import RecoveryPoint
from fencepost.broker.log.results import Appended, CorruptSegment, Duplicate, ReadResult, RecoveryReport, Rejected
from fencepost.broker.log.segment import LoadedIndexes, Segment
from fencepost.broker.log.timestamps import first_at_or_after, newest
from fencepost.broker.log.validate import Decompress, Flaw, admitted
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.records.batch import LENGTH_PREFIX_BYTES, NO_SEQUENCE, BatchHeader, with_log_fields
from fencepost.protocol.records.check import Checked
from fencepost.protocol.records.encoding import encode_pairs
from fencepost.protocol.records.markers import Marker, encode_marker
from fencepost.protocol.records.plain import Pairs
from fencepost.protocol.records.walk import section_of

__all__ = ["PartitionLog"]

_new = tuple.__new__


class PartitionLog:
    """One partition's log. Open it with `PartitionLog.open`.

    OSError never leaves `append`, `append_marker`, `append_internal` and `read`: they answer KAFKA_STORAGE_ERROR (56),
    and `failure` has the last cause.
    """

    def __init__(self, files: Files, directory: str, config: LogConfig, recovered: Recovered, begin: Begin) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.clean_point: CleanPoint = recovered.clean_point
        self.closed = False
        self.report: RecoveryReport = recovered.report.shared()
        self.segments: list[Segment] = recovered.segments
        self.producers: ProducerTable = recovered.producers
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = self.segments[-1].next_offset
        self.high_watermark = self.log_end_offset
        self.synced_offset = self.log_end_offset
        self.failure: OSError | None = None
        self._point: RecoveryPoint | None = None
        self._fresh = FreshFiles()
        self.start_pending = False  # retention removed segments, and the full disk refused the new log start
        self.has_failed_sync = self._torn = False  # torn: a failed append may have left bytes in the active file
        self.snapshots = SnapshotKeeper(files, directory, recovered.snapshots)
        self._begin = begin
        self._is_writing = False  # a snapshot is being written, or about to be
        self._pace = SnapshotPace(self.producers)
        self._recent = RecentBatches()  # of the active segment
        self._loaded = LoadedIndexes()

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        config: LogConfig,
        now_ms: int,
        *,
        clean: bool = False,
        topic_id: uuid.UUID | None = None,
        point: RecoveryPoint | None = None,
        begin: Begin = carry_out,
    ) -> PartitionLog:
        """Open or create the log. Raises OSError.

        `clean`: the last owner closed it, so the scan should find nothing; `report` shows the result. `point`: the
        recovery point to update. `begin`: carries out writes that no request waits for.
        """
        files.makedirs(directory)
        claimed = None if topic_id is None else claim(files, directory, topic_id)
        recovered = recover(files, directory, config, clean=clean, synced=-1 if point is None else point.offset)
        log = cls(files, directory, config, recovered, begin)
        log._fresh, log._point = FreshFiles([claimed, recovered.fresh]), point
        if config.fsync == "never":
            log._fresh.forget()
        for segment in log.segments:
            segment.touched_ms = now_ms
        report = recovered.report
        if report.scanned_bytes or report.cuts or report.removed_files or report.damaged:
            if config.fsync != "never":
                make_durable(recovered, point)
            try:
                keep_indexes(recovered, durably=config.fsync != "never")
                log._take_snapshot()
            except OSError as error:
                if not is_full(error):
                    raise
                log.failure = error
            log._sync_now()
        elif log.log_end_offset:
            log._synced(log.log_end_offset)  # a power loss may have left an older point
        log.remove_below(log.log_start_offset)
        return log

    @property
    def last_stable_offset(self) -> int:
        """First offset of the earliest transaction without a durable marker, or the high watermark."""
        unstable = self.producers.first_unstable_offset()
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    # Appending

    def append(
        self,
        batch: Buffer,
        now_ms: int,
        *,
        produce_version: int = NEWEST_PRODUCE,
        decompress: Decompress = section_of,
        header: BatchHeader | None = None,
        checked: Checked | None = None,
    ) -> Appended | Duplicate | Rejected:
        """Append a client's batch: see `admitted` and `check_batch`. If `decompress` raises, nothing changes."""
        config, producers = self.config, self.producers
        found = admitted(batch, config, now_ms, decompress, header, checked)
        if isinstance(found, Flaw):
            return found.rejected(self.log_start_offset)
        (header, batch), unknown, earlier, facts, state = found, False, False, None, None
        if header.producer_id >= 0:
            facts, state = facts_of(header), producers.get(header.producer_id)
            kafka_rules = config.producer_state_check == "kafka"
            verdict = producers.check(state, facts, produce_version=produce_version, kafka_rules=kafka_rules)
            if verdict is not None:
                if isinstance(verdict, ProducerRefusal):
                    return self._refused(verdict)
                _, _, base_offset, last_offset, timestamp_ms = verdict.batch
                return Duplicate(base_offset, last_offset, timestamp_ms, self.log_start_offset)
            if header.base_sequence != 0 and state is None:
                unknown = not (earlier := producers.is_earlier(header.producer_id))
        append_time = now_ms if config.message_timestamp_type == "LogAppendTime" else -1
        timestamp_ms = header.max_timestamp if append_time < 0 else append_time
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        parts = with_log_fields(header, batch, base_offset, LEADER_EPOCH, append_time)
        size = LENGTH_PREFIX_BYTES + header.batch_length
        if (refused := self._write(parts, size, last_offset, timestamp_ms, now_ms)) is not None:
            return refused
        self._note(last_offset, timestamp_ms, size)
        if facts is not None:
            producers.note_batch(facts, base_offset, last_offset, timestamp_ms, state)
        self._appended(size)
        return _new(Appended, (base_offset, last_offset, append_time, self.log_start_offset, unknown, earlier))

    def append_together(self, batches: Sequence[CheckedBatch], now_ms: int, *, produce_version: int) -> list[Appended]:
        """Append the first ones with one write, as `append` does one by one. `append` must take the others.

        Return their results: none if the write fails. See `JointAppend`.
        """
        joint = JointAppend(self.config, self.producers, self.segments[-1], self.log_start_offset)
        if self.read_only or not joint.take(batches, now_ms, produce_version, *self._pace.room(self.config)):
            return []
        if self._write(joint.parts, joint.size, joint.end_offset - 1, joint.newest_ms, now_ms) is not None:
            return []
        for last_offset, timestamp_ms, size in joint.batches:
            self._note(last_offset, timestamp_ms, size)
        self.producers.keep(joint.drafts)
        self._appended(joint.size, len(joint.batches))
        return joint.results

    def append_internal(
        self, records: Pairs, now_ms: int, *, producer_id: int = -1, producer_epoch: int = -1
    ) -> Appended | Rejected:
        """Append records (key, value) of the broker's own as one batch, transactionally if a producer is given."""
        facts = None
        if producer_id >= 0:
            facts = BatchFacts(producer_id, producer_epoch, NO_SEQUENCE, NO_SEQUENCE, transactional=True)
            state = self.producers.get(producer_id)
            lowest = max(state.epoch if state else -1, self.producers.fences.get(producer_id, -1))
            if producer_epoch < lowest:
                return Rejected(ErrorCode.INVALID_PRODUCER_EPOCH, -1, f"epoch {producer_epoch} is older than {lowest}")
        first = self.log_end_offset
        batch = encode_pairs(
            records,
            now_ms,
            base_offset=first,
            partition_leader_epoch=LEADER_EPOCH,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=facts is not None,
        )
        last = first + len(records) - 1
        if (refused := self._write((batch,), len(batch), last, now_ms, now_ms)) is not None:
            return refused
        self._note(last, now_ms, len(batch))
        if facts is not None:
            self.producers.note_batch(facts, first, last, now_ms)
        self._appended(len(batch))
        return _new(Appended, (first, last, -1, self.log_start_offset, False, False))

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        *,
        transaction_version: int = 2,
    ) -> Appended | Rejected:
        """Append a marker, as in Kafka even without an open transaction. Remove the producer's fence."""
        verdict = self.producers.check_marker(
            producer_id,
            epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        if verdict is not None:
            return self._refused(verdict)
        offset = self.log_end_offset
        batch = encode_marker(
            commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
            base_offset=offset,
            partition_leader_epoch=LEADER_EPOCH,
        )
        if (refused := self._write((batch,), len(batch), offset, now_ms, now_ms)) is not None:
            return refused
        self._note(offset, now_ms, len(batch))
        durable, marker = self.config.fsync != "commit", Marker(commit, coordinator_epoch)
        aborted = self.producers.note_marker(producer_id, producer_epoch, marker, offset, now_ms, durable=durable)
        if aborted is not None:
            self.failure = self.segments[-1].note_aborted(aborted) or self.failure
        self._appended(len(batch))
        return _new(Appended, (offset, offset, -1, self.log_start_offset, False, False))

    def fence(self, producer_id: int, epoch: int) -> None:
        """Refuse lower epochs of a producer id until its next marker. Only the transaction log persists the fence."""
        self.producers.fence(producer_id, epoch)

    def _refused(self, verdict: ProducerRefusal) -> Rejected:
        return Rejected(verdict.code, verdict.log_start or self.log_start_offset, verdict.message)

    def _write(self, parts: Sequence[Buffer], size: int, last: int, timestamp: int, now_ms: int) -> Rejected | None:
        """Write batches that have their offsets. The caller then calls `_note`, and `_appended` at last."""
        if self.has_failed_sync or (self._torn and not self._cut_failed_append()):
            return self._storage_error()
        segment, config = self.segments[-1], self.config
        try:
            if self._point is not None and not self._point.has_slots:
                self._point.reserve_slots()
            time_ms = timestamp if timestamp >= 0 else now_ms
            if segment.size and segment.must_end(config, size, last, time_ms) and self._may_roll(segment, size, last):
                segment = self._roll()
            segment.log.append(*parts)
        except CorruptSegment as error:
            self.failure = OSError(str(error))
            return self._storage_error()
        except OSError as error:
            self.failure = error
            self._torn = True
            self._cut_failed_append()
            return self._storage_error()
        segment.touched_ms = now_ms
        return None

    def _note(self, last_offset: int, timestamp: int, size: int) -> None:
        """Add a batch that was written to the log's end, and index it."""
        segment = self.segments[-1]
        position, segment.size = segment.size, segment.size + size
        self.log_end_offset = segment.next_offset = last_offset + 1
        segment.note(last_offset, timestamp, position, size, self.config.index_interval_bytes)
        self._recent.add(last_offset, position)

    def _appended(self, size: int, batches: int = 1) -> None:
        """Take a snapshot if one is due, after the producer state was updated."""
        config = self.config
        if config.fsync != "commit":
            self._advance(self.log_end_offset)
        if self._pace.add(size, batches, config):
            self.prepare_snapshot()

    def _storage_error(self) -> Rejected:
        return Rejected(ErrorCode.KAFKA_STORAGE_ERROR, -1, f"{self.directory} is read-only: {self.failure}")

    def _cut_failed_append(self) -> bool:
        """Cut off the bytes of a failed append. The partition is read-only until this succeeds."""
        segment = self.segments[-1]
        try:
            segment.log.truncate(segment.size)
        except OSError as error:
            self.failure = error
            return False
        self._torn = False
        return True

    def _may_roll(self, segment: Segment, size: int, last_offset: int) -> bool:
        # Rolling before the first sync needs a sync of the directory. The segment grows instead: no request waits here.
        has_name = self.config.fsync == "never" or not self._is_unnamed(segment)
        return has_name or not segment.can_address(size, last_offset)

    def _is_unnamed(self, segment: Segment) -> bool:
        """Return true if a loss of power may take the name of the log's only segment."""
        return len(self.segments) == 1 and self.synced_offset <= segment.base_offset

    def roll(self) -> None:
        """Begin a new segment, unless the last segment is empty. Raises OSError, also when the log is read-only."""
        if self.read_only:
            raise OSError(f"{self.directory} is read-only: {self.failure}")
        if self.segments[-1].size:
            self._roll()

    def _roll(self) -> Segment:
        closed = self.segments[-1]
        closed.flush_indexes(final=True)
        if self._is_unnamed(closed):
            # Without the first segment's name, this segment would look like the start of the log.
            self.files.sync_directory(self.directory)
        segment = Segment(self.files, self.directory, self.log_end_offset)
        segment.gaps_below = self.clean_point.gaps_below
        if segment.size:  # left by a crash; bytes after the log's end do not belong to it
            segment.log.truncate(0)
            segment.size = 0
        segment.reset_indexes()
        self.segments.append(segment)
        self._recent = RecentBatches()
        self._take_snapshot()
        if self.config.fsync == "never":
            self._sync_now()
        return segment

    # Durability

    def unsynced(self) -> list[File]:
        """Return the files to sync before `mark_synced(log_end_offset as of now)` may be called."""
        files: list[File] = []
        for segment in reversed(self.segments):
            if segment.next_offset <= self.synced_offset:
                break
            if segment.size:
                files.append(segment.log)
        files.extend(self.snapshots.offer())
        files.extend(self._fresh.offer())
        return files

    def mark_synced(self, log_end_offset: int) -> None:
        """Note that everything up to that offset is synced, and move the high watermark with fsync=commit.

        Without effect after `sync_failed`, because a later success does not cover earlier bytes.
        """
        if self.has_failed_sync:
            return
        self._fresh.forget()
        self._synced(min(log_end_offset, self.log_end_offset))
        if self.config.fsync == "commit":
            self._advance(self.synced_offset)
        self._begin_snapshots()

    def _begin_snapshots(self) -> None:
        if not self._is_writing and self.snapshots.is_ready(self.synced_offset):
            self._is_writing = True
            self._begin(self._write_snapshots())

    def _synced(self, offset: int) -> None:
        self.synced_offset = max(self.synced_offset, offset)
        if self._point is not None:
            self._point.move(self.synced_offset)

    def _sync_now(self) -> None:
        """Sync directly. With fsync=never, only note the end as synced. Raises OSError."""
        for file in self.unsynced():
            if self.config.fsync != "never":
                file.sync()
        self._fresh.forget()
        self._synced(self.log_end_offset)
        self._advance(self.log_end_offset)
        self._begin_snapshots()

    def sync_failed(self, error: OSError) -> None:
        """Note a failed sync. The synced part of the log is unknown, so it is read-only until it is opened again."""
        self.failure = error
        self.has_failed_sync = True

    def is_durable(self, offset: int) -> bool:
        """Return true if the offset may be acknowledged. After `sync_failed` only synced offsets may."""
        return not self.has_failed_sync or offset < self.synced_offset

    @property
    def read_only(self) -> bool:
        return self.has_failed_sync or self._torn

    def _advance(self, high_watermark: int) -> None:
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            if self.producers.undurable:
                self.producers.high_watermark_moved(high_watermark)

    def prepare_snapshot(self) -> None:
        """Let the next sync write a producer snapshot. A start scans only the log after it."""
        try:
            self.segments[-1].flush_indexes(final=True)
            self._take_snapshot()
            if self.config.fsync == "never":
                self._sync_now()
        except OSError as error:  # the append itself has succeeded; the entries stay in memory for the next attempt
            self.failure = error
            self._pace.restart()

    def _take_snapshot(self) -> None:
        """Prepare a snapshot of the present state. Indexes have been flushed."""
        self._pace.restart()
        files = [file for segment in self.segments[-2:] for file in segment.index_files()]
        last = self.segments[-1]
        seals = tuple(SegmentSeal(each.base_offset, *each.aborted_seal(), each.top_timestamp) for each in self.segments)
        data = self.producers.encode(LogPosition(last.base_offset, last.size, seals))
        self.snapshots.prepare(self.log_end_offset, data, files)

    def _write_snapshots(self) -> Change[None]:
        """Write snapshots until none is ready. A failure only makes the next start take longer."""
        try:
            while not self.closed and self.snapshots.is_ready(self.synced_offset):
                yield from self.snapshots.writing(self.synced_offset)
                if not self.closed:
                    self.remove_below(self.log_start_offset)  # segments that waited for a snapshot
        except OSError as error:
            self.failure = error
        finally:
            self._is_writing = False

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        committed_only: bool = False,
        min_one: bool = True,
        before: ReadBounds | None = None,
    ) -> ReadResult:
        """Read whole batches of one segment from the one with `offset` on, at most `max_bytes`.

        The bound is the high watermark, or the last stable offset with `committed_only`. `min_one`: the first batch may
        be larger. `before`: bounds that were measured earlier. The error is OFFSET_OUT_OF_RANGE outside of log start
        and log end, KAFKA_STORAGE_ERROR, or CORRUPT_MESSAGE for damaged bytes, with the position in `message`: clients
        must not retry forever.
        """
        bound = self.last_stable_offset if committed_only else self.high_watermark
        aborted, code, message = list[tuple[int, int]](), ErrorCode.NONE, ""
        records: bytes | memoryview = b""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif offset < bound:
            try:
                data, end_offset = slice_of(self, offset, max_bytes, bound, min_one, before)
                found = self.aborted_between(offset, end_offset) if committed_only and data else ()
                if found:
                    aborted = sorted(((each.producer_id, each.first_offset) for each in found), key=itemgetter(1, 0))
                records = data
            except CorruptSegment as error:
                code, message = ErrorCode.CORRUPT_MESSAGE, str(error)
            except OSError as error:
                code, message = ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: {error}"
        stable = bound if committed_only else self.last_stable_offset
        return ReadResult(records, self.high_watermark, stable, self.log_start_offset, aborted, code, message)

    def segment_of(self, offset: int) -> int:
        """Return the number of the segment that holds the offset."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        return max(0, bisect_right(segments, offset, key=attrgetter("base_offset")) - 1)

    def locate(self, number: int, offset: int) -> tuple[int, int, int]:
        """Return the result of `Segment.locate`, using the remembered positions of the last batches."""
        segment = self.segments[number]
        if segment is self.segments[-1]:
            recent = self._recent.locate(offset, segment.size, segment.next_offset)
            if recent is not None:
                return recent
        self._use_indexes(segment)
        return segment.locate(offset)

    def _use_indexes(self, segment: Segment) -> None:
        """Note a use of the segment's indexes. Raises OSError."""
        if segment is not self.segments[-1]:
            self._loaded.use(segment)

    def aborted_between(self, from_offset: int, to_offset: int) -> list[Aborted]:
        """Return the transactions aborted in from_offset <= offset < to_offset. Raises OSError, CorruptSegment."""
        return aborted_between(self.segments, self.segment_of(from_offset), from_offset, to_offset)

    # Timestamps

    def offset_for_timestamp(
        self, timestamp_ms: int, decompress: Decompress = section_of, *, committed_only: bool = False
    ) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the first record that is not older, or None.

        Only records that `read` returns count. Raises OSError, CorruptSegment, and the exceptions of `decompress`.
        """
        readable = self._readable(committed_only)
        return first_at_or_after(self.segments, timestamp_ms, readable, self._use_indexes, decompress)

    def offset_of_max_timestamp(
        self, decompress: Decompress = section_of, *, committed_only: bool = False
    ) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the first record with the largest timestamp. See `offset_for_timestamp`."""
        return newest(self.segments, self._readable(committed_only), self._use_indexes, decompress)

    def _readable(self, committed_only: bool) -> range:
        return range(self.log_start_offset, self.last_stable_offset if committed_only else self.high_watermark)

    # Removing

    def remove_below(self, offset: int) -> None:
        """Remove closed segments below the offset. Raises OSError."""
        while self.remove_first_below(offset):
            pass

    def remove_first_below(self, offset: int) -> bool:
        """Remove the first segment if closed, below the offset and in a snapshot; return true if so. Raises OSError."""
        if len(self.segments) == 1 or self.segments[0].next_offset > min(offset, self.snapshots.newest):
            return False
        segment = self.segments[0]
        self.snapshots.forget_files(segment.open_index_files())
        segment.remove()
        del self.segments[0]
        return True

    def moving_clean_point(self, point: CleanPoint) -> Change[None]:
        """Write the progress of compaction. Raises OSError."""
        yield partial(write_clean_point, self.files, self.directory, point)
        self.clean_point = point
        for segment in self.segments:
            segment.gaps_below = point.gaps_below

    def close(self) -> None:
        """Flush, sync and release the files. Raises OSError; then the next start recovers the log."""
        segment = self.segments[-1]
        self._begin, self._is_writing = carry_out, False
        try:
            if not self.has_failed_sync:
                if self._torn:
                    segment.log.truncate(segment.size)
                try:
                    segment.flush_indexes(final=True)
                    self._take_snapshot()
                except OSError as error:
                    if not is_full(error):
                        raise
                    self.failure = error  # the next start scans the log after the last snapshot
                self._sync_now()
        finally:
            self.closed = True
        self.release()

    def release(self) -> None:
        """Close the files without a flush, before the log is removed."""
        self.closed = True
        self._fresh.forget()
        for segment in self.segments:
            segment.close()
