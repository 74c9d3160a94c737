"""Compiled loops over records: numba functions with explicit signatures, cached on disk if a folder is writable.

Importing this module imports numba; `columns.py` imports it when a batch is first encoded or decoded. Each kernel is
compiled, or loaded from the cache, at its first call. Without a cache it is compiled once per process.

A column of byte strings is three arrays: a blob, the start of each string in it, and its length (-1: null). An empty
`lengths` means a column of nulls. An empty `starts` means that the strings are contiguous in the blob.

Every kernel checks each position before it reads or writes there, and returns one of the codes below.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
from numba.core import cgutils
from numba.extending import intrinsic

from fencepost.protocol.records.compiled import inlined, kernel

__all__ = [
    "BAD_HEADERS",
    "DESCRIPTION_FIELDS",
    "EXPLANATIONS",
    "OK",
    "OVERFULL",
    "decode_headers",
    "decode_records",
    "encode_headers",
    "gather",
    "plan_batches",
    "write_records",
]

OK: Final = 0
BAD_VARINT: Final = 1
BAD_LENGTH: Final = 2
BAD_OFFSET: Final = 3
BAD_HEADERS: Final = 4
BAD_COUNT: Final = 5
OUTSIDE_BLOB: Final = 6
TOO_LARGE: Final = 7
OVERFULL: Final = 8

EXPLANATIONS: Final = {
    BAD_VARINT: "a varint is cut short or too long",
    BAD_LENGTH: "a record's or a field's length does not fit",
    BAD_OFFSET: "offset deltas do not ascend within the batch",
    BAD_HEADERS: "a record's headers do not parse",
    BAD_COUNT: "bytes are left behind the last record",
    OUTSIDE_BLOB: "a span lies outside its blob",
    TOO_LARGE: "a record is larger than 2 GiB",
    OVERFULL: "the records do not fit where they should go",
}

MAX_BODY_BYTES: Final = 2**31 - 1
# Fields of a batch to decode: start, end, record count, base offset, base timestamp, last offset delta, and then
# (1, the timestamp of all records) or (0, ignored).
DESCRIPTION_FIELDS: Final = 8

# Size of a batch without its records. Kernels can use module constants only as literals.
_BATCH_HEADER_BYTES = 61
_VARINT32_BYTES = 5
_VARINT64_BYTES = 10

_STRINGS: Final = ("bytes", "int64s", "int32s")  # blob, starts, lengths


@inlined
def _size_of_unsigned(value: Any) -> Any:
    """Return the size in bytes of an unsigned varint (uint64)."""
    size = 1
    while value >= 0x80:
        value >>= np.uint64(7)
        size += 1
    return size


@inlined
def _zigzag(value: Any) -> Any:
    value = np.int64(value)
    return np.uint64((value << 1) ^ (value >> 63))


@inlined
def _size_of_signed(value: Any) -> Any:
    """Return the size in bytes of a zigzag varint (int64)."""
    if -64 <= value < 64:
        return 1
    if -8192 <= value < 8192:
        return 2
    return _size_of_unsigned(_zigzag(value))


@inlined
def _write_signed(output: Any, position: Any, value: Any) -> Any:
    """Write a zigzag varint; return the next position. The caller provides the room."""
    raw = _zigzag(value)
    while raw >= 0x80:
        output[position] = np.uint8(raw & np.uint64(0x7F)) | np.uint8(0x80)
        raw >>= np.uint64(7)
        position += 1
    output[position] = np.uint8(raw)
    return position + 1


@inlined
def _read_signed(blob: Any, position: Any, end: Any, max_bytes: Any) -> Any:
    """Return (value, next position) of a zigzag varint; the position is -1 if the varint is truncated or too long."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    stop = min(end, position + max_bytes)
    while position < stop:
        byte = np.uint64(blob[position])
        position += 1
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            if max_bytes == _VARINT32_BYTES:
                raw &= np.uint64(0xFFFFFFFF)
            return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


