"""Batches of a Fetch response, decoded in one native call or step by step in Python: the same, whatever they hold."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.records import native_loops
from fencepost.protocol.records.batch import HEADER_BYTES, pack_header, parse_header, seal_in_place
from fencepost.protocol.records.decoding import decode_readable
from fencepost.protocol.records.encoding import encode_batch
from fencepost.protocol.records.markers import encode_marker
from tests.support.engines import engine

kinds = st.sampled_from(["plain"] * 6 + ["marker", "compressed", "empty", "odd marker", "append time"])
batches = st.lists(st.tuples(kinds, st.integers(1, 4), st.integers(-1, 2), st.booleans()), max_size=6)
damages = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), max_size=2)
HEADER_CHANGES = st.lists(st.tuples(st.integers(0, 60), st.sampled_from([0, 1, 2, 0x20, 0x7F, 0x80, 0xFF])), max_size=1)


def batch_of(kind: str, records: int, epoch: int, transactional: bool, base_offset: int) -> bytes:
    """Return one batch."""
    if kind in ("marker", "odd marker"):
        marker = encode_marker(True, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp_ms=5)
        if kind == "odd marker":
            marker += b"\0"
        return sealed_again(
            marker, base_offset=base_offset, partition_leader_epoch=epoch, batch_length=len(marker) - 12
        )
    batch = encode_batch(
        values=[b"v" * (400 if kind == "compressed" else records + row) for row in range(records)],
        timestamps=list(range(records)),
        compression="gzip" if kind == "compressed" else "none",
        base_offset=base_offset,
        partition_leader_epoch=epoch,
        log_append_time=kind == "append time",
        transactional=transactional,
        producer_id=7 if transactional else -1,
    )
    if kind == "empty":
        header = parse_header(batch)._replace(record_count=0, batch_length=HEADER_BYTES - 12)
        return pack_header(header, b"")
    return bytes(batch)


def sealed_again(batch: bytearray, **changes: int) -> bytes:
    header = parse_header(batch)._replace(**changes)
    return pack_header(header, batch[HEADER_BYTES:]) + bytes(batch[HEADER_BYTES:])


def outcome(buffer: bytes, **more: Any) -> Any:
    """Everything that decoding returns."""
    columns, unreadable, decoded_bytes, epochs = decode_readable(buffer, **more)
    flaw = None if unreadable is None else (*unreadable[:2], type(unreadable.error))
    return list(columns.records()), columns.next_offset, flaw, decoded_bytes, list(epochs)


def none(*_: Any, **__: Any) -> None:
    """Stands for a native call that finds something unusual."""


def outcomes(buffer: bytes, **more: Any) -> list[Any]:
    """The outcome in one native call, in native steps, and in Python."""
    found = []
    for name, call in (("native", native_loops.decode_fetched_batches), ("native", none), ("plain", none)):
        with engine(name), mock.patch.object(native_loops, "decode_fetched_batches", call):
            found.append(outcome(buffer, **more))
    return found


def joined(described: list[tuple[str, int, int, bool]]) -> bytes:
    found, offset = [], 3
    for kind, records, epoch, transactional in described:
        found.append(batch_of(kind, records, epoch, transactional, offset))
        offset += records if kind not in ("marker", "odd marker") else 1
    return b"".join(found)


@given(
    batches,
    damages,
    HEADER_CHANGES,
    st.integers(0, 40),
    st.integers(0, 12),
    st.none() | st.just([]) | st.just([(7, 4)]),
    st.booleans(),
    st.sampled_from([1, 104, 300, 10**6]),
    st.none() | st.sampled_from([1, 100, 10**6]),
)
def test_one_call_finds_what_single_steps_find(
    described: list[Any],
    damage: list[tuple[int, int]],
    header_damage: list[tuple[int, int]],
    cut: int,
    first: int,
    aborted: Any,
    check_crc: bool,
    batch_bytes: int,
    room_bytes: int | None,
) -> None:
    buffer = bytearray(joined(described))
    for at, value in (*damage, *header_damage):
        if at < len(buffer):
            buffer[at] = value
    whole = bytes(buffer[: len(buffer) - cut] if cut < 20 else buffer)
    more = {
        "start_offset": first,
        "aborted": aborted,
        "check_crc": check_crc,
        "max_batch_bytes": batch_bytes,
        "room_bytes": room_bytes,
    }
    found = outcomes(whole, **more)
    assert found[0] == found[1] == found[2]


USUAL = [("plain", 3, 0, False), ("append time", 2, 0, False), ("plain", 1, 1, True), ("marker", 1, 1, True)]


@pytest.mark.parametrize(
    ("described", "aborted", "expected"),
    [
        (USUAL, [], True),
        (USUAL, None, True),
        ([*USUAL, ("empty", 2, 1, False)], [], True),
        ([("odd marker", 1, 0, True)], None, True),
        ([("odd marker", 1, 0, True)], [], False),
        ([*USUAL, ("compressed", 1, 0, False)], None, False),
    ],
)
def test_usual_answers_take_one_call(described: list[Any], aborted: Any, expected: bool) -> None:
    with engine("native"):
        found = native_loops.decode_fetched_batches(
            memoryview(joined(described)),
            0,
            checks_markers=aborted is not None,
            checks_crc=True,
            batch_bytes=10**6,
            room_bytes=None,
        )
    assert (found is not None) == expected


def test_an_answer_with_aborted_transactions_is_read_step_by_step() -> None:
    buffer = joined([("plain", 2, 0, True), ("plain", 1, 0, False)])
    with engine("native"), mock.patch.object(native_loops, "decode_fetched_batches") as called:
        records, *_ = outcome(buffer, aborted=[(7, 3)])
    assert (called.call_count, [offset for offset, *_ in records]) == (0, [5])


def test_a_wrong_crc_is_found_in_one_call() -> None:
    """Of a batch whose bytes are those of the format description, and whose CRC is not."""
    batch = encode_batch(values=[b"value"])
    seal_in_place(batch, record_count=1, base_timestamp=0, max_timestamp=0, sealed=False)
    with engine("native"):
        for checks_crc, expected in ((True, None), (False, 1)):
            found = native_loops.decode_fetched_batches(
                memoryview(batch), 0, checks_markers=False, checks_crc=checks_crc, batch_bytes=10**6, room_bytes=None
            )
            assert (None if found is None else len(found[0])) == expected
