"""What a partition's log answers. Wire error codes are values here; exceptions are kept for what the caller did
wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.produce_wire import RecordError

__all__ = ["Appended", "CorruptSegment", "Cut", "Damage", "Duplicate", "ReadResult", "RecoveryReport", "Rejected"]


class Appended(NamedTuple):
    """The batch is in the log at base_offset..last_offset (durable only when the high watermark says so)."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 with create time."""
    log_start_offset: int
    unknown_producer: bool = False
    """Accepted from a producer id without state in mid-sequence (Kafka's rules, or an old client): possible loss,
    worth counting."""
    earlier_producer: bool = False
    """Accepted from a producer id without state in mid-sequence that wrote to a deleted topic of this name: no loss."""

    @property
    def is_usual(self) -> bool:
        """Return true if there is nothing to tell of its producer."""
        return not (self.unknown_producer or self.earlier_producer)


class Duplicate(NamedTuple):
    """The batch had been appended before. Answer success with these, once `last_offset` is below the high watermark."""

    base_offset: int
    last_offset: int
    timestamp_ms: int
    log_start_offset: int


class Rejected(NamedTuple):
    """Nothing was appended. `log_start_offset` is what the response must carry: -1 or -2 where it must not be the
    true one."""

    error_code: ErrorCode
    log_start_offset: int
    message: str
    record_errors: tuple[RecordError, ...] = ()


class ReadResult(NamedTuple):
    """Whole batches from the one that holds the asked offset on. On an error `records` is empty."""

    records: bytes | memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of aborted transactions in the range, by first offset; only for committed_only."""
    error_code: ErrorCode = ErrorCode.NONE
    message: str = ""


class CorruptSegment(Exception):
    """Bytes in the log are not what was written. Names the file and the position (bytes)."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class Damage(NamedTuple):
    """Offsets of which nothing whole is left although they had been synced. `place`: a file and what is wrong there."""

    first_offset: int
    next_offset: int
    place: str


class Cut(NamedTuple):
    """Bytes removed at the end of a log during recovery."""

    path: str
    position: int
    size_bytes: int
    reason: str


@dataclass(slots=True)
class RecoveryReport:
    """What `PartitionLog.open` did."""

    clean: bool
    scanned_bytes: int = 0
    cuts: list[Cut] = field(default_factory=list)
    removed_files: list[str] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)
    """What is wrong below a point that had been synced: it stays, reads of it answer CORRUPT_MESSAGE, its offsets are
    not given out again, and what it said of producers is missing."""
    notes: list[str] = field(default_factory=list)