def _type_copy(context: Any, output: Any, position: Any, blob: Any, start: Any, length: Any) -> Any:
    """Copy bytes between two arrays with memcpy. A loop is compiled to one move per byte, a tenth of the speed."""
    integers = (position, start, length)
    if not all(isinstance(each, numba.types.Array) and each.dtype == numba.uint8 for each in (output, blob)):
        raise numba.TypingError("_copy moves bytes")
    if not all(isinstance(each, numba.types.Integer) for each in integers):
        raise numba.TypingError("_copy takes whole numbers")

    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to_array, to_at, from_array, from_at, count = arguments
        to_start = target.make_array(signature.args[0])(target, builder, to_array).data
        from_start = target.make_array(signature.args[2])(target, builder, from_array).data
        memcpy: Any = cgutils.raw_memcpy
        memcpy(builder, builder.gep(to_start, [to_at]), builder.gep(from_start, [from_at]), count, 1)
        return target.get_dummy_value()

    return numba.void(output, numba.int64, blob, numba.int64, numba.int64), build


_copy: Any = intrinsic(_type_copy)


@inlined
def _at_least_0(value: Any) -> Any:
    return value if value > 0 else np.int64(0)


@inlined
def _write_string(output: Any, position: Any, blob: Any, start: Any, length: Any) -> Any:
    """Write a length (-1: null) and its bytes; return the next position. The caller checks the room and the span."""
    position = _write_signed(output, position, length)
    if length > 0:
        _copy(output, position, blob, start, length)
        position += length
    return position


@inlined
def _outside(blob: Any, start: Any, length: Any) -> Any:
    return length > 0 and (start < 0 or start + length > len(blob))


@kernel(
    *_STRINGS,
    *_STRINGS,
    *_STRINGS,
    "int64s",
    "int64",
    "int32s out",
    "int64s out",
    "int64s out",
)
def plan_batches(
    key_blob: Any,
    key_starts: Any,
    key_lengths: Any,
    value_blob: Any,
    value_starts: Any,
    value_lengths: Any,
    header_blob: Any,
    header_starts: Any,
    header_lengths: Any,
    timestamps: Any,
    max_bytes: Any,
    bodies: Any,
    ends: Any,
    sizes: Any,
) -> Any:
    """Split n = len(bodies) records into batches of at most `max_bytes`, header included.

    Fills `bodies` (size of each record without its length), `ends` (row after the last of each batch) and `sizes` (size
    of each batch's records section). `timestamps` has n entries, or one for all. A record that exceeds the limit gets a
    batch of its own.
    Returns (number of batches, code, row).
    """
    count = len(bodies)
    has_keys, has_values, has_headers = len(key_lengths) > 0, len(value_lengths) > 0, len(header_lengths) > 0
    timestamp_step = 0 if len(timestamps) == 1 else 1
    key_at, value_at, header_at = np.int64(0), np.int64(0), np.int64(0)
    batches, first, section = 0, 0, np.int64(0)
    for row in range(count):
        key_length = np.int64(key_lengths[row]) if has_keys else np.int64(-1)
        if len(key_starts) > 0:
            key_at = key_starts[row]
        value_length = np.int64(value_lengths[row]) if has_values else np.int64(-1)
        if len(value_starts) > 0:
            value_at = value_starts[row]
        header_length = np.int64(header_lengths[row]) if has_headers else np.int64(0)
        if len(header_starts) > 0:
            header_at = header_starts[row]
        if (
            _outside(key_blob, key_at, key_length)
            or _outside(value_blob, value_at, value_length)
            or _outside(header_blob, header_at, header_length)
        ):
            return batches, OUTSIDE_BLOB, row
        key_bytes, value_bytes, header_bytes = (
            _at_least_0(key_length),
            _at_least_0(value_length),
            _at_least_0(header_length),
        )
        key_at, value_at, header_at = key_at + key_bytes, value_at + value_bytes, header_at + header_bytes
        # One byte for the attributes, one for an empty headers section.
        body = key_bytes + value_bytes + header_bytes + (1 if header_bytes else 2)
        body += _size_of_signed(key_length) + _size_of_signed(value_length)
        delta = timestamps[row * timestamp_step] - timestamps[first * timestamp_step]
        whole = body + _size_of_signed(delta) + _size_of_signed(row - first)
        record = whole + _size_of_signed(whole)
        if row > first and _BATCH_HEADER_BYTES + section + record > max_bytes:
            ends[batches], sizes[batches] = row, section
            batches, first, section = batches + 1, row, np.int64(0)
            whole = body + 2
            record = whole + _size_of_signed(whole)
        if whole > MAX_BODY_BYTES:
            return batches, TOO_LARGE, row
        bodies[row] = whole
        section += record
    if count > 0:
        ends[batches], sizes[batches] = count, section
        batches += 1
    return batches, OK, count


