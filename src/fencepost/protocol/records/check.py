"""Check a decompressed records section against its batch header, and collect the facts that a broker needs.

A few records are checked in plain Python, which costs less than setting up arrays. More records are checked by a
compiled kernel, if numba is installed. Both give the same result. No object per record is created.

The kernel is loaded at its first use. That takes a moment, or seconds if it has to be compiled. A broker therefore
loads it in the background (`load_kernel_by`) and checks in plain Python until the kernel is ready.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import NO_TIMESTAMP
from fencepost.protocol.records.engine import is_compiled
from fencepost.protocol.records.spans import fields_of, timestamp_of

__all__ = ["FEW", "Checked", "check_records", "load_kernel_by"]

FEW: Final = 16  # up to this number, Python is used rather than loading the kernel
_FEWEST: Final = 2  # up to this number, Python is used even if the kernel is loaded
_LARGEST: Final = 2**63 - 1


class Checked(NamedTuple):
    """Timestamps in milliseconds, where -1 means none and is ignored in the minimum.

    `without_key`: first such record, or -1.
    """

    min_timestamp: int
    max_timestamp: int
    without_key: int


_kernel: Final[list[Callable[[Buffer, int, int], tuple[int, int, int]]]] = []  # holds the kernel once it is loaded
_run: Final[list[Callable[[Callable[[], None]], None]]] = [
    lambda load: load()
]  # runs the loading of the kernel at its first use
_wanted: Final[list[bool]] = []


def load_kernel_by(run: Callable[[Callable[[], None]], None]) -> None:
    """Load the kernel through `run` at its first use, for example in a background thread."""
    _run[:] = [run]


def check_records(section: Buffer, count: int, base_timestamp: int) -> Checked:
    """Check a section: exactly `count` records, offset deltas 0 to count - 1, consistent lengths.

    Raises:
        CorruptBatch: The section does not match.
    """
    if count > FEW and not _kernel:
        _want_kernel()
    if count > _FEWEST and _kernel:
        return Checked(*_kernel[0](section, count, base_timestamp))
    return _walk(section, count, base_timestamp)


def _want_kernel() -> None:
    if not _wanted:
        _wanted.append(True)
        _run[0](_load_kernel)


def _load_kernel() -> None:
    if not is_compiled():
        return
    from fencepost.protocol.records.check_kernel import check_many

    check_many(b"", 0, 0)  # compiles it
    _kernel.append(check_many)


def _walk(section: Buffer, count: int, base_timestamp: int) -> Checked:
    smallest, largest, without_key = _LARGEST, NO_TIMESTAMP, -1
    for row, fields in enumerate(fields_of(section, 0, len(section), count)):
        time_delta, offset_delta, _, key_length, *_ = fields
        if offset_delta != row:
            raise CorruptBatch(f"record {row} of the batch: its offset delta is {offset_delta}")
        if key_length < 0 and without_key < 0:
            without_key = row
        timestamp = timestamp_of(base_timestamp, time_delta)
        largest = max(largest, timestamp)
        if timestamp != NO_TIMESTAMP:
            smallest = min(smallest, timestamp)
    return Checked(NO_TIMESTAMP if smallest == _LARGEST else smallest, largest, without_key)
