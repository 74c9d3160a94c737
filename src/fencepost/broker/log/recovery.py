"""Opening of a partition's log: find the segments, load the newest producer snapshot, scan the rest, cut a torn tail.

The log below the snapshot was synced before the snapshot was written (except with fsync=never), so it is not scanned.
If the disk has damaged it since, reads report that. The scan skips damage below the recovery point: those records were
acknowledged, so the damage stays, is in the report, and its offsets are not used again, even if the bytes are missing.
After the recovery point, the first batch that is not whole ends the log: the rest of that file, and all later files,
were never acknowledged. All cuts are in the report, too.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fencepost.broker.disk.files import File, Files, is_full
from fencepost.broker.log.aborted import Aborted
from fencepost.broker.log.batch_walk import ANYWHERE, DamagedRange, IntactBatch
from fencepost.broker.log.cleaning.swap import NO_CLEAN_POINT, finish_swaps, read_clean_point
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.layout import (
    EPOCH_CHECKPOINT,
    EPOCH_CHECKPOINT_TEXT,
    LOG,
    METADATA,
    SNAPSHOT,
    CleanPoint,
    decode_metadata,
    encode_metadata,
    file_name,
    offset_of,
)
from fencepost.broker.log.log_start import read_log_start
from fencepost.broker.log.lost_markers import LostMarkers
from fencepost.broker.log.producers.snapshot import CorruptSnapshot, LogPosition
from fencepost.broker.log.producers.table import ProducerTable
from fencepost.broker.log.recovery_points import RecoveryPoint
from fencepost.broker.log.results import CorruptSegment, Damage, RecoveryReport, RemovedTail
from fencepost.broker.log.segment import Segment
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import HEADER_BYTES, MAGIC, BatchHeader
from fencepost.protocol.records.markers import Marker, parse_marker

__all__ = [
    "Recovered",
    "claim",
    "keep_indexes",
    "make_durable",
    "marker_in",
    "rebuild_aborted",
    "recover",
]

_REWRITE_BYTES = 1 << 20
_MAGIC_AT = 16


@dataclass(slots=True)
class Recovered:
    segments: list[Segment]
    producers: ProducerTable
    log_start_offset: int
    snapshots: list[int]
    """Offsets of the existing snapshots, ascending."""
    report: RecoveryReport
    clean_point: CleanPoint = NO_CLEAN_POINT
    lost_markers: LostMarkers = field(default_factory=LostMarkers)
    scanned: list[tuple[Segment, int]] = field(default_factory=list)
    """Segments that were scanned or cut, with the start position."""
    fresh: File | None = None
    """A new small file, to be synced with the first records."""


def recover(files: Files, directory: str, config: LogConfig, *, clean: bool, synced: int = -1) -> Recovered:
    """Recover a log. `synced`: everything below that offset was synced; -1 if unknown. Raises OSError."""
    files.makedirs(directory)
    report = RecoveryReport(clean=clean)
    names = finish_swaps(files, directory, report)
    log_start, is_known = read_log_start(files, directory, names, report)
    bases = sorted(base for base in (offset_of(name, LOG) for name in names) if base is not None)
    segments = [Segment(files, directory, base) for base in bases or [max(log_start, synced)]]
    checkpoint = None
    if EPOCH_CHECKPOINT not in names:
        checkpoint = _new(files, f"{directory}/{EPOCH_CHECKPOINT}", EPOCH_CHECKPOINT_TEXT)
    for segment, following in itertools.pairwise(segments):
        segment.next_offset = following.base_offset
    first = segments[0].base_offset
    if first > log_start and is_known:
        report.damaged.append(Damage(log_start, first, f"{directory}: the files of its first segments are missing"))
    elif first > log_start:
        log_start = first
    snapshots = sorted(offset for offset in (offset_of(name, SNAPSHOT) for name in names) if offset is not None)
    point = read_clean_point(files, directory, names, report)
    for segment in segments:
        segment.gaps_below = point.gaps_below
    segments[-1].next_offset = ANYWHERE  # until it is scanned
    found = Recovered(segments, ProducerTable(), log_start, snapshots, report, point, fresh=checkpoint)
    _load_and_scan(files, directory, config, found, synced)
    return found


def claim(files: Files, directory: str, topic_id: uuid.UUID) -> File | None:
    """Write the topic id into a directory before any other file.

    Raises OSError if it belongs to another topic.

    Returns the file if it is new: it must be synced before a record is acknowledged.
    """
    path = f"{directory}/{METADATA}"
    if files.exists(path):
        try:
            owner = decode_metadata(files.read_bytes(path))
        except ValueError:
            owner = None  # damaged; the topic catalogue has the id
        if owner == topic_id:
            return None
        if owner is not None:
            raise OSError(f"{directory} belongs to topic id {owner}, not {topic_id}")
        files.write_atomic(path, encode_metadata(topic_id))
        return None
    return _new(files, path, encode_metadata(topic_id))


def _new(files: Files, path: str, data: bytes) -> File | None:
    """Write a new file without a sync.

    Return None on a full disk.

    On a full disk the file is written and synced in the space reserved for small files.
    """
    file = files.open(path)
    try:
        file.append(data)
    except OSError as error:
        file.close()
        if not is_full(error):
            raise
        files.write_atomic(path, data)
        return None
    return file


def _load_and_scan(files: Files, directory: str, config: LogConfig, recovered: Recovered, synced: int) -> None:
    """Scan from the newest snapshot that fits the log, or from the start."""
    number, position, offset = 0, 0, recovered.segments[0].base_offset
    for snapshot in reversed(recovered.snapshots):
        if snapshot < recovered.segments[0].base_offset:
            break
        producers = ProducerTable()
        try:
            log_position = producers.load(files.read_bytes(f"{directory}/{file_name(snapshot, SNAPSHOT)}"))
        except CorruptSnapshot as error:
            recovered.report.notes.append(f"snapshot {snapshot}: {error}")
            continue
        if log_position is not None:
            _take_seals(recovered, log_position)
        start = _position_of(recovered, snapshot, log_position)
        if start is None:
            recovered.report.notes.append(f"snapshot {snapshot} does not fit the log")
            continue
        recovered.producers = producers
        if log_position is not None:
            _miss_segments(recovered, [segment.base_offset for segment in log_position.segments], start[0])
        number, position, offset = *start, snapshot
        break
    if config.fsync != "never":
        synced = max(synced, *recovered.snapshots, -1)
    recovered.segments[-1].synced = synced
    _scan(files, directory, config, recovered, (number, position, offset), synced)
    end = recovered.segments[-1].next_offset
    ahead = [snapshot for snapshot in recovered.snapshots if snapshot > end]
    for snapshot in ahead:
        files.remove(f"{directory}/{file_name(snapshot, SNAPSHOT)}")
        recovered.snapshots.remove(snapshot)
    if ahead:
        files.sync_directory(directory)  # after a crash they could reappear, with the state of another history


def _take_seals(found: Recovered, log_position: LogPosition) -> None:
    seals = {each.base_offset: each for each in log_position.segments}
    for segment in found.segments:
        seal = seals.get(segment.base_offset)
        segment.sealed, segment.sealed_timestamp = ((seal.aborted, seal.crc), seal.timestamp) if seal else ((-1, 0), -1)
        segment.reload_aborted()


def _miss_segments(found: Recovered, bases: list[int], scanned_from: int) -> None:
    """Report segments that a snapshot lists and that are missing, unless compaction replaced them."""
    segments = found.segments
    there = {segment.base_offset for segment in segments}
    missing = [base for base in bases if base not in there and base > segments[0].base_offset]
    for number in sorted({max(i for i, each in enumerate(segments) if each.base_offset < base) for base in missing}):
        segment = segments[number]
        end = segment.end_offset() if number < scanned_from else segment.next_offset
        if end < segment.next_offset and segment.next_offset > found.log_start_offset:
            description = f"{segment.path} ends there, and what followed it is missing"
            found.report.damaged.append(Damage(end, segment.next_offset, description))
            segment.next_offset = end


def _position_of(recovered: Recovered, offset: int, log_position: LogPosition | None) -> tuple[int, int] | None:
    """Return (number of the segment, position) for the scan after a snapshot; None if the snapshot does not fit."""
    segments = recovered.segments
    number = max(i for i, segment in enumerate(segments) if segment.base_offset <= offset)
    segment = segments[number]
    if offset == segment.base_offset:
        return number, 0
    if not segment.load_indexes():
        recovered.report.notes.append(f"{segment.path}: its indexes were damaged")
    if segment.aborted_lost:
        return None
    if log_position is None:
        return _walk_to(segment, number, offset)
    if log_position.segment != segment.base_offset or log_position.position > segment.size:
        return None
    if offset < recovered.clean_point.gaps_below and log_position.position + HEADER_BYTES > segment.size:
        return None  # its segment was compacted later
    if log_position.position == segment.size:
        return number, log_position.position
    following = segment.log.read(log_position.position, HEADER_BYTES)
    if len(following) == HEADER_BYTES and following[_MAGIC_AT] == MAGIC:
        return (number, log_position.position) if int.from_bytes(following[:8], "big") == offset else None
    # These bytes are no batch: a torn tail, or foreign bytes, in which case the log below the snapshot ends elsewhere.
    return (number, log_position.position) if _ends_at(segment, log_position.position, offset) else None


def _ends_at(segment: Segment, position: int, offset: int) -> bool:
    """Return true if the batch before `offset` ends at that position."""
    for item in segment.walk(*segment.near(offset - 1)):
        if isinstance(item, DamagedRange):
            return item.position == position and item.first_offset == offset
        if item.header.last_offset + 1 >= offset:
            return item.header.last_offset + 1 == offset and item.position + len(item.batch) == position
    return False


def _walk_to(segment: Segment, number: int, offset: int) -> tuple[int, int] | None:
    """Return (number of the segment, position) for a snapshot without a position; None if it does not fit.

    The segment is walked from its start, because a wrong index entry would let the scan start after batches that the
    snapshot does not include.
    """
    position, expected = 0, segment.base_offset
    for item in segment.walk():
        if isinstance(item, DamagedRange):
            return (number, item.position) if item.first_offset == offset else None
        if item.header.base_offset >= offset:
            return number, item.position
        position, expected = item.position + len(item.batch), item.header.last_offset + 1
    return (number, position) if expected == offset else None


def _scan(
    files: Files, directory: str, config: LogConfig, recovered: Recovered, start: tuple[int, int, int], synced: int
) -> None:
    """Replay everything from (number of the segment, position, present log end offset) on."""
    number, position, offset = start
    segments = recovered.segments
    while number < len(segments):
        segment, began = segments[number], position
        damage = _wrong_start(recovered, number, position, offset)
        is_behind = damage is not None and segment.base_offset > offset  # the damage lies before the segment
        if damage is None:
            offset = max(offset, segment.base_offset)
            position, offset, damage = _scan_segment(config, recovered, segment, position, offset)
        if damage is None:
            segment.next_offset = offset
            recovered.scanned.append((segment, began))
            number, position = number + 1, 0
            continue
        problem = damage.error(segment.path)
        resume = number if is_behind else number + 1
        if resume < len(segments) and segments[resume].base_offset <= recovered.log_start_offset:
            # All earlier records were deleted, and a crash undid the removal of some files: begin here.
            recovered.report.notes.append(f"{problem}; it is below the log start offset")
            _forget_first(recovered, resume)
            number, position, offset = 0, 0, segments[0].base_offset
            continue
        if offset < synced:
            following = (number, 0, segment.base_offset) if is_behind else _behind(recovered, number, damage, synced)
            if following[2] > offset:
                recovered.report.damaged.append(Damage(offset, following[2], str(problem)))
                recovered.lost_markers.found_damage(recovered.producers, segment, offset, following[2])
            else:
                recovered.report.notes.append(f"{problem}; no offset is missing")
            if following[0] > number:
                segment.next_offset = following[2]
                recovered.scanned.append((segment, segment.size))
            number, position, offset = following
            continue
        _cut(files, directory, recovered, number, position, offset, problem)
        if number < len(segments):
            recovered.scanned.append((segment, began))
        break
    segments[-1].next_offset = offset
    segments[-1].load_indexes()  # a cut can make an unscanned segment the last one
    if segments[-1].aborted_lost:  # it grows, and the next snapshot seals it
        with suppress(CorruptSegment):  # a read raises it
            rebuild_aborted(segments, segments[-1])
    _end_at(files, directory, recovered, max(offset, synced))


def _wrong_start(found: Recovered, number: int, position: int, offset: int) -> DamagedRange | None:
    """Return the damage if the segment does not begin at the end of the previous one."""
    segment = found.segments[number]
    is_gap = segment.base_offset > offset and (number > 0 or segment.base_offset >= found.clean_point.gaps_below)
    if not is_gap and (segment.base_offset >= offset or position):
        return None
    reason = f"base offset {segment.base_offset}, {offset} is due"
    return DamagedRange(0, 0, offset, segment.base_offset, reason)


def _end_at(files: Files, directory: str, recovered: Recovered, end: int) -> None:
    """Set the log's end after all offsets that were assigned, if its own end is missing or damaged."""
    last = recovered.segments[-1]
    if recovered.report.damaged and recovered.report.damaged[-1].next_offset == end and last.size:
        pass  # a file that ends in damage accepts no further appends
    elif last.next_offset == end:
        return
    else:
        recovered.report.damaged.append(Damage(last.next_offset, end, f"{last.path} and what followed: missing"))
        if not last.size:
            last.remove()
            recovered.segments.pop()
            recovered.scanned = [each for each in recovered.scanned if each[0] is not last]
    segment = Segment(files, directory, end)
    segment.gaps_below = recovered.clean_point.gaps_below
    segment.reset_indexes()
    recovered.segments.append(segment)
    recovered.scanned.append((segment, 0))


