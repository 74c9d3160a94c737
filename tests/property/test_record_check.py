"""Both walks over a records section find the same, and what the decoder finds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import HEADER_BYTES, NO_TIMESTAMP, parse_header, seal
from fencepost.protocol.records.check import Checked, _walk
from fencepost.protocol.records.decoding import decode_batches
from fencepost.protocol.records.encoding import encode_batch
from fencepost.protocol.records.native_loops import check_many, find_timestamp
from fencepost.protocol.records.walk import records_of
from fencepost.protocol.varint import encode_varint
from tests.support.engines import ENGINES, engine


@pytest.fixture(autouse=True)
def native_loops() -> Iterator[None]:
    with engine("native"):
        yield


rows = st.lists(
    st.tuples(
        st.integers(-1, 2**62),
        st.none() | st.binary(max_size=100),
        st.none() | st.binary(max_size=100),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


def section_of(found: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> bytes:
    batch = encode_batch(
        keys=[row[1] for row in found],
        values=[row[2] for row in found],
        timestamps=[row[0] for row in found],
        headers=[row[3] for row in found],
    )
    return bytes(batch[HEADER_BYTES:])


@given(rows)
def test_what_is_sound(found: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> None:
    section, base = section_of(found), found[0][0]
    times = [row[0] for row in found]
    expected = Checked(
        min((time for time in times if time != NO_TIMESTAMP), default=NO_TIMESTAMP),
        max(times),
        next((number for number, row in enumerate(found) if row[1] is None), -1),
    )
    assert check_many(section, len(found), base) == _walk(section, len(found), base) == expected
    for wanted in times:
        first = times.index(wanted)
        assert find_timestamp(section, len(found), base, wanted, wanted, 0) == (wanted, first)
        assert find_timestamp(section, len(found), base, max(times) + 1, 2**63 - 1, 0) is None
    for wrong in (len(found) - 1, len(found) + 1):
        for check in (check_many, _walk):
            with pytest.raises(CorruptBatch):
                check(section, wrong, base)


@settings(max_examples=500)
@given(rows, st.data())
def test_damage_is_seen_by_both(
    found: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], data: st.DataObject
) -> None:
    section = bytearray(section_of(found))
    for _ in range(data.draw(st.integers(1, 3))):
        section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    outcomes: list[tuple[int, int, int] | None] = []
    for check in (check_many, _walk):
        try:
            outcomes.append(check(bytes(section), len(found), found[0][0]))
        except CorruptBatch:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 4))
def test_any_bytes(section: bytes, count: int) -> None:
    outcomes: list[tuple[int, int, int] | None] = []
    for check in (check_many, _walk):
        try:
            outcomes.append(check(section, count, 0))
        except CorruptBatch:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


int32s = st.tuples(
    st.booleans(), st.integers(1, 7)
)  # whether a number is longer than it has to be, and what is cut off


def spelled(value: int, spelling: tuple[bool, int]) -> bytes:
    """A varint of an int32, or five bytes of which the lower 32 bits are it."""
    is_long, more = spelling
    raw = (value << 1) ^ (value >> 31)
    return (
        bytes([*(raw >> bits & 0x7F | 0x80 for bits in (0, 7, 14, 21)), raw >> 28 | more << 4])
        if is_long
        else (encode_varint(value))
    )


@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=70), st.none() | st.binary(max_size=70)), min_size=1, max_size=20
    ),
    st.lists(int32s, min_size=1, max_size=20),
    st.sampled_from((0, 2**63 - 1, -(2**63))),
    st.integers(-(2**63), 2**63 - 1),
)
def test_a_walk_reads_what_a_consumer_reads(
    found: list[tuple[bytes | None, bytes | None]], spellings: list[tuple[bool, int]], base: int, later: int
) -> None:
    spelling = cycle(spellings)
    section = b""
    for number, fields in enumerate(found):
        body = b"\0" + encode_varint(later if number % 2 else 0) + spelled(number, next(spelling))
        for field in fields:
            body += spelled(-1 if field is None else len(field), next(spelling)) + (field or b"")
        body += spelled(1, next(spelling)) + spelled(1, next(spelling)) + b"h" + spelled(-1, next(spelling))
        section += spelled(len(body), next(spelling)) + body
    batch = bytes(seal(section, record_count=len(found), base_timestamp=base, max_timestamp=base))
    walked = [
        (each.offset, each.timestamp, each.key, each.value)
        for each in records_of(parse_header(batch), memoryview(batch))
    ]
    for name in ENGINES:
        with engine(name):
            read = list(decode_batches(batch).records())
        assert [record[:4] for record in read] == walked
        assert [list(record[4]) for record in read] == [[("h", None)]] * len(found)
    assert [(key, value) for _, _, key, value in walked] == found
