"""Results of the native loops as values and errors of this package. Used only where `engine.is_native` is true.

Every loop checks each position before it reads or writes there, and returns one of the codes below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records import engine
from fencepost.protocol.records.columns import Columns, Description

__all__ = ["BAD_HEADERS", "EXPLANATIONS", "OK", "check_many", "decode_sections", "find_timestamp"]

OK: Final = 0
BAD_HEADERS: Final = 4

EXPLANATIONS: Final = {
    1: "a varint is cut short or too long",
    2: "a record's or a field's length does not fit",
    3: "offset deltas do not ascend within the batch",
    BAD_HEADERS: "a record's headers do not parse",
    5: "the number of records is not the header's",
    6: "a span lies outside its blob",
    7: "a record is larger than 2 GiB",
    8: "the records do not fit where they should go",
}

# Columns in the order of the native module, as (index in the order of `Columns`, type code).
_LAYOUT: Final[tuple[tuple[int, Literal["q", "i"]], ...]] = (
    *((0, "q"), (1, "q"), (2, "q"), (4, "q"), (6, "q")),
    *((3, "i"), (5, "i"), (7, "i")),
)
_WIDTHS: Final[dict[str, int]] = {"q": 8, "i": 4}
_ROW_BYTES: Final = sum(_WIDTHS[kind] for _, kind in _LAYOUT)


def decode_sections(
    blob: memoryview, batches: Sequence[Description], first_offset: int
) -> tuple[Columns, tuple[int, str] | None]:
    """Decode like `spans.decode_sections`."""
    found, code, place, packed = engine.native.decode_records(blob, batches, first_offset)
    rows, whole = len(packed) // _ROW_BYTES, memoryview(packed)
    columns: list[Any] = [None] * len(_LAYOUT)
    start = 0
    for index, kind in _LAYOUT:
        width = _WIDTHS[kind]
        columns[index] = whole[start : start + found * width].cast(kind)
        start += rows * width
    return Columns(blob, *columns), None if code == OK else (place, EXPLANATIONS[code])


def check_many(section: Buffer, count: int, base_timestamp: int) -> tuple[int, int, int]:
    """Return the fields of `check.Checked`; see `check.check_records`."""
    code, row, smallest, largest, without_key = engine.native.check_records(section, count, base_timestamp)
    if code != OK:
        raise CorruptBatch(f"record {row} of the batch: {EXPLANATIONS[code]}")
    return smallest, largest, without_key


def find_timestamp(
    section: Buffer, count: int, base_timestamp: int, wanted: int, most: int, from_delta: int
) -> tuple[int, int] | None:
    """Find the first record from `from_delta` on with wanted <= timestamp <= most.

    Returns:
        (timestamp, offset delta), or None.

    Raises:
        CorruptBatch: The records do not parse.
    """
    code, timestamp, delta = engine.native.find_timestamp(section, count, base_timestamp, wanted, most, from_delta)
    if code != OK:
        raise CorruptBatch(EXPLANATIONS[code])
    return (timestamp, delta) if delta >= 0 else None
