"""Replacement of segments by a compacted one.

After a crash at any step either the old or the new segments are complete.

The new segment's files are written and synced as `<base>.log.cleaned` and so on. They are renamed to .swap, the log
last. Once `<base>.log.swap` is durable the new segment counts, and every later step can be repeated: the files of the
other segments it covers are removed, its indexes get their final names, then the log gets its own. It covers the
segments that begin below its last offset, which is why the last batch of a compacted segment is never removed, only
emptied. Apache Kafka finishes a swap by the same rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Final

from fencepost.broker.disk.changes import Change
from fencepost.broker.disk.files import Files
from fencepost.broker.log.batch_walk import ANYWHERE, BatchWalk, DamagedRange, IntactBatch, SegmentBounds
from fencepost.broker.log.layout import (
    CLEAN_POINT,
    CLEANED,
    INDEX,
    LOG,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    CleanPoint,
    decode_clean_point,
    encode_clean_point,
    file_name,
    offset_of,
)
from fencepost.broker.log.results import RecoveryReport

__all__ = [
    "NO_CLEAN_POINT",
    "announcing",
    "announcing_indexes",
    "discard",
    "finish",
    "finish_swaps",
    "read_clean_point",
    "replace_segments",
    "write_clean_point",
]

NO_CLEAN_POINT: Final = CleanPoint(0, 0)
_INDEXES: Final = (INDEX, TIME_INDEX, TXN_INDEX)


def announcing_indexes(files: Files, directory: str, base_offset: int) -> Change[None]:
    """Rename the synced .cleaned indexes of a segment to .swap, before its log. Can be repeated. Raises OSError."""
    for suffix in _INDEXES:
        _rename_once(files, f"{directory}/{file_name(base_offset, suffix)}")
    # the new log must not become durable before its indexes: the old ones do not fit it
    yield partial(files.sync_directory, directory)


def _rename_once(files: Files, path: str) -> None:
    if files.exists(path + CLEANED):
        files.rename(path + CLEANED, path + SWAP)


def announcing(files: Files, directory: str, base_offset: int) -> Change[None]:
    """Rename the synced .cleaned log of a segment to .swap, which makes it valid. Can be repeated.

    Raises OSError. Then either the old or the new segments are valid.
    """
    _rename_once(files, f"{directory}/{file_name(base_offset, LOG)}")
    yield partial(files.sync_directory, directory)


def replace_segments(files: Files, directory: str, base_offset: int, others: Iterable[int]) -> None:
    """Remove the other segments that the new one replaces, and rename its indexes. Raises OSError."""
    stem = f"{directory}/{file_name(base_offset, '')}"
    for other in others:
        for suffix in (*_INDEXES, LOG):
            files.remove(f"{directory}/{file_name(other, suffix)}")
    for suffix in _INDEXES:
        if files.exists(stem + suffix + SWAP):
            files.rename(stem + suffix + SWAP, stem + suffix)


def finish(files: Files, directory: str, base_offset: int, others: Iterable[int]) -> None:
    """Give the new segment its final name.

    Can be repeated after a crash. Raises OSError.

    `others`: base offsets of the other segments that it replaces.
    """
    stem = f"{directory}/{file_name(base_offset, '')}"
    replace_segments(files, directory, base_offset, others)
    files.sync_directory(directory)
    files.rename(stem + LOG + SWAP, stem + LOG)
    files.sync_directory(directory)


def discard(files: Files, directory: str, base_offset: int) -> None:
    """Remove the .cleaned files of a segment that did not become valid. Raises OSError."""
    for suffix in (*_INDEXES, LOG):
        files.remove(f"{directory}/{file_name(base_offset, suffix + CLEANED)}")


def finish_swaps(files: Files, directory: str, report: RecoveryReport) -> list[str]:
    """Complete valid replacements after a crash, and remove all others.

    Returns the names left in the directory. Raises OSError.
    """
    names = files.listdir(directory)
    announced = sorted(base for base in (offset_of(name, LOG + SWAP) for name in names) if base is not None)
    for base in announced:
        bases = [other for other in (offset_of(name, LOG) for name in files.listdir(directory)) if other is not None]
        end, damage = _contents(files, f"{directory}/{file_name(base, LOG + SWAP)}", base, bases)
        if damage is not None:
            report.notes.append(f"a compacted segment is damaged: {damage}")
            if _has_originals(files, directory, base, bases):
                for suffix in (*_INDEXES, LOG):
                    files.remove(f"{directory}/{file_name(base, suffix + SWAP)}")
                continue
        finish(files, directory, base, [other for other in bases if base < other < end])
        report.notes.append(f"finished the replacement of offsets {base} to {end} by a compacted segment")
    if announced:
        names = files.listdir(directory)
    left = [name for name in names if name.endswith((CLEANED, SWAP))]
    for name in left:
        files.remove(f"{directory}/{name}")
    if left:
        files.sync_directory(directory)
    return [name for name in names if not name.endswith((CLEANED, SWAP))]


def _contents(files: Files, path: str, base_offset: int, bases: Collection[int]) -> tuple[int, str | None]:
    """Return the offset after the last whole batch of a .swap segment, and its first damage.

    Its end is not stored, but the next segment begins there. `bases`: base offsets of the existing segments.
    """
    file = files.open(path)
    try:
        size = file.size()
        last = _last(BatchWalk(file, path, size, SegmentBounds(base_offset, ANYWHERE, ANYWHERE)).items(0, base_offset))
        if isinstance(last, DamagedRange) and last.end == size:
            # Only the next segment can confirm the base offset of a last batch that follows a gap.
            ends = [base for base in bases if base > last.first_offset]
            walks = (BatchWalk(file, path, size, SegmentBounds(base_offset, end, ANYWHERE)) for end in sorted(ends))
            tails = (_last(walk.items(last.position, last.first_offset)) for walk in walks)
            last = next((tail for tail in tails if isinstance(tail, IntactBatch)), last)
        if last is None:
            return base_offset, "it is empty"
        end = last.first_offset if isinstance(last, DamagedRange) else last.header.last_offset + 1
        items = BatchWalk(file, path, size, SegmentBounds(base_offset, end, ANYWHERE)).items(0, base_offset)
        holes = (item for item in items if isinstance(item, DamagedRange))
        return end, next((str(hole.error(path)) for hole in holes), None)
    finally:
        file.close()


def _last(items: Iterator[IntactBatch | DamagedRange]) -> IntactBatch | DamagedRange | None:
    return next(iter(deque(items, maxlen=1)), None)


def _has_originals(files: Files, directory: str, base_offset: int, bases: Collection[int]) -> bool:
    """Return true if all segments that an announced segment replaces are still there.

    Then the first of them is there, and the next one begins at its end. Every segment ends with its last offset.
    """
    following = min((base for base in bases if base > base_offset), default=None)
    if base_offset not in bases or following is None:
        return False
    path = f"{directory}/{file_name(base_offset, LOG)}"
    file = files.open(path)
    items = BatchWalk(file, path, file.size(), SegmentBounds(base_offset, following, ANYWHERE)).items(0, base_offset)
    is_whole = all(isinstance(item, IntactBatch) for item in items)
    file.close()
    return is_whole


def read_clean_point(files: Files, directory: str, names: list[str], report: RecoveryReport) -> CleanPoint:
    if CLEAN_POINT not in names:
        return NO_CLEAN_POINT
    try:
        return decode_clean_point(files.read_bytes(f"{directory}/{CLEAN_POINT}"))
    except ValueError as error:
        report.notes.append(str(error))
        return CleanPoint(0, ANYWHERE)  # compacted to an unknown offset


def write_clean_point(files: Files, directory: str, point: CleanPoint) -> None:
    """Write the file. Raises OSError."""
    files.write_atomic(f"{directory}/{CLEAN_POINT}", encode_clean_point(point))
