"""Content of a batch: XXH64 with its published values, and the cells that count in a batch's checksum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fencepost.spark.sink.content import content_of, hash_cells
from fencepost.spark.sink.decision import NO_ROWS, Content
from tests.support.engines import ENGINES, engine

# xxHash's specification and its sanity checks: XXH64 with seed 0.
PUBLISHED = {
    b"": 0xEF46DB3751D8E999,
    b"a": 0xD24EC4F1A98C6E5B,
    b"abc": 0x44BC2CF5AD770999,
    b"Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1,
}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(autouse=True, params=ENGINES)
def engine_used(request: pytest.FixtureRequest) -> Iterator[None]:
    with engine(request.param):
        yield


def batch(values: list[Any], keys: list[Any] | None = None, headers: list[Any] | None = None) -> pa.RecordBatch:
    columns = {"value": pa.array(values, pa.string())}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    if headers is not None:
        columns["headers"] = pa.array(headers, HEADERS)
    return pa.RecordBatch.from_pydict(columns)


def test_the_hash_is_xxh64() -> None:
    blob = b"".join(PUBLISHED)
    bounds = np.cumsum([0, *map(len, PUBLISHED)], dtype=np.int64)
    assert hash_cells(np.frombuffer(blob, np.uint8), bounds).tolist() == list(PUBLISHED.values())


def test_spans_outside_their_blob_are_refused() -> None:
    for bounds in ([0, 4], [-1, 2], [2, 1]):
        with pytest.raises(ValueError, match="outside"):
            hash_cells(np.zeros(3, np.uint8), np.array(bounds, np.int64))


def test_neither_order_nor_cutting_counts() -> None:
    values, keys = [f"v{n}" * (n % 40) for n in range(100)], [b"k%d" % n if n % 3 else None for n in range(100)]
    whole = content_of(batch(values, keys), "t")
    assert whole.rows == 100
    parts = batch(values, keys)
    assert content_of(parts.slice(37), "t") + content_of(parts.slice(0, 37), "t") == whole
    order = np.random.default_rng(1).permutation(100)
    assert content_of(parts.take(pa.array(order)), "t") == whole
    assert content_of(parts.slice(5, 0), "t") == NO_ROWS


def test_every_cell_counts() -> None:
    plain = content_of(batch(["a", "b"], [b"k", None]), "t")
    others = [
        content_of(batch(["a", "c"], [b"k", None]), "t"),
        content_of(batch(["a", "b"], [b"k", b""]), "t"),
        content_of(batch(["a", "b"], [None, b"k"]), "t"),
        content_of(batch(["a", None], [b"k", None]), "t"),
        content_of(batch(["a", "b"], [b"k", None]), "u"),
        content_of(batch(["a", "b"], [b"k", None], [[("h", b"1")], None]), "t"),
        content_of(batch(["a", "b"], [b"k", None], [[("h", b"1"), ("i", None)], None]), "t"),
        content_of(batch(["a", "b"], [b"k", None], [[("i", None), ("h", b"1")], None]), "t"),
        content_of(batch(["a", "b", "b", "b"], [b"k", None, None, None]), "t"),
    ]
    assert len({plain, *others}) == 1 + len(others)


def test_what_is_the_same_record_is_the_same_content() -> None:
    plain = content_of(batch(["a", "b"]), "t")
    assert content_of(batch(["a", "b"], [None, None]), "t") == plain
    assert content_of(batch(["a", "b"], None, [None, []]), "t") == plain
    named = batch(["a", "b"]).append_column("topic", pa.array(["t", "t"]))
    assert content_of(named, None) == plain
    assert content_of(named.slice(1), None) == content_of(batch(["b"]), "t")
    sliced = batch(["x", "a", "b"], None, [[("z", b"")], [("h", b"1")], [("h", b"1"), ("i", b"")]]).slice(1)
    assert content_of(sliced, "t") == content_of(
        batch(["a", "b"], None, [[("h", b"1")], [("h", b"1"), ("i", b"")]]), "t"
    )


def test_the_checksum_never_changes() -> None:
    """Decisions that are on disk carry it. The value comes from the definition: XXH64 over the cells' XXH64."""
    null = 0x6E756C6C
    cells = [xxh64(b"t"), xxh64(b"k"), xxh64(b"a"), null]
    assert content_of(batch(["a"], [b"k"]), "t") == Content(1, xxh64(b"".join(c.to_bytes(8, "little") for c in cells)))


def xxh64(data: bytes) -> int:
    """Of up to 63 bytes, plainly, after xxHash's specification."""
    p1, p2, p3, p4, p5 = (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
    mask = 2**64 - 1

    def rotl(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & mask

    def lane(acc: int, value: int) -> int:
        return rotl((acc + value * p2) & mask, 31) * p1 & mask

    rest = data
    h = p5
    if len(data) >= 32:
        words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, 32, 8)]
        lanes = [lane(start, value) for start, value in zip(((p1 + p2) & mask, p2, 0, -p1 & mask), words, strict=True)]
        h = sum(rotl(each, bits) for each, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
        for each in lanes:
            h = ((h ^ lane(0, each)) * p1 + p4) & mask
        rest = data[32:]
    h = (h + len(data)) & mask
    while len(rest) >= 8:
        h = (rotl(h ^ lane(0, int.from_bytes(rest[:8], "little")), 27) * p1 + p4) & mask
        rest = rest[8:]
    if len(rest) >= 4:
        h = (rotl(h ^ (int.from_bytes(rest[:4], "little") * p1 & mask), 23) * p2 + p3) & mask
        rest = rest[4:]
    for byte in rest:
        h = rotl(h ^ (byte * p5 & mask), 11) * p1 & mask
    h = (h ^ h >> 33) * p2 & mask
    h = (h ^ h >> 29) * p3 & mask
    return h ^ h >> 32
