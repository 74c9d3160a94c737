"""Convert between Arrow arrays and the columns of a record batch. Buffers are shared where the layouts agree.

Arrow's binary layout stores strings contiguously; a batch does not. Keys and values for Arrow are therefore copied
once, or shared as binary_view. From Arrow, the encoder reads the arrays' own buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Unpack

import numpy as np
import pyarrow as pa

from fencepost.protocol.records.arrays import decode_headers, encode_headers, encode_source, gather
from fencepost.protocol.records.batch import Stamp
from fencepost.protocol.records.columns import Columns
from fencepost.protocol.records.plain_arrays import ALL_NULL, Int64s, SourceColumns, Spans
from fencepost.protocol.records.sealing import MAX_BATCH_BYTES

__all__ = [
    "HEADERS_TYPE",
    "as_milliseconds",
    "column_to_arrow",
    "columns_to_arrow",
    "encode_arrow",
    "numbers",
    "repeated",
    "strings_to_arrow",
    "valid_rows",
]

HEADERS_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_INT32_MAX = 2**31 - 1
_VIEW_INLINE_BYTES = 12


def column_to_arrow(columns: Columns, name: str, *, views: bool = False) -> pa.Array:
    """Return one column as an Arrow array.

    The types are: offset int64, timestamp int64 (ms), key binary, value binary, headers list<struct<key, value>>.
    Offsets and timestamps are not copied. Keys and values are copied once, as large_binary beyond 2 GiB, because
    Arrow's binary layout needs contiguous strings. With `views` they are shared as binary_view. Records without headers
    have a null there, as in Spark.

    Raises:
        KeyError: There is no column of this name.
    """
    match name:
        case "offset":
            return numbers(np.asarray(columns.offsets))
        case "timestamp":
            return numbers(np.asarray(columns.timestamps))
        case "headers":
            return _headers_to_arrow(columns)
        case _:
            spans = _spans_of(columns, name)
            return _views(spans) if views else _gathered([spans])


def strings_to_arrow(pieces: Sequence[Columns], name: str) -> list[pa.Array]:
    """Return the keys or the values of all pieces like `column_to_arrow`, in one array if it has less than 2 GiB."""
    columns = [_spans_of(piece, name) for piece in pieces]
    lengths = _joined_lengths(columns)
    if int(np.maximum(lengths, 0).sum(dtype=np.int64)) > _INT32_MAX:
        return [_gathered([spans]) for spans in columns]
    return [_gathered(columns, lengths)]


def _joined_lengths(columns: Sequence[Spans]) -> Any:
    return columns[0].lengths if len(columns) == 1 else np.concatenate([spans.lengths for spans in columns])


def _spans_of(columns: Columns, name: str) -> Spans:
    match name:
        case "key":
            starts, lengths = columns.key_start, columns.key_length
        case "value":
            starts, lengths = columns.value_start, columns.value_length
        case _:
            raise KeyError(name)
    return Spans(np.frombuffer(columns.blob, np.uint8), np.ascontiguousarray(starts), np.ascontiguousarray(lengths))


def columns_to_arrow(columns: Columns, *, headers: bool = False, views: bool = False) -> pa.RecordBatch:
    """Return all columns as a record batch; the headers only if `headers` is set."""
    names = ["offset", "timestamp", "key", "value", *(["headers"] if headers else [])]
    return pa.RecordBatch.from_arrays([column_to_arrow(columns, name, views=views) for name in names], names=names)


def encode_arrow(
    keys: pa.Array | pa.ChunkedArray | None,
    values: pa.Array | pa.ChunkedArray | None,
    timestamps: pa.Array | pa.ChunkedArray | Int64s | int = 0,
    headers: pa.Array | pa.ChunkedArray | None = None,
    *,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    compression: str = "none",
    level: int | None = None,
    **stamp: Unpack[Stamp],
) -> list[bytearray]:
    """Encode Arrow columns into sealed batches, starting a new one where `max_batch_bytes` would be exceeded.

    A single record may exceed the limit. If `base_sequence` is given, the sequences of the batches are contiguous.

    Args:
        keys: Binary or string, also of large or view types, with nulls and slices; None: all null.
        values: Like `keys`.
        timestamps: Timestamps of any unit, int64 milliseconds, or one int for all; no nulls.
        headers: list<struct<key: string, value: binary>>; a null or empty list means no headers.
        max_batch_bytes: Largest size of a batch, in bytes.
        compression: A codec's name.
        level: The codec's level; default: Kafka's.
        **stamp: Header fields of the batches.

    Raises:
        ValueError: A column is not valid.
        TypeError: A column has another type.
    """
    return encode_source(_source(keys, values, timestamps, headers), max_batch_bytes, compression, level, stamp)


def _source(keys: Any, values: Any, timestamps: Any, headers: Any) -> SourceColumns:
    counts = {len(column) for column in (keys, values, headers) if column is not None}
    if not isinstance(timestamps, int):
        counts.add(len(timestamps))
    if len(counts) != 1:
        raise ValueError(f"columns of different lengths, or none at all: {sorted(counts)}")
    (rows,) = counts
    return SourceColumns(
        rows,
        ALL_NULL if keys is None else _spans(_unchunked(keys), packed=True),
        ALL_NULL if values is None else _spans(_unchunked(values), packed=True),
        ALL_NULL if headers is None else _header_sections(_unchunked(headers)),
        _milliseconds(timestamps),
    )


# ---- to Arrow


def numbers(values: Any, kind: pa.DataType | None = None) -> pa.Array:
    """Return a numpy array of numbers as an Arrow array, without a copy. `kind` may be another type of the same width.

    `pa.array` is not used because it imports pandas, if installed.
    """
    plain = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind or pa.from_numpy_dtype(plain.dtype), len(plain), [None, pa.py_buffer(plain)])


def repeated(text: str, rows: int) -> pa.Array:
    """Return a string column that repeats one text (large_string beyond 2 GiB).

    `pa.scalar` is not used because it imports pandas, if installed.
    """
    raw = text.encode()
    is_large = len(raw) * rows > _INT32_MAX
    bounds = np.arange(rows + 1, dtype=np.int64 if is_large else np.int32) * len(raw)
    kind = pa.large_string() if is_large else pa.string()
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(bounds), pa.py_buffer(raw * rows)])


def _validity(lengths: Any) -> tuple[pa.Buffer | None, int]:
    """Return (validity bitmap or None, number of nulls)."""
    nulls = int(np.count_nonzero(lengths < 0))
    if not nulls:
        return None, 0
    return pa.py_buffer(np.packbits(lengths >= 0, bitorder="little")), nulls


def _gathered(columns: Sequence[Spans], lengths: Any = None) -> pa.Array:
    """Return the strings of all columns, whose arrays must be contiguous. `lengths` are those of all, if known."""
    lengths = _joined_lengths(columns) if lengths is None else lengths
    rows = len(lengths)
    if rows and int(lengths.max()) < 0:
        return pa.nulls(rows, pa.binary())
    bounds, strings = gather(columns)
    is_large = len(strings) > _INT32_MAX
    offsets = bounds if is_large else bounds.astype(np.int32)
    validity, nulls = _validity(lengths)
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(strings)]
    return pa.Array.from_buffers(pa.large_binary() if is_large else pa.binary(), rows, buffers, nulls)


def _views(spans: Spans) -> pa.Array:
    """Return a binary_view array over the blob.

    A view has 16 bytes: the length, then either 12 bytes of data, or 4 bytes of data, buffer and offset.
    """
    blob, starts, lengths = spans
    if len(blob) > _INT32_MAX:
        raise ValueError("binary_view offsets reach 2 GiB; the blob is larger")
    rows = len(lengths)
    views = np.zeros((rows, 16), np.uint8)
    sizes = np.maximum(lengths, 0).astype(np.int32)
    words = views.view(np.int32)
    words[:, 0] = sizes
    is_long = sizes > _VIEW_INLINE_BYTES
    words[is_long, 3] = starts[is_long]
    for index in range(_VIEW_INLINE_BYTES):
        rows_here = (sizes > index) & (~is_long if index >= 4 else np.True_)
        views[rows_here, 4 + index] = blob[starts[rows_here] + index]
    validity, nulls = _validity(lengths)
    return pa.Array.from_buffers(
        pa.binary_view(), rows, [validity, pa.py_buffer(views), pa.py_buffer(np.ascontiguousarray(blob))], nulls
    )


def _headers_to_arrow(columns: Columns) -> pa.Array:
    rows = len(columns)
    if not columns.has_headers:
        return pa.nulls(rows, HEADERS_TYPE)
    lengths = np.ascontiguousarray(columns.header_length)
    blob = np.frombuffer(columns.blob, np.uint8)
    bounds, key_spans, value_spans = decode_headers(Spans(blob, np.ascontiguousarray(columns.header_start), lengths))
    keys = _text(_gathered([key_spans]))
    values = _gathered([value_spans]).cast(pa.binary())
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
    validity, nulls = _validity(np.where(lengths > 1, lengths, -1))
    buffers = [validity, pa.py_buffer(bounds.astype(np.int32))]
    return pa.Array.from_buffers(HEADERS_TYPE, rows, buffers, nulls, children=[pairs])


def _text(strings: pa.Array) -> pa.Array:
    """Cast to string. Bytes that are not UTF-8 become U+FFFD, as in Kafka's clients."""
    try:
        return strings.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([raw.decode(errors="replace") for raw in strings.to_pylist()], pa.string())