def _behind(found: Recovered, number: int, damage: DamagedRange, synced: int) -> tuple[int, int, int]:
    """Return (number, position, offset) of the next whole batch, or the synced end after all segments."""
    if damage.end < found.segments[number].size:
        return number, damage.end, damage.next_offset
    is_last = number + 1 == len(found.segments)
    return number + 1, 0, max(damage.first_offset, synced) if is_last else found.segments[number + 1].base_offset


def _scan_segment(
    config: LogConfig, recovered: Recovered, segment: Segment, position: int, offset: int
) -> tuple[int, int, DamagedRange | None]:
    """Replay one segment from a position.

    Return position and offset after its last whole batch, and the damage there.
    """
    if position == 0:
        segment.reset_indexes()
    else:
        segment.forget_from(offset, position)
    for item in segment.walk(position, offset):
        if isinstance(item, DamagedRange):
            return position, offset, item
        at, header, batch = item
        try:
            marker = marker_in(header, batch, segment, at)
        except CorruptSegment as error:
            return position, offset, DamagedRange(at, at + len(batch), offset, header.last_offset + 1, error.reason)
        segment.index_batch(header, at, len(batch), config.index_interval_bytes)
        recovered.lost_markers.next_batch(recovered.producers, header)
        aborted = recovered.producers.replay(header, marker)
        if aborted is not None:
            segment.aborted.add(recovered.lost_markers.aborted(segment, aborted))
        position, offset = at + len(batch), header.last_offset + 1
        recovered.report.scanned_bytes += len(batch)
    return position, offset, None