@kernel(
    *_STRINGS,
    *_STRINGS,
    *_STRINGS,
    "int64s",
    "int64",
    "int64",
    "int32s",
    "int64s out",
    "bytes out",
    "int64",
)
def write_records(
    key_blob: Any,
    key_starts: Any,
    key_lengths: Any,
    value_blob: Any,
    value_starts: Any,
    value_lengths: Any,
    header_blob: Any,
    header_starts: Any,
    header_lengths: Any,
    timestamps: Any,
    first: Any,
    end: Any,
    bodies: Any,
    cursors: Any,
    output: Any,
    position: Any,
) -> Any:
    """Write the records of rows `first` to `end`, measured by `plan_batches`, into `output` from `position` on.

    `cursors` has the next position of keys, values and headers in columns without `starts`; this function moves it.
    Returns (position after the last record, code, row).
    """
    has_keys, has_values, has_headers = len(key_lengths) > 0, len(value_lengths) > 0, len(header_lengths) > 0
    timestamp_step = 0 if len(timestamps) == 1 else 1
    key_at, value_at, header_at = cursors[0], cursors[1], cursors[2]
    for row in range(first, end):
        body = np.int64(bodies[row])
        if position + body + _VARINT32_BYTES > len(output) and position + body + _size_of_signed(body) > len(output):
            return position, OVERFULL, row
        key_length = np.int64(key_lengths[row]) if has_keys else np.int64(-1)
        if len(key_starts) > 0:
            key_at = key_starts[row]
        value_length = np.int64(value_lengths[row]) if has_values else np.int64(-1)
        if len(value_starts) > 0:
            value_at = value_starts[row]
        position = _write_signed(output, position, body)
        output[position] = 0
        position += 1
        position = _write_signed(
            output, position, timestamps[row * timestamp_step] - timestamps[first * timestamp_step]
        )
        position = _write_signed(output, position, np.int64(row - first))
        # Not _write_string: with it these two writes ran at a sixth of the speed.
        position = _write_signed(output, position, key_length)
        if key_length > 0:
            _copy(output, position, key_blob, key_at, key_length)
            position += key_length
            key_at += key_length
        position = _write_signed(output, position, value_length)
        if value_length > 0:
            _copy(output, position, value_blob, value_at, value_length)
            position += value_length
            value_at += value_length
        header_length = np.int64(header_lengths[row]) if has_headers else np.int64(0)
        if header_length > 0:
            if len(header_starts) > 0:
                header_at = header_starts[row]
            _copy(output, position, header_blob, header_at, header_length)
            position += header_length
            header_at += header_length
        else:
            output[position] = 0
            position += 1
    cursors[0], cursors[1], cursors[2] = key_at, value_at, header_at
    return position, OK, end


