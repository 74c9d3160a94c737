"""Opening a partition's log: find the segments, load the newest producer snapshot, scan what lies behind it, cut what
is torn.

Below the snapshot the log was synced before the snapshot was written (except with fsync=never), so it is not scanned;
should a disk have damaged it since, reads find out. Behind it the first batch that is not whole ends the log: the
rest of that file, and all later files, were never promised to anybody. Whatever is cut is in the report.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from fencepost.broker.files import Files
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.index import OffsetIndex
from fencepost.broker.log.layout import (
    EPOCH_CHECKPOINT,
    EPOCH_CHECKPOINT_TEXT,
    INDEX,
    LOG,
    LOG_START,
    SNAPSHOT,
    CleanPoint,
    decode_log_start,
    file_name,
    offset_of,
)
from fencepost.broker.log.producer_table import ProducerTable
from fencepost.broker.log.results import CorruptSegment, Cut, RecoveryReport
from fencepost.broker.log.segment import ANYWHERE, Segment, scan
from fencepost.broker.log.snapshot import CorruptSnapshot, Place
from fencepost.broker.log.swap import NO_CLEAN_POINT, finish_swaps, read_clean_point
from fencepost.protocol.batch import HEADER_BYTES, MAGIC, BatchHeader, parse_header
from fencepost.protocol.control import Marker, parse_marker
from fencepost.protocol.errors import CorruptBatch

__all__ = ["Recovered", "make_durable", "marker_in", "rebuild_aborted", "recover"]

_REWRITE_BYTES = 1 << 20
_MAGIC_AT = 16


@dataclass(slots=True)
class Recovered:
    segments: list[Segment]
    producers: ProducerTable
    log_start_offset: int
    snapshots: list[int]
    """Offsets of the snapshots that are there, ascending."""
    report: RecoveryReport
    clean_point: CleanPoint = NO_CLEAN_POINT
    scanned: list[tuple[Segment, int]] = field(default_factory=list)
    """Segments that were scanned or cut, and from which position on."""


def recover(files: Files, directory: str, config: LogConfig, *, clean: bool) -> Recovered:
    """Raises OSError. A log that cannot be made whole by cutting its end raises CorruptSegment."""
    files.makedirs(directory)
    report = RecoveryReport(clean=clean)
    finish_swaps(files, directory, report)
    names = files.listdir(directory)
    log_start = _read_log_start(files, directory, names, report)
    bases = sorted(base for base in (offset_of(name, LOG) for name in names) if base is not None)
    segments = [Segment(files, directory, base) for base in bases or [log_start]]
    if EPOCH_CHECKPOINT not in names:
        # Also makes the first segment's name durable: without it, a later one would look like the start of the log.
        files.write_atomic(f"{directory}/{EPOCH_CHECKPOINT}", EPOCH_CHECKPOINT_TEXT)
    for segment, following in itertools.pairwise(segments):
        segment.next_offset = following.base_offset
    log_start = max(log_start, segments[0].base_offset)
    snapshots = sorted(offset for offset in (offset_of(name, SNAPSHOT) for name in names) if offset is not None)
    point = read_clean_point(files, directory, names, report)
    found = Recovered(segments, ProducerTable(), log_start, snapshots, report, point)
    _load_and_scan(files, directory, config, found)
    return found


def _read_log_start(files: Files, directory: str, names: list[str], report: RecoveryReport) -> int:
    if LOG_START not in names:
        return 0
    try:
        return decode_log_start(files.read_bytes(f"{directory}/{LOG_START}"))
    except ValueError as error:
        report.notes.append(str(error))
        return 0


def _load_and_scan(files: Files, directory: str, config: LogConfig, found: Recovered) -> None:
    """Scan from the newest snapshot that fits the log; from the start when there is none."""
    number, position, offset = 0, 0, found.segments[0].base_offset
    for snapshot in reversed(found.snapshots):
        if snapshot < found.segments[0].base_offset:
            break
        producers = ProducerTable()
        try:
            place = producers.load(files.read_bytes(f"{directory}/{file_name(snapshot, SNAPSHOT)}"))
        except CorruptSnapshot as error:
            found.report.notes.append(f"snapshot {snapshot}: {error}")
            continue
        start = _position_of(found, snapshot, place)
        if start is None:
            found.report.notes.append(f"snapshot {snapshot} does not fit the log")
            continue
        found.producers = producers
        found.report.snapshot_offset = snapshot
        number, position, offset = *start, snapshot
        break
    _scan(files, directory, config, found, number, position, offset)
    end = found.segments[-1].next_offset
    ahead = [snapshot for snapshot in found.snapshots if snapshot > end]
    for snapshot in ahead:
        files.remove(f"{directory}/{file_name(snapshot, SNAPSHOT)}")
        found.snapshots.remove(snapshot)
    if ahead:
        files.sync_directory(directory)  # back after a crash, they would stand for another history


def _position_of(found: Recovered, offset: int, place: Place | None) -> tuple[int, int] | None:
    """(number of the segment, position) from which on the log has to be scanned after a snapshot; None when it does
    not fit."""
    segments = found.segments
    number = max(i for i, segment in enumerate(segments) if segment.base_offset <= offset)
    segment = segments[number]
    if offset == segment.base_offset:
        return number, 0
    if not segment.load_indexes():
        found.report.notes.append(f"{segment.path}: its indexes were damaged")
        if segment.aborted_lost:
            return None
    if place is None:
        return _walk_to(segment, number, offset)
    if place.segment != segment.base_offset or place.position > segment.size:
        return None
    if offset < found.clean_point.gaps_below and place.position + HEADER_BYTES > segment.size:
        return None  # its segment was compacted since
    if place.position + HEADER_BYTES <= segment.size:
        header = segment.log.read(place.position, HEADER_BYTES)
        if header[_MAGIC_AT] == MAGIC and int.from_bytes(header[:8], "big") != offset:
            return None
    return number, place.position


def _walk_to(segment: Segment, number: int, offset: int) -> tuple[int, int] | None:
    """The same for a snapshot that does not say its place."""
    position = segment.offsets.floor(offset - 1)
    expected = -1
    try:
        for at, header, batch in scan(
            segment.log, segment.path, position, segment.size, expected=-1, gaps_below=ANYWHERE
        ):
            if header.base_offset >= offset:
                return number, at
            position, expected = at + len(batch), header.last_offset + 1
    except CorruptSegment as error:
        return (number, position) if error.position == position and expected == offset else None
    return (number, position) if expected == offset else None


def _scan(
    files: Files, directory: str, config: LogConfig, found: Recovered, number: int, position: int, offset: int
) -> None:
    """Replay everything from there on; `offset` is the log end offset so far."""
    gaps_below = found.clean_point.gaps_below
    segments = found.segments
    synced = max(found.snapshots, default=-1) if config.fsync != "never" else -1
    while number < len(segments):
        segment, began = segments[number], position
        hole = segment.base_offset > offset and segment.base_offset >= gaps_below
        problem: CorruptSegment | None = None
        if hole or (segment.base_offset < offset and position == 0):
            problem = CorruptSegment(segment.path, 0, f"base offset {segment.base_offset}, {offset} is due")
        else:
            offset = max(offset, segment.base_offset)
            position, offset, problem = _scan_segment(config, found, segment, position, offset)
        if problem is None:
            segment.next_offset = offset
            found.scanned.append((segment, began))
            number, position = number + 1, 0
            continue
        resume = number if hole else number + 1
        if resume < len(segments) and segments[resume].base_offset <= found.log_start_offset:
            # All before it was deleted, and the removal of some files was undone by a crash: begin there.
            found.report.notes.append(f"{problem}; it is below the log start offset")
            _forget_first(found, resume)
            number, position, offset = 0, 0, segments[0].base_offset
            continue
        if offset < synced and (passed := _behind_damage(files, segments, number, position, hole)) is not None:
            found.report.damaged.append(problem)
            if passed[0] > number:
                segment.next_offset = passed[2]
                found.scanned.append((segment, segment.size))
            number, position, offset = passed
            continue
        _cut(files, directory, found, number, position, offset, problem)
        if number < len(segments):
            found.scanned.append((segment, began))
        break
    segments[-1].next_offset = offset
    segments[-1].load_indexes()  # a cut may have made a segment the last one that was not scanned


def _behind_damage(
    files: Files, segments: list[Segment], number: int, position: int, hole: bool
) -> tuple[int, int, int] | None:
    """(number, position, offset) of the next whole batch behind damage, by the batch lengths, the offset index, or
    the next segment; None when nothing whole follows."""
    if hole:
        return number, 0, segments[number].base_offset
    segment = segments[number]
    index = OffsetIndex(files, segment.stem + INDEX, segment.base_offset)
    if files.exists(segment.stem + INDEX):
        index.load(files.read_bytes(segment.stem + INDEX), segment.size)
    candidates = [at for at in index.positions() if at > position]
    try:
        candidates.insert(0, position + parse_header(segment.log.read(position, HEADER_BYTES)).size_bytes)
    except CorruptBatch:
        candidates.sort()
    for at in candidates:
        try:
            _, header, _ = next(scan(segment.log, segment.path, at, segment.size, expected=-1, gaps_below=ANYWHERE))
        except (CorruptSegment, StopIteration):
            continue
        return number, at, header.base_offset
    return (number + 1, 0, segments[number + 1].base_offset) if number + 1 < len(segments) else None


def _scan_segment(
    config: LogConfig, found: Recovered, segment: Segment, position: int, offset: int
) -> tuple[int, int, CorruptSegment | None]:
    """Replay one segment from a position; the position and offset behind its last whole batch, and what ended it
    there."""
    if position == 0:
        segment.reset_indexes()
    else:
        segment.forget_from(offset, position)
    gaps_below = found.clean_point.gaps_below
    batches = scan(segment.log, segment.path, position, segment.size, expected=offset, gaps_below=gaps_below)
    try:
        for at, header, batch in batches:
            marker = marker_in(header, batch, segment, at)
            segment.index_batch(header, at, len(batch), config.index_interval_bytes)
            aborted = found.producers.replay(header, marker)
            if aborted is not None:
                segment.aborted.add(aborted)
            position, offset = at + len(batch), header.last_offset + 1
            found.report.scanned_bytes += len(batch)
    except CorruptSegment as error:
        return position, offset, error
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
        return None  # compaction may leave a marker without its record; it ends nothing any more
    try:
        return parse_marker(batch)
    except CorruptBatch as error:
        raise CorruptSegment(segment.path, position, f"control batch: {error}") from error


def _cut(
    files: Files, directory: str, found: Recovered, number: int, position: int, offset: int, problem: CorruptSegment
) -> None:
    """End the log at `position` of segment `number`. Later files go first: a crash in between must not leave a hole."""
    segments = found.segments
    for segment in reversed(segments[number + 1 :]):
        found.report.cuts.append(Cut(segment.path, 0, segment.size, "behind a cut"))
        found.report.removed_files.append(segment.path)
        segment.remove()
    if len(segments) > number + 1:
        files.sync_directory(directory)
        del segments[number + 1 :]
    segment = segments[number]
    if position == 0 and number > 0:
        found.report.cuts.append(Cut(segment.path, 0, segment.size, problem.reason))
        found.report.removed_files.append(segment.path)
        segment.remove()
        files.sync_directory(directory)
        del segments[number]
    else:
        found.report.cuts.append(Cut(segment.path, position, segment.size - position, problem.reason))
        segment.log.truncate(position)
        segment.size = position
        segment.next_offset = offset


def rebuild_aborted(segments: list[Segment], target: Segment) -> None:
    """Make the target's index of aborted transactions anew, from all batches up to its end. Slow, and only for a
    damaged index file.

    Raises OSError, CorruptSegment."""
    producers = ProducerTable()
    target.aborted.truncate(target.base_offset)
    for segment in segments:
        expected = segment.base_offset
        for at, header, batch in scan(
            segment.log, segment.path, 0, segment.size, expected=expected, gaps_below=ANYWHERE
        ):
            aborted = producers.replay(header, marker_in(header, batch, segment, at))
            if aborted is not None and segment is target:
                target.aborted.add(aborted)
        if segment is target:
            break
    target.aborted_lost = False


def make_durable(found: Recovered) -> None:
    """Put what the scan found on disk for good: it is about to be shown to readers. Raises OSError.

    The bytes may come from the page cache of a process that died after a failed fsync, where they look clean and are
    not on disk; syncing them again would do nothing. So they are written again, in place, and then synced."""
    for segment, began in found.scanned:
        position = began
        while position < segment.size:
            data = segment.log.read(position, min(_REWRITE_BYTES, segment.size - position))
            segment.log.write_at(position, data)
            position += len(data)
        segment.flush_indexes(final=True)
        for file in (segment.log, *segment.index_files()):
            file.sync()