def _forget_first(found: Recovered, count: int) -> None:
    for segment in found.segments[:count]:
        segment.remove()
        found.report.removed_files.append(segment.path)
    del found.segments[:count]
    found.scanned.clear()
    found.producers = ProducerTable()


def marker_in(header: BatchHeader, batch: memoryview, segment: Segment, position: int) -> Marker | None:
    if not header.is_control or not header.record_count:
        return None  # compaction can leave a marker without its record, which no longer ends a transaction
    try:
        return parse_marker(batch)
    except CorruptBatch as error:
        raise CorruptSegment(segment.path, position, f"control batch: {error}") from error


def _cut(
    files: Files, directory: str, recovered: Recovered, number: int, position: int, offset: int, problem: CorruptSegment
) -> None:
    """End the log at `position` of segment `number`.

    Later files are removed first, because a crash must not leave a hole.
    """
    segments = recovered.segments
    for segment in reversed(segments[number + 1 :]):
        recovered.report.cuts.append(RemovedTail(segment.path, 0, segment.size, "behind a cut"))
        recovered.report.removed_files.append(segment.path)
        segment.remove()
    if len(segments) > number + 1:
        files.sync_directory(directory)
        del segments[number + 1 :]
    segment = segments[number]
    if position == 0 and number > 0:
        recovered.report.cuts.append(RemovedTail(segment.path, 0, segment.size, problem.reason))
        recovered.report.removed_files.append(segment.path)
        segment.remove()
        files.sync_directory(directory)
        del segments[number]
    else:
        if position < segment.size:
            recovered.report.cuts.append(RemovedTail(segment.path, position, segment.size - position, problem.reason))
        segment.log.truncate(position)
        segment.size = position
        segment.next_offset = offset


