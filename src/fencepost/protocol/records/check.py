"""Whether a records section (decompressed) is what its header promises, and what a broker has to know of it.

A few records are walked in plain Python, which costs less than setting up arrays; more by a compiled kernel where that
is installed. Both find the same. No record becomes an object.

The kernel is loaded when it is first wanted. That takes a moment, and seconds where it has to be compiled: a broker has
it loaded beside its work (`load_kernel_by`), and walks in plain Python until it is there.
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

FEW: Final = 16  # as many are walked in Python rather than load the kernel
_FEWEST: Final = 2  # and so many even if it is loaded
_LARGEST: Final = 2**63 - 1


class Checked(NamedTuple):
    """Timestamps in milliseconds, -1 (none) left out of the smallest; `without_key`: the first such record, or -1."""

    min_timestamp: int
    max_timestamp: int
    without_key: int


_kernel: Final[list[Callable[[Buffer, int, int], tuple[int, int, int]]]] = []  # once it is loaded
_run: Final[list[Callable[[Callable[[], None]], None]]] = [
    lambda load: load()
]  # has it loaded, when it is first wanted
_wanted: Final[list[bool]] = []


def load_kernel_by(run: Callable[[Callable[[], None]], None]) -> None:
    """From now on who first wants the kernel does not load it, but has `run` call what does."""
    _run[:] = [run]


def check_records(section: Buffer, count: int, base_timestamp: int) -> Checked:
    """Exactly `count` records, offset deltas 0 to count - 1, every length where it belongs. Raises CorruptBatch."""
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
