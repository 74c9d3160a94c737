"""Arrow to batches and back: types, nulls, slices, chunks, headers; what is shared and what is copied."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.arrow import HEADERS_TYPE, columns_to_arrow, encode_arrow, repeated
from fencepost.protocol.records.batch import parse_header
from fencepost.protocol.records.columns import Columns
from fencepost.protocol.records.decoding import decode_batches
from tests.support.engines import ENGINES, engine
from tests.unit.protocol.kafka_batches import BATCHES, MIXED

KEYS = [b"x", None, b"", b"longer than twelve bytes", b"z"]
VALUES = ["v1", None, "", "wörd " * 10, "last one"]
HEADERS: list[list[tuple[str, bytes | None]] | None] = [None, [("a", b"1"), ("b", None)], [], [("ключ", b"")], None]
SLICES = [slice(0, 5), slice(1, 4), slice(3, 5), slice(1, 2), slice(2, 3)]


@pytest.fixture(autouse=True, params=ENGINES)
def engine_used(request: pytest.FixtureRequest) -> Iterator[None]:
    with engine(request.param):
        yield


def header_array() -> Any:
    rows = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in HEADERS]
    return pa.array(rows, HEADERS_TYPE)


def decoded(batches: list[bytearray]) -> Columns:
    (batch,) = batches
    return decode_batches(batch)


def utf8(texts: list[str | None]) -> list[bytes | None]:
    return [None if text is None else text.encode() for text in texts]


@pytest.mark.parametrize("rows", SLICES)
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_binary_keys(kind: Any, rows: slice) -> None:
    columns = decoded(encode_arrow(pa.array(KEYS, kind)[rows], None))
    assert columns.keys() == KEYS[rows]
    assert columns.values() == [None] * len(KEYS[rows])


@pytest.mark.parametrize("rows", SLICES)
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_string_values(kind: Any, rows: slice) -> None:
    columns = decoded(encode_arrow(None, pa.array(VALUES, pa.string()).cast(kind)[rows]))
    assert columns.values() == utf8(VALUES[rows])


def test_columns_without_nulls_and_of_nulls() -> None:
    columns = decoded(encode_arrow(pa.nulls(2), pa.array([b"ab", b"cd", b"ef"])[1:]))
    assert (columns.keys(), columns.values()) == ([None, None], [b"cd", b"ef"])
    fixed = pa.array([b"abcd", None], pa.binary(4))
    assert decoded(encode_arrow(fixed, None)).keys() == [b"abcd", None]


@pytest.mark.parametrize("rows", SLICES)
def test_headers(rows: slice) -> None:
    columns = decoded(encode_arrow(None, pa.array(VALUES)[rows], 0, header_array()[rows]))
    assert [list(headers) for headers in columns.all_headers()] == [headers or [] for headers in HEADERS[rows]]


def test_headers_of_nobody() -> None:
    columns = decoded(encode_arrow(None, pa.array([b"a", b"b"]), 0, pa.nulls(2, HEADERS_TYPE)))
    assert not columns.has_headers
    columns = decoded(encode_arrow(None, pa.array([b"a", b"b"]), 0, pa.nulls(2)))
    assert not columns.has_headers


def test_chunks_are_joined() -> None:
    values = pa.chunked_array([pa.array([b"a", None]), pa.array([], pa.binary()), pa.array([b"c"])])
    times = pa.chunked_array([pa.array([5], pa.int64()), pa.array([6, 7], pa.int64())])
    columns = decoded(encode_arrow(values, values, times))
    assert columns.keys() == columns.values() == [b"a", None, b"c"]
    assert columns.timestamps.tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("unit", "factor"), [("s", 1_000), ("ms", 1), ("us", 0.001), ("ns", 0.000001)], ids=["s", "ms", "us", "ns"]
)
def test_timestamps_of_any_unit_become_milliseconds(unit: str, factor: float) -> None:
    raw = [1_600_000_000_123_456_789, 1_600_000_000_000_000_000] if unit == "ns" else [1_600_000_000, 1_700_000_000]
    times = pa.array([0, *raw], pa.int64()).cast(pa.timestamp(unit, "UTC"))[1:]
    columns = decoded(encode_arrow(None, pa.array([b"a", b"b"]), times))
    expected = [1_600_000_000_123, 1_600_000_000_000] if unit == "ns" else [int(each * factor) for each in raw]
    assert columns.timestamps.tolist() == expected


def test_batches_are_cut_to_a_size() -> None:
    values = pa.array([b"%04d" % i for i in range(1_000)])
    batches = encode_arrow(values, values, 3, max_batch_bytes=200, producer_id=1, producer_epoch=2, base_sequence=10)
    assert len(batches) > 100
    assert all(len(batch) <= 200 for batch in batches)
    assert [value for batch in batches for value in decode_batches(batch).values()] == values.to_pylist()
    sequence = 10
    for header in map(parse_header, batches):
        assert header.base_sequence == sequence
        sequence += header.record_count
    assert sequence == 1_010


def test_what_cannot_be_encoded_is_refused() -> None:
    with pytest.raises(TypeError, match="int64"):
        encode_arrow(pa.array([1, 2]), None)
    with pytest.raises(TypeError, match="timestamps"):
        encode_arrow(None, pa.array([b"a"]), pa.array([1.5]))
    with pytest.raises(TypeError, match="headers"):
        encode_arrow(None, pa.array([b"a"]), 0, pa.array(["a=b"]))
    with pytest.raises(ValueError, match="timestamp is null"):
        encode_arrow(None, pa.array([b"a"]), pa.array([None], pa.int64()))
    with pytest.raises(ValueError, match="different lengths"):
        encode_arrow(pa.array([b"a"]), pa.array([b"a", b"b"]))
    with pytest.raises(ValueError, match="key is null"):
        encode_arrow(None, pa.array([b"a"]), 0, pa.array([[{"key": None, "value": b""}]], HEADERS_TYPE))
    with pytest.raises(ValueError, match="no records"):
        encode_arrow(None, pa.array([], pa.binary()))


@pytest.mark.parametrize("views", [False, True])
def test_kafkas_batch_becomes_arrow(views: bool) -> None:
    batch = columns_to_arrow(decode_batches(BATCHES["mixed_lz4"]), headers=True, views=views)
    batch.validate(full=True)
    assert batch.to_pylist() == [
        {
            "offset": offset,
            "timestamp": timestamp,
            "key": key,
            "value": value,
            "headers": [{"key": k, "value": v} for k, v in headers] if headers else None,
        }
        for offset, timestamp, key, value, headers in MIXED
    ]
    assert batch.schema.field("key").type == (pa.binary_view() if views else pa.binary())
    assert batch.schema.field("headers").type == HEADERS_TYPE


def test_selected_rows_become_arrow() -> None:
    columns = decode_batches(BATCHES["mixed_none"]).select(slice(5, None, -2))
    batch = columns_to_arrow(columns, headers=True)
    batch.validate(full=True)
    assert batch["key"].to_pylist() == [b"h", None, None]
    assert batch["offset"].to_pylist() == [5, 3, 1]


def test_no_rows_become_an_empty_batch() -> None:
    for views in (False, True):
        batch = columns_to_arrow(Columns.empty(), headers=True, views=views)
        batch.validate(full=True)
        assert batch.num_rows == 0


def test_offsets_and_views_share_memory() -> None:
    columns = decode_batches(BATCHES["big_gzip"])
    batch = columns_to_arrow(columns, views=True)
    assert batch["offset"].buffers()[1].address == np.asarray(columns.offsets).ctypes.data
    assert batch["value"].buffers()[2].address == np.frombuffer(columns.blob, np.uint8).ctypes.data


def test_nulls_only_take_no_blob() -> None:
    columns = decoded(encode_arrow(None, pa.array([b"a" * 100] * 10)))
    assert columns_to_arrow(columns)["key"].null_count == 10


def test_arrow_shows_a_header_key_that_is_not_utf_8() -> None:
    columns = decoded(encode_arrow(None, pa.array([b"a"]), 0, pa.array([[{"key": "k", "value": b""}]], HEADERS_TYPE)))
    blob = bytearray(columns.blob)
    blob[int(columns.header_start[0]) + 2] = 0xFF
    columns.blob = memoryview(blob)
    expected = [[{"key": "\N{REPLACEMENT CHARACTER}", "value": b""}]]  # as Java's decoder does it
    assert columns_to_arrow(columns, headers=True)["headers"].to_pylist() == expected


def test_spans_outside_the_blob_do_not_reach_arrow() -> None:
    columns = decode_batches(BATCHES["mixed_none"])
    columns.value_start = memoryview(array("q", [start + 10_000 for start in columns.value_start.tolist()]))
    with pytest.raises(CorruptBatch, match="outside its blob"):
        columns_to_arrow(columns)


def test_offsets_of_repeated_text_do_not_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (repeated("topic", 3).type, repeated("topic", 3).to_pylist()) == (pa.string(), ["topic"] * 3)
    monkeypatch.setattr("fencepost.protocol.records.arrow._INT32_MAX", 14)
    large = repeated("topic", 3)
    large.validate(full=True)
    assert (large.type, large.to_pylist()) == (pa.large_string(), ["topic"] * 3)
    assert repeated("topic", 2).type == pa.string()