def rebuild_aborted(segments: Sequence[Segment], target: Segment) -> None:
    """Rebuild the target's index of aborted transactions from all whole batches up to its end.

    This is slow, and only for a damaged index file. The last of `segments` is the target, or follows it. Raises
    OSError, CorruptSegment.
    """
    producers = ProducerTable()
    target.aborted.truncate(target.base_offset)
    for segment in segments:
        for item in segment.walk():
            if isinstance(item, IntactBatch):
                at, header, batch = item
                aborted = producers.replay(header, marker_in(header, batch, segment, at))
                if aborted is not None and segment is target:
                    target.aborted.add(aborted)
        if segment is target:
            break
    target.aborted_lost = False


def aborted_between(segments: Sequence[Segment], first: int, from_offset: int, to_offset: int) -> list[Aborted]:
    """Return the transactions aborted in from_offset <= offset < to_offset.

    `first` is the number of the segment with `from_offset`. Raises OSError, CorruptSegment.
    """
    found: list[Aborted] = []
    for segment in segments[first:]:
        segment.load_aborted()
        if segment.aborted_lost:
            rebuild_aborted(segments, segment)
        if segment.aborted.collect(from_offset, to_offset, found):
            break
    return found


def make_durable(recovered: Recovered, point: RecoveryPoint | None) -> None:
    """Rewrite and sync the scanned data before readers can see it.

    Raises OSError.

    The recovery point is synced, too: with an older one, the next start would cut damage that this one kept.

    After a failed fsync of an earlier process, the page cache may contain bytes that look clean and are not on disk;
    another sync would not write them. So they are written again, in place, and then synced.
    """
    if recovered.report.damaged and point is not None:
        point.sync()
    for segment, began in recovered.scanned:
        position = began
        while position < segment.size:
            data = segment.log.read(position, min(_REWRITE_BYTES, segment.size - position))
            segment.log.write_at(position, data)
            position += len(data)
        segment.log.sync()


def keep_indexes(found: Recovered, *, durably: bool) -> None:
    """Write the indexes from the scan. Raises OSError; then the next start rebuilds them."""
    for segment, _ in found.scanned:
        segment.flush_indexes(final=True)
        for file in segment.index_files() if durably else ():
            file.sync()