@inlined
def _read_prefix(blob: Any, position: Any, end: Any) -> Any:
    """Return (record end, timestamp delta, offset delta, key position); a negative position is a negated error code."""
    zero = np.int64(0)
    length, position = _read_signed(blob, position, end, _VARINT32_BYTES)
    if position < 0:
        return zero, zero, zero, np.int64(-BAD_VARINT)
    if length < 1 or length > end - position:
        return zero, zero, zero, np.int64(-BAD_LENGTH)
    record_end = position + length
    timestamp_delta, position = _read_signed(blob, position + 1, record_end, _VARINT64_BYTES)
    if position < 0:
        return zero, zero, zero, np.int64(-BAD_VARINT)
    offset_delta, position = _read_signed(blob, position, record_end, _VARINT32_BYTES)
    if position < 0:
        return zero, zero, zero, np.int64(-BAD_VARINT)
    return record_end, timestamp_delta, offset_delta, position


@inlined
def _read_string(blob: Any, position: Any, end: Any) -> Any:
    """Return (start, length or -1, position after it). A negative position is an error code, negated."""
    length, position = _read_signed(blob, position, end, _VARINT32_BYTES)
    if position < 0:
        return np.int64(0), np.int64(0), np.int64(-BAD_VARINT)
    if length > end - position:
        return np.int64(0), np.int64(0), np.int64(-BAD_LENGTH)
    if length < 0:
        return position, np.int64(-1), position
    return position, length, position + length


@inlined
def _skip_headers(blob: Any, position: Any, end: Any) -> Any:
    """Return the position after a record's headers section, or -1."""
    count, position = _read_signed(blob, position, end, _VARINT32_BYTES)
    if position < 0 or count < 0:
        return np.int64(-1)
    for _ in range(count):
        _, length, position = _read_string(blob, position, end)
        if position < 0 or length < 0:
            return np.int64(-1)
        _, length, position = _read_string(blob, position, end)
        if position < 0:
            return np.int64(-1)
    return position


@kernel(
    "bytes",
    "int64 table",
    "int64",
    *("int64s out",) * 2,
    *("int64s out", "int32s out") * 3,
)
def decode_records(
    blob: Any,
    batches: Any,
    first_offset: Any,
    offsets: Any,
    timestamps: Any,
    key_starts: Any,
    key_lengths: Any,
    value_starts: Any,
    value_lengths: Any,
    header_starts: Any,
    header_lengths: Any,
) -> Any:
    """Read records of `batches` (rows of DESCRIPTION_FIELDS) from `first_offset` on; return (records, code, batch)."""
    at = 0
    for batch in range(len(batches)):
        position, end, count = batches[batch, 0], batches[batch, 1], batches[batch, 2]
        base_offset, base_timestamp, last_delta = batches[batch, 3], batches[batch, 4], batches[batch, 5]
        fixed, fixed_timestamp = batches[batch, 6], batches[batch, 7]
        previous_delta = np.int64(-1)
        if position < 0 or end > len(blob) or at + count > len(offsets):
            return at, OVERFULL, batch
        for _ in range(count):
            record_end, timestamp_delta, offset_delta, position = _read_prefix(blob, position, end)
            if position < 0:
                return at, -position, batch
            if offset_delta <= previous_delta or offset_delta > last_delta:
                return at, BAD_OFFSET, batch
            previous_delta = offset_delta
            key_start, key_length, position = _read_string(blob, position, record_end)
            if position < 0:
                return at, -position, batch
            value_start, value_length, position = _read_string(blob, position, record_end)
            if position < 0:
                return at, -position, batch
            header_start = position
            if position == record_end - 1 and blob[position] == 0:
                position += 1
            elif _skip_headers(blob, position, record_end) == record_end:
                position = record_end
            else:
                return at, BAD_HEADERS, batch
            if base_offset + offset_delta < first_offset:
                continue
            offsets[at] = base_offset + offset_delta
            timestamps[at] = fixed_timestamp if fixed else base_timestamp + timestamp_delta
            key_starts[at], key_lengths[at] = key_start, key_length
            value_starts[at], value_lengths[at] = value_start, value_length
            header_starts[at], header_lengths[at] = header_start, position - header_start
            at += 1
        if position != end:
            return at, BAD_COUNT, batch
    return at, OK, len(batches)


