"""Whether a records section (decompressed) is what its header promises, and what a broker has to know of it.

A few records are walked in plain Python, which costs less than setting up arrays; more by a compiled kernel. Both find
the same. No record becomes an object.

The kernel is loaded when it is first wanted. That takes a moment, and seconds where it has to be compiled: a broker has
it loaded beside its work (`load_kernel_by`), and walks in plain Python until it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import NO_TIMESTAMP

__all__ = ["FEW", "Checked", "check_records", "load_kernel_by"]

FEW: Final = 16  # as many are walked in Python rather than load the kernel
_FEWEST: Final = 2  # and so many even if it is loaded
_INT64: Final = 1 << 63


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
    from fencepost.protocol.records.check_kernel import check_many

    check_many(b"", 0, 0)  # compiles it
    _kernel.append(check_many)


def _walk(section: Buffer, count: int, base_timestamp: int) -> Checked:
    size = len(section)
    position, without_key = 0, -1
    smallest, largest = _INT64, NO_TIMESTAMP
    for row in range(count):
        length, position = _varint(section, position, size, row)
        end = position + length
        if length < 1 or end > size:
            raise _corrupt(row, "its length does not fit")
        time_delta, position = _varint(section, position + 1, end, row, 10)
        offset_delta, position = _varint(section, position, end, row)
        if offset_delta != row:
            raise _corrupt(row, f"its offset delta is {offset_delta}")
        key_length, position = _varint(section, position, end, row)
        if key_length < 0:
            without_key = row if without_key < 0 else without_key
        position = _behind(key_length, position, end, row)
        value_length, position = _varint(section, position, end, row)
        position = _behind(value_length, position, end, row)
        if position == end - 1 and section[position] == 0:
            position = end
        else:
            position = _behind_headers(section, position, end, row)
        timestamp = base_timestamp + time_delta
        if not -_INT64 <= timestamp < _INT64:
            timestamp = (timestamp + _INT64) % (2 * _INT64) - _INT64
        largest = max(largest, timestamp)
        if timestamp != NO_TIMESTAMP:
            smallest = min(smallest, timestamp)
    if position != size:
        raise CorruptBatch(f"{size - position} bytes are left behind the last of {count} records")
    return Checked(NO_TIMESTAMP if smallest == _INT64 else smallest, largest, without_key)


def _behind(length: int, position: int, end: int, row: int) -> int:
    if length > end - position:
        raise _corrupt(row, "a field's length does not fit")
    return position + length if length > 0 else position


def _behind_headers(section: Buffer, position: int, end: int, row: int) -> int:
    count, position = _varint(section, position, end, row)
    if count < 0:
        raise _corrupt(row, f"it has {count} headers")
    for _ in range(count):
        length, position = _varint(section, position, end, row)
        if length < 0:
            raise _corrupt(row, "a header without a key")
        position = _behind(length, position, end, row)
        length, position = _varint(section, position, end, row)
        position = _behind(length, position, end, row)
    if position != end:
        raise _corrupt(row, f"{end - position} bytes are left behind its headers")
    return position


def _varint(section: Buffer, position: int, end: int, row: int, most: int = 5) -> tuple[int, int]:
    """(value, next position) of a zigzag varint of at most so many bytes."""
    if position < end and section[position] < 0x80:
        byte = section[position]
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = shift = 0
    for at in range(position, min(end, position + most)):
        byte = section[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF if most == 5 else 0xFFFFFFFFFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), at + 1
        shift += 7
    raise _corrupt(row, "a number in it is cut short or too long")


def _corrupt(row: int, what: str) -> CorruptBatch:
    return CorruptBatch(f"record {row} of the batch: {what}")
