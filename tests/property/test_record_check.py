"""Both walks over a records section find the same, and what the decoder finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import HEADER_BYTES, NO_TIMESTAMP
from fencepost.protocol.records.check import Checked, _walk
from fencepost.protocol.records.check_kernel import check_many, find_timestamp
from fencepost.protocol.records.encoding import encode_batch

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