@kernel(*_STRINGS, "int64s out", "bytes out")
def gather(blob: Any, starts: Any, lengths: Any, bounds: Any, output: Any) -> Any:
    """Copy the spans to `output` without gaps, each start and the last end to `bounds`; return (bytes, code, row)."""
    position = np.int64(0)
    bounds[0] = 0
    for row in range(len(lengths)):
        length = _at_least_0(np.int64(lengths[row]))
        if _outside(blob, starts[row], length):
            return position, OUTSIDE_BLOB, row
        if position + length > len(output):
            return position, OVERFULL, row
        _copy(output, position, blob, starts[row], length)
        position += length
        bounds[row + 1] = position
    return position, OK, len(lengths)


@kernel("int64s", "int32s", *_STRINGS, *_STRINGS, "int32s out", "bytes out")
def encode_headers(
    firsts: Any,
    counts: Any,
    key_blob: Any,
    key_starts: Any,
    key_lengths: Any,
    value_blob: Any,
    value_starts: Any,
    value_lengths: Any,
    sections: Any,
    output: Any,
) -> Any:
    """Encode the headers section of each row, which has `counts` headers from `firsts` on in the key and value columns.

    A call with an empty `output` stores each section's length in `sections`. A second call, with an `output` of the sum
    of these, writes the sections without gaps. A row without headers has an empty section. All `starts` must be given.
    Returns (bytes, code, row).
    """
    position = np.int64(0)
    for row in range(len(counts)):
        first, count = firsts[row], np.int64(counts[row])
        if count <= 0:
            sections[row] = 0
            continue
        if first < 0 or first + count > len(key_lengths) or first + count > len(value_lengths):
            return position, OUTSIDE_BLOB, row
        size = np.int64(_size_of_signed(count))
        for index in range(first, first + count):
            key_length, value_length = np.int64(key_lengths[index]), np.int64(value_lengths[index])
            if key_length < 0:
                return position, BAD_HEADERS, row
            if _outside(key_blob, key_starts[index], key_length) or _outside(
                value_blob, value_starts[index], value_length
            ):
                return position, OUTSIDE_BLOB, row
            size += _size_of_signed(key_length) + key_length
            size += _size_of_signed(value_length) + _at_least_0(value_length)
        if size > MAX_BODY_BYTES:
            return position, TOO_LARGE, row
        sections[row] = size
        if len(output) == 0:
            position += size
            continue
        if position + size > len(output):
            return position, OVERFULL, row
        position = _write_signed(output, position, count)
        for index in range(first, first + count):
            position = _write_string(output, position, key_blob, key_starts[index], np.int64(key_lengths[index]))
            position = _write_string(output, position, value_blob, value_starts[index], np.int64(value_lengths[index]))
    return position, OK, len(counts)


@kernel(*_STRINGS, "int64s out", *("int64s out", "int32s out") * 2)
def decode_headers(
    blob: Any,
    starts: Any,
    lengths: Any,
    bounds: Any,
    key_starts: Any,
    key_lengths: Any,
    value_starts: Any,
    value_lengths: Any,
) -> Any:
    """Find the spans of all headers of all rows.

    `bounds` (rows + 1) receives the first header of each row, and the total. A call with empty columns only counts.
    Returns (headers, code, row).
    """
    at = np.int64(0)
    bounds[0] = 0
    for row in range(len(lengths)):
        position, end = starts[row], starts[row] + lengths[row]
        if _outside(blob, position, np.int64(lengths[row])):
            return at, OUTSIDE_BLOB, row
        count = np.int64(0)
        if lengths[row] > 1:
            if _skip_headers(blob, position, end) != end:
                return at, BAD_HEADERS, row
            count, position = _read_signed(blob, position, end, _VARINT32_BYTES)
        if len(key_lengths) > 0:
            if at + count > len(key_lengths):
                return at, OVERFULL, row
            for index in range(at, at + count):
                key_starts[index], key_lengths[index], position = _read_string(blob, position, end)
                value_starts[index], value_lengths[index], position = _read_string(blob, position, end)
        at += count
        bounds[row + 1] = at
    return at, OK, len(lengths)
