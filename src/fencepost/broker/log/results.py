"""Results of a partition's log. Error codes of the protocol are values; exceptions mean a wrong call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.produce_wire import RecordError

__all__ = [
    "Appended",
    "CorruptSegment",
    "Damage",
    "Duplicate",
    "ReadResult",
    "RecoveryReport",
    "Rejected",
    "RemovedTail",
]


class Appended(NamedTuple):
    """The batch is in the log at base_offset..last_offset. It is durable once it is below the high watermark."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 with create time."""
    log_start_offset: int
    unknown_producer: bool = False
    """Accepted in mid-sequence from a producer id without state (Kafka's rules, or an old client).

    Counted, because records may be lost.
    """
    earlier_producer: bool = False
    """Accepted in mid-sequence from a producer id without state that wrote to a deleted topic of this name: no loss."""


class Duplicate(NamedTuple):
    """The batch is a duplicate. Answer success with these values once `last_offset` is below the high watermark."""

    base_offset: int
    last_offset: int
    timestamp_ms: int
    log_start_offset: int


class Rejected(NamedTuple):
    """Nothing was appended.

    `log_start_offset` is the value for the response: -1 or -2 if it must not be the true one.
    """

    error_code: ErrorCode
    log_start_offset: int
    message: str
    record_errors: tuple[RecordError, ...] = ()


class ReadResult(NamedTuple):
    """Whole batches from the one that contains the requested offset on. On an error `records` is empty."""

    records: bytes | memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of aborted transactions in the range, by first offset; only for committed_only."""
    error_code: ErrorCode = ErrorCode.NONE
    message: str = ""


class CorruptSegment(Exception):
    """Bytes in the log are damaged. Names the file and the position (bytes)."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class Damage(NamedTuple):
    """Synced offsets without a whole batch. `description`: a file and its damage."""

    first_offset: int
    next_offset: int
    description: str


class RemovedTail(NamedTuple):
    """Bytes removed at the end of a log during recovery."""

    path: str
    position: int
    size_bytes: int
    reason: str


@dataclass(slots=True)
class RecoveryReport:
    """Report of the actions of `PartitionLog.open`."""

    clean: bool
    scanned_bytes: int = 0
    cuts: list[RemovedTail] = field(default_factory=list)
    removed_files: list[str] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)
    """Damage below the recovery point.

    It stays: reads of it answer CORRUPT_MESSAGE, its offsets are not used again, and its producer states are missing.
    """
    notes: list[str] = field(default_factory=list)

    def shared(self) -> RecoveryReport:
        """Return an equal report. Logs in which recovery found nothing share one, because most logs are among them."""
        nothing = _NOTHING_FOUND[self.clean]
        return nothing if self == nothing else self


_NOTHING_FOUND = {is_clean: RecoveryReport(is_clean) for is_clean in (False, True)}
