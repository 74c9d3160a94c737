"""Results of the native loops as values and errors of this package. Used only where `engine.is_native` is true.

Every loop checks each position before it reads or writes there, and returns one of the codes below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records import engine
from fencepost.protocol.records.columns import Columns, Description

__all__ = [
    "BAD_HEADERS",
    "EXPLANATIONS",
    "OK",
    "check_many",
    "decode_fetched_batches",
    "decode_sections",
    "find_timestamp",
]

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
    8: "a batch or its records exceed their buffer",
}

# The native module writes five columns of int64, then three of int32.
_LONGS, _INTS = 5, 3
_ROW_BYTES: Final = _LONGS * 8 + _INTS * 4
_MAX_INT64: Final = 2**63 - 1


def decode_sections(
    blob: memoryview, batches: Sequence[Description], first_offset: int
) -> tuple[Columns, tuple[int, str] | None]:
    """Decode like `spans.decode_sections`."""
    found, code, index, packed = engine.native.decode_records(blob, batches, first_offset)
    return _columns(blob, packed, found), None if code == OK else (index, EXPLANATIONS[code])


def decode_fetched_batches(
    batches: memoryview,
    first_offset: int,
    *,
    checks_markers: bool,
    checks_crc: bool,
    batch_bytes: int,
    room_bytes: int | None,
) -> tuple[Columns, int, list[tuple[int, int]]] | None:
    """Decode all batches of a partition, if they are plain and sound.

    Args:
        batches: The batches of a Fetch response.
        first_offset: Drop records below it.
        checks_markers: Return None for a control batch that is not a usual marker.
        checks_crc: Return None if a CRC is wrong.
        batch_bytes: Largest size of the columns of a batch, in bytes.
        room_bytes: Largest size of the columns of all batches before the last, in bytes; None: no limit.

    Returns:
        The columns, their size in bytes, and the leader epochs as `decoding.epochs_of` finds them. None if a batch
        is compressed, damaged, too large or unusual.
    """
    room = _MAX_INT64 if room_bytes is None else room_bytes
    found = engine.native.decode_fetched_batches(batches, first_offset, checks_markers, checks_crc, batch_bytes, room)
    if found is None:
        return None
    rows, packed, next_offset, decoded_bytes, epochs = found
    columns = _columns(batches, packed, rows) if rows else Columns.empty()
    columns.next_offset = next_offset
    return columns, decoded_bytes, epochs


def _columns(blob: memoryview, packed: bytearray, found: int) -> Columns:
    """Return the first `found` rows of the packed columns."""
    rows, whole = len(packed) // _ROW_BYTES, memoryview(packed)
    behind = _LONGS * 8 * rows
    longs, ints = whole[:behind].cast("q"), whole[behind:].cast("i")
    offsets, timestamps, keys, values, headers = [longs[rows * each : rows * each + found] for each in range(_LONGS)]
    key_sizes, value_sizes, header_sizes = [ints[rows * each : rows * each + found] for each in range(_INTS)]
    return Columns(blob, offsets, timestamps, keys, key_sizes, values, value_sizes, headers, header_sizes)


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
