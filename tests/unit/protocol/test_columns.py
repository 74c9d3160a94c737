"""Columns: Kafka's batches decoded, ours encoded as Kafka would, and the read_committed filter."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise

import pytest

from fencepost.protocol.errors import (
    CorruptBatch,
    CorruptCompression,
    DecompressionLimit,
    UnsupportedCompression,
    UnsupportedMagic,
)
from fencepost.protocol.records.batch import HEADER_BYTES, Stamp, parse_header, seal, seal_in_place
from fencepost.protocol.records.columns import Columns
from fencepost.protocol.records.compression import compress
from fencepost.protocol.records.decoding import decode_batches
from fencepost.protocol.records.encoding import encode_batch
from fencepost.protocol.records.markers import encode_marker
from tests.support.array_batches import encode_batches
from tests.support.batches import put_at
from tests.support.engines import ENGINES, engine
from tests.unit.protocol.kafka_batches import BATCHES, CODECS, MIXED, big_value


@pytest.fixture(autouse=True, params=ENGINES)
def engine_used(request: pytest.FixtureRequest) -> Iterator[str]:
    with engine(request.param):
        yield request.param


def rows(columns: Columns) -> list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    return [(offset, time, key, value, list(headers)) for offset, time, key, value, headers in columns.records()]


def at(offset: int, batch: bytearray) -> bytes:
    put_at(batch, offset, 0)
    return bytes(batch)


def data(offset: int, producer_id: int, *values: bytes, transactional: bool = True) -> bytes:
    return at(
        offset,
        encode_batch(
            values=list(values), producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=transactional
        ),
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return at(
        offset,
        encode_marker(commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0),
    )


# ---- decoding Kafka's bytes


@pytest.mark.parametrize("name", CODECS)
def test_kafkas_batches_are_decoded(name: str) -> None:
    columns = decode_batches(BATCHES[f"mixed_{name}"])
    assert rows(columns) == MIXED
    assert columns.next_offset == 6
    assert [columns.key(i) for i in range(6)] == [row[2] for row in MIXED]
    assert [columns.value(i) for i in range(6)] == [row[3] for row in MIXED]
    assert columns.headers(5) == MIXED[5][4] and columns.headers(0) == []


def test_batches_of_mixed_compression_are_one_set_of_columns() -> None:
    buffer = b"".join(BATCHES[f"mixed_{name}"] for name in CODECS) + BATCHES["big_lz4"]
    columns = decode_batches(buffer)
    assert rows(columns)[: 5 * 6] == MIXED * 5
    assert columns.values()[30:] == [big_value(), big_value()]


def test_uncompressed_records_stay_where_they_are() -> None:
    buffer = bytearray(BATCHES["mixed_none"] + BATCHES["idempotent"])
    columns = decode_batches(buffer)
    assert columns.blob.obj is buffer


def test_log_append_time_replaces_the_records_timestamps() -> None:
    columns = decode_batches(BATCHES["log_append_time"])
    assert columns.timestamps.tolist() == [1700000000000, 1700000000000]
    assert columns.offsets.tolist() == [100, 101]


def test_many_large_values_come_out_as_they_went_in() -> None:
    """They are cut out of many copies: of nulls only, of one value, and of some of both."""
    values: list[bytes | None] = [None if n % 7 == 3 else bytes([n % 251]) * (n * 37 % 3000) for n in range(2_000)]
    values[300:1200] = [None] * 900
    values[1500] = b"large" * 100_000
    keys = [b"%d" % n if n % 3 else None for n in range(2_000)]
    columns = decode_batches(at(0, encode_batch(values=values, keys=keys)))
    assert columns.values() == values
    assert columns.keys() == keys
    part = columns.select(slice(1_190, 1_600))
    assert part.values() == values[1_190:1_600]


def test_offsets_below_the_start_are_dropped() -> None:
    columns = decode_batches(BATCHES["transactional"], start_offset=5_000_000_001)
    assert columns.offsets.tolist() == [5_000_000_001, 5_000_000_002]
    assert columns.next_offset == 5_000_000_003
    behind = decode_batches(BATCHES["transactional"], start_offset=5_000_000_009)
    assert (len(behind), behind.next_offset) == (0, 5_000_000_009)


def test_nothing_gives_empty_columns() -> None:
    assert (len(decode_batches(b"")), decode_batches(b"").next_offset) == (0, -1)
    assert decode_batches(b"", start_offset=7).next_offset == 7
    assert rows(decode_batches(b"")) == []


@pytest.mark.parametrize("missing", [1, 30, 80])
def test_a_last_batch_cut_short_is_left_for_the_next_fetch(missing: int) -> None:
    buffer = BATCHES["mixed_lz4"] + BATCHES["transactional"][:-missing]
    columns = decode_batches(buffer)
    assert rows(columns) == MIXED
    assert columns.next_offset == 6


def test_a_broken_crc_is_refused_unless_unchecked() -> None:
    batch = bytearray(BATCHES["mixed_none"])
    batch[17] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        decode_batches(batch)
    assert rows(decode_batches(batch, check_crc=False)) == MIXED


@pytest.mark.parametrize("name", ["magic0", "magic1"])
def test_old_message_sets_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedMagic):
        decode_batches(BATCHES[name])


def test_a_batch_emptied_by_compaction_moves_the_next_offset() -> None:
    empty = seal(b"", record_count=0, last_offset_delta=9, base_timestamp=-1, max_timestamp=-1, compression="zstd")
    columns = decode_batches(at(20, empty) + data(30, -1, b"x", transactional=False))
    assert columns.offsets.tolist() == [30]
    assert decode_batches(at(20, empty)).next_offset == 30


def test_a_bomb_names_its_batch() -> None:
    batch = encode_batch(values=[bytes(1_000_000)], compression="gzip", base_offset=77)
    with pytest.raises(DecompressionLimit, match="offset 77"):
        decode_batches(batch, max_batch_bytes=100_000)


def test_undefined_codecs_and_refused_bytes_have_their_errors() -> None:
    batch = bytearray(BATCHES["mixed_none"])
    batch[22] |= 6
    with pytest.raises(UnsupportedCompression):
        decode_batches(batch, check_crc=False)
    batch[22] = 4
    with pytest.raises(CorruptCompression):
        decode_batches(batch, check_crc=False)


# ---- read_committed (KIP-98; Kafka's CompletedFetch)


def test_an_aborted_transaction_is_dropped_and_the_next_one_is_not() -> None:
    log = data(0, 1, b"a", b"b") + marker(2, 1, commit=False) + data(3, 1, b"c") + marker(4, 1, commit=True)
    assert decode_batches(log, aborted=[(1, 0)]).values() == [b"c"]
    assert decode_batches(log, aborted=[(1, 0)]).next_offset == 5
    assert decode_batches(log, aborted=None).values() == [b"a", b"b", b"c"]
    assert decode_batches(log, aborted=[]).values() == [b"a", b"b", b"c"]


def test_transactions_of_several_producers_interleave() -> None:
    log = (
        data(0, 1, b"1 aborted")
        + data(1, 2, b"2 committed")
        + data(2, 9, b"plain", transactional=False)
        + data(3, 1, b"1 aborted again")
        + marker(4, 2, commit=True)
        + marker(5, 1, commit=False)
        + data(6, 2, b"2 aborted")
        + data(7, 1, b"1 committed")
        + marker(8, 2, commit=False)
        + marker(9, 1, commit=True)
    )
    columns = decode_batches(log, aborted=[(2, 6), (1, 0)])
    assert columns.values() == [b"2 committed", b"plain", b"1 committed"]
    assert columns.offsets.tolist() == [1, 2, 7]


def test_a_plain_batch_of_an_aborted_producer_is_kept() -> None:
    log = data(0, 1, b"aborted") + data(1, 1, b"plain", transactional=False) + marker(2, 1, commit=False)
    assert decode_batches(log, aborted=[(1, 0)]).values() == [b"plain"]


def test_an_aborted_range_that_began_before_the_fetch_counts() -> None:
    log = data(50, 1, b"tail of an aborted transaction") + marker(51, 1, commit=False)
    columns = decode_batches(log, aborted=[(1, 3)])
    assert (len(columns), columns.next_offset) == (0, 52)


def test_the_same_producer_aborts_twice() -> None:
    log = b"".join(data(i, 1, b"x") + marker(i + 1, 1, commit=i == 2) for i in (0, 2, 4))
    assert decode_batches(log, aborted=[(1, 0), (1, 4)]).offsets.tolist() == [2]


def test_control_records_are_given_on_request() -> None:
    log = data(0, 1, b"a") + marker(1, 1, commit=True)
    assert decode_batches(log).offsets.tolist() == [0]
    assert decode_batches(log, skip_control=False).offsets.tolist() == [0, 1]


# ---- encoding


def test_lists_become_kafkas_bytes() -> None:
    batch = encode_batch(
        keys=[row[2] for row in MIXED],
        values=[row[3] for row in MIXED],
        timestamps=[row[1] for row in MIXED],
        headers=[row[4] for row in MIXED],
    )
    assert batch == BATCHES["mixed_none"]


def test_decoded_columns_become_kafkas_bytes_again() -> None:
    assert encode_batch(decode_batches(BATCHES["mixed_zstd"])) == BATCHES["mixed_none"]
    assert (
        encode_batch(
            decode_batches(BATCHES["transactional"]),
            producer_id=4611686018427387904,
            producer_epoch=32766,
            base_sequence=2147483646,
            transactional=True,
            base_offset=5_000_000_000,
            partition_leader_epoch=9,
        )
        == BATCHES["transactional"]
    )


@pytest.mark.parametrize("name", CODECS)
def test_compressed_batches_decode_to_what_went_in(name: str) -> None:
    values = [b"%d " % i * 20 for i in range(1_000)]
    batch = encode_batch(values=values, timestamps=5, compression=name)
    assert parse_header(batch).compression == name
    assert decode_batches(batch).values() == values


def test_compression_that_does_not_pay_is_left_out() -> None:
    batch = encode_batch(values=[b"tiny"], compression="gzip")
    assert parse_header(batch).compression == "none"
    assert len(compress("gzip", batch[HEADER_BYTES:])) > len(batch) - HEADER_BYTES


@pytest.mark.parametrize("rows", [1, 2, 9, 10, 11, 12, 70])
def test_few_and_many_records_are_written_alike(rows: int) -> None:
    columns = decode_batches(BATCHES["mixed_none"] * 12).select(slice(0, rows))
    times = [time * (row + 1) - 2**40 for row, time in enumerate(columns.timestamps.tolist())]
    columns.timestamps = memoryview(array("q", times))
    stamp: Stamp = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 3}
    as_lists = encode_batch(
        keys=columns.keys(), values=columns.values(), timestamps=times, headers=columns.all_headers(), **stamp
    )
    assert as_lists == encode_batch(columns, **stamp)
    assert [as_lists] == encode_batches(columns, 2**31 - 1, **stamp)
    assert parse_header(as_lists).record_count == rows


def test_nulls_and_columns_left_out() -> None:
    for batch in (
        encode_batch(keys=[None, None], values=[b"a", b""], timestamps=9),
        encode_batch(values=[b"a", b""], timestamps=[9, 9], headers=[None, []]),
    ):
        assert rows(decode_batches(batch)) == [(0, 9, None, b"a", []), (1, 9, None, b"", [])]
    assert rows(decode_batches(encode_batch(keys=[b"k"]))) == [(0, 0, b"k", None, [])]


def test_timestamps_descend_and_the_header_has_the_true_maximum() -> None:
    header = parse_header(encode_batch(values=[b""] * 3, timestamps=[50, 90, -10]))
    assert (header.base_timestamp, header.max_timestamp) == (50, 90)
    columns = decode_batches(encode_batch(values=[b""] * 3, timestamps=[50, 90, -(2**62)]))
    assert columns.timestamps.tolist() == [50, 90, -(2**62)]


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        encode_batch(keys=[b"a"], values=[b"b", b"c"])
    with pytest.raises(ValueError, match="different lengths"):
        encode_batch(values=[b"b", b"c"], timestamps=[1])
    with pytest.raises(ValueError, match="none at all"):
        encode_batch()
    with pytest.raises(ValueError, match="no records"):
        encode_batch(values=[])


def test_batches_are_cut_to_a_size() -> None:
    values = [bytes([i % 251]) * (i % 300) for i in range(2_000)]
    columns = decode_batches(encode_batch(values=values, timestamps=list(range(2_000))))
    batches = encode_batches(columns, 4_096, producer_id=1, producer_epoch=0, base_sequence=2**31 - 5)
    assert len(batches) > 50
    assert all(len(batch) <= 4_096 for batch in batches)
    # Each batch is as full as it can be: the next batch's first record would not have fitted.
    for batch, following in pairwise(batches):
        assert len(batch) + int(decode_batches(following).value_length[0]) + 7 > 4_096 - 7
    assert [value for batch in batches for value in decode_batches(batch).values()] == values
    assert [time for batch in batches for time in decode_batches(batch).timestamps.tolist()] == list(range(2_000))
    headers = [parse_header(batch) for batch in batches]
    for header, following_header in pairwise(headers):
        assert following_header.base_sequence == (header.last_sequence + 1) % 2**31
    assert headers[0].base_sequence == 2**31 - 5


@pytest.mark.parametrize(("limit", "first"), [(61 + 99, 9), (61 + 100, 10), (61 + 109, 10), (61 + 110, 11)])
def test_the_limit_is_exact(limit: int, first: int) -> None:
    # 61 bytes of header (KIP-98), 10 for each record: length, attributes, two deltas, two lengths, 3 bytes, headers.
    columns = decode_batches(encode_batch(values=[b"abc"] * 30))
    batches = encode_batches(columns, limit)
    assert parse_header(batches[0]).record_count == first
    assert len(batches[0]) == 61 + 10 * first


def test_a_record_larger_than_the_limit_gets_a_batch_of_its_own() -> None:
    columns = decode_batches(encode_batch(values=[b"a", b"b" * 500, b"c", b"d"]))
    batches = encode_batches(columns, 100)
    assert [decode_batches(batch).values() for batch in batches] == [[b"a"], [b"b" * 500], [b"c", b"d"]]


def test_spans_outside_the_blob_are_refused() -> None:
    columns = decode_batches(encode_batch(values=[b"abc", b"def"]))
    starts = columns.value_start.tolist()
    for wrong in (len(columns.blob) - 2, -1):
        columns.value_start = memoryview(array("q", [starts[0], wrong]))
        with pytest.raises(ValueError, match="outside its blob"):
            encode_batches(columns, 1_000)


# ---- rearranging


def test_select() -> None:
    columns = decode_batches(BATCHES["mixed_none"])
    assert rows(columns.select(slice(1, 6, 2))) == MIXED[1:6:2]
    assert rows(columns.select(slice(5, None, -2))) == MIXED[5::-2]
    assert columns.select(slice(0, 1)).next_offset == 6
    again = decode_batches(encode_batch(columns.select(slice(1, 6, 2))))
    assert [row[1:] for row in rows(again)] == [row[1:] for row in MIXED[1:6:2]]


# ---- damaged sections


def sealed(section: bytes, count: int = 1, last_offset_delta: int | None = None, base_offset: int = 0) -> bytearray:
    return seal(
        section,
        record_count=count,
        base_timestamp=0,
        max_timestamp=0,
        last_offset_delta=count - 1 if last_offset_delta is None else last_offset_delta,
        base_offset=base_offset,
    )


@pytest.mark.parametrize(
    ("section", "count"),
    [
        (b"", 1),  # no record at all
        (bytes([14, 0, 0, 0, 1, 1, 0, 0]), 1),  # one byte more than the record says
        (bytes([12, 0, 0, 0, 1, 1, 0]) * 2, 1),  # a record more than the header says
        (bytes([12, 0, 0, 0, 1, 1, 0]), 2),  # one less
        (bytes([12, 0, 0, 0, 1, 1, 0]) * 2, 2),  # the same offset delta twice
        (bytes([12, 0, 0, 2, 1, 1, 0]), 1),  # an offset delta beyond the header's
        (bytes([12, 0, 0, 1, 1, 1, 0]), 1),  # a negative offset delta
        (bytes([0, 0, 0, 0, 1, 1, 0]), 1),  # an empty record
        (bytes([1, 0, 0, 0, 1, 1, 0]), 1),  # a record of negative length
        (bytes([12, 0, 0, 0, 4, 1, 0]), 1),  # a key that reaches beyond the record
        (bytes([12, 0, 0, 0, 1, 4, 0]), 1),  # a value that does
        (bytes([12, 0, 0, 0, 1, 1, 1]), 1),  # a negative number of headers
        (bytes([12, 0, 0, 0, 1, 1, 2]), 1),  # a header that is not there
        (bytes([14, 0, 0, 0, 1, 1, 2, 1]), 1),  # a header with a null key
        (bytes([16, 0, 0, 0, 1, 1, 2, 0, 2]), 1),  # a header value beyond the record
        (b"\xff" * 20, 1),  # a varint that does not end
        (bytes([26, 0]) + b"\xff" * 12, 1),  # a timestamp delta that does not
        (bytes([12, 0, 0, 0, 1, 1, 0]), 2**31 - 1),  # a count that no section can hold
    ],
)
def test_sections_that_do_not_parse(section: bytes, count: int) -> None:
    with pytest.raises(CorruptBatch):
        decode_batches(sealed(section, count))


def test_the_smallest_record_parses() -> None:
    assert rows(decode_batches(sealed(bytes([12, 0, 0, 0, 1, 1, 0])))) == [(0, 0, None, None, [])]


IMPOSSIBLE: list[dict[str, int]] = [
    {"count": -1},
    {"last_offset_delta": -1},
    {"base_offset": -5},
    {"base_offset": 2**63 - 1, "last_offset_delta": 1},
]


@pytest.mark.parametrize("fields", IMPOSSIBLE)
def test_headers_with_impossible_numbers(fields: dict[str, int]) -> None:
    with pytest.raises(CorruptBatch):
        decode_batches(sealed(bytes([12, 0, 0, 0, 1, 1, 0]), **fields))


def test_a_header_key_that_is_not_utf_8() -> None:
    section = bytes([18, 0, 0, 0, 1, 1, 2, 2, 0xFF, 1])
    columns = decode_batches(sealed(section))
    assert columns.headers(0) == [("\N{REPLACEMENT CHARACTER}", None)]  # as Java's decoder does it


def test_sealing_in_place_needs_room() -> None:
    with pytest.raises(ValueError, match="room"):
        seal_in_place(bytearray(60), record_count=0, base_timestamp=0, max_timestamp=0)
