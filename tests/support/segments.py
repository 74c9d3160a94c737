"""Looking at a partition's files without the broker's own code for reading logs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fencepost.protocol.records.batch import iter_batches, verify_crc

__all__ = ["Damage", "Verified", "verify_data_directory"]


@dataclass(slots=True)
class Verified:
    """Counts of what was verified."""

    logs: int = 0
    segments: int = 0
    batches: int = 0
    torn_bytes: int = 0
    """At the ends of logs: what a crash interrupted."""


class Damage(AssertionError):
    """Bytes are not as they were written."""


def verify_data_directory(directory: Path) -> Verified:
    """Walk over every batch of every partition: CRC, ascending offsets without gaps (but where compaction left some).
    Only the end of a log may be torn. Raises Damage."""
    seen = Verified()
    for partition in sorted(each for each in directory.iterdir() if each.is_dir() and list(each.glob("*.log"))):
        seen.logs += 1
        point = partition / "clean-offset"
        gaps_below = int(point.read_bytes().split()[2]) if point.exists() else 0
        if list(partition.glob("*.swap")):
            gaps_below = 2**63  # a kill amid a compaction, which the next start completes
        segments = sorted(partition.glob("*.log"))
        expected = int(segments[0].stem)
        for segment in segments:
            base = int(segment.stem)
            if base != expected and not base < gaps_below:
                raise Damage(f"{segment}: {expected} is due")
            expected = _walk(segment, max(expected, base), gaps_below, seen, last=segment is segments[-1])
            seen.segments += 1
    return seen


def _walk(segment: Path, expected: int, gaps_below: int, seen: Verified, *, last: bool) -> int:
    data = segment.read_bytes()
    position = 0
    for header, batch in iter_batches(data, allow_partial=True):
        if not verify_crc(batch):
            raise Damage(f"{segment} at byte {position}: wrong CRC")
        if header.base_offset < expected or (header.base_offset > expected and header.base_offset >= gaps_below):
            raise Damage(f"{segment} at byte {position}: offset {header.base_offset}, {expected} is due")
        expected = header.last_offset + 1
        position += header.size_bytes
        seen.batches += 1
    if position != len(data):
        if not last:
            raise Damage(f"{segment}: {len(data) - position} bytes at its end are no batch")
        seen.torn_bytes += len(data) - position
    return expected
