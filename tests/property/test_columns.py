"""columns(batch(x)) == x for all that fits into records, and no damage to a batch can do more than raise."""

from __future__ import annotations

from itertools import accumulate, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.protocol.errors import CorruptBatch, WireError
from fencepost.protocol.records.arrays import gather
from fencepost.protocol.records.arrow import columns_to_arrow
from fencepost.protocol.records.batch import CODECS, HEADER_BYTES, iter_batches, parse_header, seal, verify_crc
from fencepost.protocol.records.columns import Columns, Record
from fencepost.protocol.records.decoding import decode_batches, decode_readable
from fencepost.protocol.records.encoding import encode_batch, encode_pairs
from fencepost.protocol.records.plain_arrays import Spans
from fencepost.protocol.records.walk import pairs_of
from tests.support.array_batches import encode_batches
from tests.support.engines import ENGINES, engine

int64s = st.integers(-(2**62), 2**62 - 1)
strings = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=70)), max_size=3)
records = st.lists(st.tuples(int64s, strings, strings, headers), min_size=1, max_size=40)
codecs = st.sampled_from(CODECS)
Rows = list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


def encoded(rows: Rows, codec: str = "none", base_offset: int = 0) -> bytes:
    return bytes(
        encode_batch(
            timestamps=[row[0] for row in rows],
            keys=[row[1] for row in rows],
            values=[row[2] for row in rows],
            headers=[row[3] for row in rows],
            compression=codec,
            base_offset=base_offset,
        )
    )


def plain(found: Record) -> tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    _, timestamp, key, value, found_headers = found
    return timestamp, key, value, list(found_headers)


@given(st.lists(st.tuples(records, codecs), min_size=1, max_size=4), st.integers(0, 2**40), st.integers(-3, 100))
def test_what_is_encoded_is_decoded(batches: list[tuple[Rows, str]], first: int, skipped: int) -> None:
    starts = [first, *(first + ended for ended in accumulate(len(rows) for rows, _ in batches))]
    buffer = b"".join(encoded(rows, codec, start) for (rows, codec), start in zip(batches, starts, strict=False))
    wanted = [row for rows, _ in batches for row in rows]
    columns = decode_batches(buffer)
    assert columns.offsets.tolist() == list(range(first, starts[-1]))
    assert [plain(record) for record in columns.records()] == wanted
    assert columns.next_offset == starts[-1]
    later = decode_batches(buffer, start_offset=first + skipped)
    assert [plain(record) for record in later.records()] == wanted[max(skipped, 0) :]
    header = parse_header(buffer)
    assert header.base_timestamp == batches[0][0][0][0]
    assert header.max_timestamp == max(row[0] for row in batches[0][0])


@given(records, codecs, st.integers(61, 2_000))
def test_cutting_keeps_every_record_and_the_limit(rows: Rows, codec: str, limit: int) -> None:
    columns = decode_batches(encoded(rows))
    outputs = []
    for name in ENGINES:
        with engine(name):
            outputs.append(encode_batches(columns, limit, compression=codec))
    batches = outputs[0]
    assert batches == outputs[1]
    assert all(verify_crc(batch) for batch in batches)
    assert all(len(batch) <= limit or parse_header(batch).record_count == 1 for batch in batches)
    assert [plain(r) for batch in batches for r in decode_batches(batch).records()] == rows


@given(records)
def test_arrow_sees_the_same_records(rows: Rows) -> None:
    columns = decode_batches(encoded(rows))
    for name, views in product(ENGINES, (False, True)):
        with engine(name):
            batch = columns_to_arrow(columns, headers=True, views=views)
        batch.validate(full=True)
        assert batch["key"].to_pylist() == [row[1] for row in rows]
        assert batch["value"].to_pylist() == [row[2] for row in rows]
        found = [[(h["key"], h["value"]) for h in each or []] for each in batch["headers"].to_pylist()]
        assert found == [row[3] for row in rows]


def lists(columns: Columns) -> list[list[int]]:
    """Everything in them but the blob."""
    return [
        numbers.tolist()
        for numbers in (
            *(columns.offsets, columns.timestamps, columns.key_start, columns.key_length),
            *(columns.value_start, columns.value_length, columns.header_start, columns.header_length),
        )
    ]


def outcome(buffer: bytes, start_offset: int) -> tuple[object, ...]:
    found = decode_readable(buffer, start_offset=start_offset, check_crc=False, max_batch_bytes=1_000_000)
    columns, flaw = found.columns, found.unreadable
    seen = (lists(columns), list(columns.records()), columns.next_offset, found.decoded_bytes)
    return (*seen, flaw and (flaw.offset, flaw.next_offset, type(flaw.error)))