# ---- from Arrow


def _unchunked(column: Any) -> Any:
    """Return an array without chunks; joined chunks get the large layout if the small one could overflow."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    is_string = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    if is_string and column.nbytes > _INT32_MAX:
        column = column.cast(pa.large_binary())
    return column.combine_chunks()


def valid_rows(array: pa.Array) -> Any:
    """Return a mask of the rows that are not null, or None if all are valid."""
    if not array.null_count:
        return None
    bitmap = array.buffers()[0]
    if bitmap is None:
        return np.zeros(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little", count=array.offset + len(array))
    return bits[array.offset :].astype(np.bool_)


def _bounds(array: Any) -> Any:
    """Return the rows + 1 offsets of a list, binary or string array from its buffer."""
    kind = array.type
    is_large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) or pa.types.is_large_list(kind)
    dtype = np.dtype(np.int64 if is_large else np.int32)
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array) + 1, dtype)
    return np.frombuffer(buffer, dtype, len(array) + 1, array.offset * dtype.itemsize)


def _spans(array: Any, *, packed: bool) -> Spans:
    """Return the strings of an array. With `packed`, starts are omitted if the strings are contiguous."""
    kind = array.type
    if pa.types.is_null(kind):
        return ALL_NULL if packed else Spans(ALL_NULL.blob, np.zeros(len(array), np.int64), _nulls(len(array)))
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind) or pa.types.is_fixed_size_binary(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    if not any(
        is_kind(kind)
        for is_kind in (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)
    ):
        raise TypeError(f"a column of keys or values must be binary or string, not {kind}")
    bounds = _bounds(array)
    sizes = np.diff(bounds)
    if len(sizes) and int(sizes.max()) > _INT32_MAX:
        raise ValueError("a key or value is larger than 2 GiB")
    lengths = sizes.astype(np.int32, copy=False)
    data = array.buffers()[2]
    blob = ALL_NULL.blob if data is None else np.frombuffer(data, np.uint8)
    valid = valid_rows(array)
    if valid is None and packed:
        return Spans(blob[int(bounds[0]) : int(bounds[-1])], ALL_NULL.starts, lengths)
    if valid is not None:
        lengths = np.where(valid, lengths, np.int32(-1))
    return Spans(blob, bounds[:-1].astype(np.int64, copy=False), lengths)


def _nulls(rows: int) -> Any:
    return np.full(rows, -1, np.int32)


def _header_sections(array: Any) -> Spans:
    """Encode the headers section of each row of a list<struct<key, value>> array."""
    kind = array.type
    if pa.types.is_null(kind):
        return ALL_NULL
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
        raise TypeError(f"headers must be list<struct<key: string, value: binary>>, not {kind}")
    pairs = array.values
    if pairs.null_count:
        raise ValueError("a header is null; only its value may be")
    key_column, value_column = _spans(pairs.field(0), packed=False), _spans(pairs.field(1), packed=False)
    bounds = _bounds(array).astype(np.int64, copy=False)
    counts = np.diff(bounds).astype(np.int32)
    valid = valid_rows(array)
    if valid is not None:
        counts = np.where(valid, counts, np.int32(0))
    sections = encode_headers(bounds[:-1], counts, key_column, value_column)
    return sections if len(sections.blob) else ALL_NULL


def as_milliseconds(timestamps: Any) -> Any:
    """Return an array of timestamps, or of whole milliseconds, as int64. Fractions of a millisecond are cut off.

    Raises TypeError for another type, and pyarrow.ArrowInvalid for seconds that do not fit in 64 bits as milliseconds.
    """
    kind = timestamps.type
    if pa.types.is_timestamp(kind):
        return timestamps.cast(pa.timestamp("ms", kind.tz), safe=kind.unit == "s").cast(pa.int64())
    if pa.types.is_null(kind):
        return timestamps.cast(pa.int64())
    if not pa.types.is_int64(kind):
        raise TypeError(f"timestamps must be timestamp or int64 (ms), not {kind}")
    return timestamps


def _milliseconds(timestamps: Any) -> Any:
    if isinstance(timestamps, int):
        return np.array([timestamps], np.int64)
    if isinstance(timestamps, np.ndarray):
        return np.ascontiguousarray(timestamps, np.int64)
    array = as_milliseconds(_unchunked(timestamps))
    if array.null_count:
        raise ValueError("a timestamp is null")
    return np.frombuffer(array.buffers()[1], np.int64, len(array), array.offset * 8)