@settings(max_examples=300)
@given(
    st.lists(st.tuples(records, codecs), min_size=1, max_size=3),
    st.integers(-3, 60),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
)
def test_both_engines_make_the_same_bytes_and_columns(
    batches: list[tuple[Rows, str]], start_offset: int, changes: list[tuple[int, int]]
) -> None:
    outputs, seen = [], []
    for name in ENGINES:
        with engine(name):
            outputs.append(b"".join(encoded(rows, codec, 40 * index) for index, (rows, codec) in enumerate(batches)))
            damaged = bytearray(outputs[0])
            for position, byte in changes:
                damaged[position % len(damaged)] = byte
            seen.append(outcome(bytes(damaged), start_offset))
    assert outputs[0] == outputs[1]
    assert seen[0] == seen[1]


pairs = st.lists(st.tuples(strings, strings), max_size=20)
int16s = st.integers(-(2**15), 2**15 - 1)


@given(pairs, int64s, int64s, st.integers(-(2**31), 2**31 - 1), int64s, int16s, st.booleans(), st.booleans())
def test_both_engines_make_the_same_batch_of_pairs(
    given_pairs: list[tuple[bytes | None, bytes | None]],
    time_ms: int,
    base_offset: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    transactional: bool,
    control: bool,
) -> None:
    outputs = []
    for name in ENGINES:
        with engine(name):
            outputs.append(
                encode_pairs(
                    given_pairs,
                    time_ms,
                    base_offset=base_offset,
                    partition_leader_epoch=leader_epoch,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    transactional=transactional,
                    control=control,
                )
            )
    assert outputs[0] == outputs[1]
    header = parse_header(outputs[0])
    assert verify_crc(outputs[0])
    assert (header.base_offset, header.partition_leader_epoch) == (base_offset, leader_epoch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, producer_epoch, -1)
    assert (header.is_transactional, header.is_control) == (transactional, control)
    assert (header.base_timestamp, header.max_timestamp) == (time_ms, time_ms)
    found = list(pairs_of(header, memoryview(outputs[0])))
    assert found == [(base_offset + delta, key or b"", value) for delta, (key, value) in enumerate(given_pairs)]


def check_inside(columns: Columns) -> None:
    """Every span lies in the blob, and everything can be looked at."""
    for starts, lengths in (
        (columns.key_start, columns.key_length),
        (columns.value_start, columns.value_length),
        (columns.header_start, columns.header_length),
    ):
        assert len(starts) == len(lengths) == len(columns)
        assert all(
            start >= 0 and start + max(length, 0) <= len(columns.blob)
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        )
    assert len(columns.keys()) == len(columns.values()) == len(columns)
    columns.all_headers()


@settings(max_examples=400)
@given(
    records,
    codecs,
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 100),
)
def test_damage_raises_or_is_harmless(rows: Rows, codec: str, changes: list[tuple[int, int]], cut: int) -> None:
    damaged = bytearray(encoded(rows, codec))
    for position, byte in changes:
        damaged[position % len(damaged)] = byte
    buffer = damaged[: len(damaged) - cut] if cut < 20 else damaged
    try:
        columns = decode_batches(buffer, check_crc=False, max_batch_bytes=1_000_000)
    except WireError:
        return
    check_inside(columns)


@settings(max_examples=400)
@given(st.binary(max_size=120), st.integers(0, 12), st.integers(0, 20), st.booleans())
def test_any_section_raises_or_is_harmless(section: bytes, count: int, delta: int, log_append_time: bool) -> None:
    batch = seal(
        section,
        record_count=count,
        last_offset_delta=delta,
        base_timestamp=0,
        max_timestamp=0,
        log_append_time=log_append_time,
    )
    try:
        columns = decode_batches(batch)
    except CorruptBatch:
        return
    assert len(columns) == count
    check_inside(columns)


@given(records, st.data())
def test_one_changed_byte_is_noticed_by_the_crc(rows: Rows, data: st.DataObject) -> None:
    batch = bytearray(encoded(rows))
    position = data.draw(st.integers(17, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    assert not verify_crc(batch)


@given(st.binary(max_size=200))
def test_any_bytes_raise_or_are_walked(data: bytes) -> None:
    try:
        total = sum(len(batch) for _, batch in iter_batches(data, allow_partial=True))
        columns = decode_batches(data, check_crc=False)
    except WireError:
        return
    assert total == 0 or total >= HEADER_BYTES
    check_inside(columns)


spans = st.lists(st.tuples(st.integers(-2, 12), st.integers(-1, 6)), max_size=5)


@given(st.lists(st.tuples(st.binary(max_size=12), spans), max_size=4))
def test_both_forms_join_the_same_strings(described: list[tuple[bytes, list[tuple[int, int]]]]) -> None:
    columns = [
        Spans(
            np.frombuffer(blob, np.uint8),
            np.array([start for start, _ in cuts], np.int64),
            np.array([length for _, length in cuts], np.int32),
        )
        for blob, cuts in described
    ]
    outputs: list[object] = []
    for name in ENGINES:
        with engine(name):
            try:
                bounds, strings = gather(columns)
            except CorruptBatch as error:
                outputs.append(str(error))
            else:
                outputs.append((bounds.tolist(), strings.tobytes()))
    assert outputs[0] == outputs[1]
