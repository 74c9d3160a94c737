"""A task's rows become sealed batches: the right partitions, sequences without a gap, every row once."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from fencepost.client.partitioner import partition_for_key
from fencepost.errors import ConfigurationError
from fencepost.protocol.batch import add_sequence, parse_header
from fencepost.protocol.columns import decode_batches
from fencepost.spark.decision import Pair
from fencepost.spark.rows import Identity, RowSource, RowWriter, Sealed, check_columns, chunks

IDENTITY = Identity("fencepost-sink/s/00", Pair(77, 3))


def writer(topic: str | None = "t", max_batch_bytes: int = 1_000_000, turn: int = 0) -> RowWriter:
    return RowWriter(
        IDENTITY,
        topic=topic,
        max_batch_bytes=max_batch_bytes,
        compression="none",
        first_turn=turn,
        now_ms=1_700_000_000_000,
    )


def rows_of(sealed: list[Sealed]) -> list[tuple[str, int, bytes | None, bytes | None]]:
    found = []
    for one in sealed:
        columns = decode_batches(one.batch)
        found += [(one.topic, one.partition, columns.key(i), columns.value(i)) for i in range(len(columns))]
    return found


def check_sequences(sealed: list[Sealed]) -> None:
    expected: dict[tuple[str, int], int] = {}
    for one in sealed:
        header = parse_header(one.batch)
        assert (header.producer_id, header.producer_epoch, header.is_transactional) == (77, 3, True)
        assert header.base_sequence == expected.get((one.topic, one.partition), 0)
        expected[one.topic, one.partition] = add_sequence(header.base_sequence, header.record_count)
    assert expected


def test_keys_go_where_kafkas_producer_would_send_them() -> None:
    keys = [None if n % 10 == 0 else f"key-{n % 37}" for n in range(400)]
    chunk = pa.record_batch({"key": keys, "value": [b"%d" % n for n in range(400)]})
    made = writer(turn=2)
    sealed = list(made.seal(chunk, {"t": 5}))
    check_sequences(sealed)
    found = rows_of(sealed)
    assert Counter(value for *_, value in found) == Counter(b"%d" % n for n in range(400))
    for _, partition, key, _ in found:
        assert partition == (2 if key is None else partition_for_key(key, 5))
    # Within a partition the rows keep their order.
    for wanted in range(5):
        numbers = [int(value or b"") for _, partition, _, value in found if partition == wanted]
        assert numbers == sorted(numbers)


def test_sequences_go_on_over_chunks_and_cuts() -> None:
    made = writer(max_batch_bytes=600)
    sealed = []
    for start in range(0, 300, 100):
        chunk = pa.record_batch({"key": ["k"] * 100, "value": [f"value {n}" for n in range(start, start + 100)]})
        sealed += list(made.seal(chunk, {"t": 3}))
    assert len(sealed) > 3
    assert all(len(one.batch) <= 600 for one in sealed)
    check_sequences(sealed)


def test_a_named_partition_wins_and_has_to_exist() -> None:
    chunk = pa.record_batch({"value": ["a", "b", "c"], "partition": pa.array([2, None, 0], pa.int32())})
    found = rows_of(list(writer(turn=1).seal(chunk, {"t": 3})))
    assert sorted((partition, value) for _, partition, _, value in found) == [(0, b"c"), (1, b"b"), (2, b"a")]
    with pytest.raises(ConfigurationError, match="partition 2"):
        list(writer().seal(chunk, {"t": 2}))


def test_the_topic_column_counts_when_there_is_no_option() -> None:
    chunk = pa.record_batch({"value": ["a", "b", "c"], "topic": ["x", "y", "x"]})
    made = writer(topic=None)
    assert made.topics_of(chunk) == ["x", "y"]
    found = rows_of(list(made.seal(chunk, {"x": 1, "y": 1})))
    assert sorted((topic, value) for topic, _, _, value in found) == [("x", b"a"), ("x", b"c"), ("y", b"b")]
    with pytest.raises(ConfigurationError, match="topic is null"):
        made.topics_of(pa.record_batch({"value": ["a"], "topic": pa.array([None], pa.string())}))


def test_timestamps_and_headers_are_kept() -> None:
    when = pa.array([1_600_000_000_123_000, None], pa.timestamp("us", tz="UTC"))
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "h", "value": b"1"}], None], kind)
    chunk = pa.record_batch({"value": ["a", "b"], "timestamp": when, "headers": headers})
    (one,) = list(writer().seal(chunk, {"t": 1}))
    columns = decode_batches(one.batch)
    assert columns.timestamps.tolist() == [1_600_000_000_123, 1_700_000_000_000]
    assert [columns.headers(0), columns.headers(1)] == [[("h", b"1")], []]


def test_a_source_without_rows_says_so_and_one_with_rows_loses_none() -> None:
    schema = pa.schema([("value", pa.string())])
    empty = pa.RecordBatch.from_pylist([], schema)
    full = pa.record_batch({"value": ["a", "b"]})
    assert not RowSource(iter([empty, empty])).has_rows()
    source = RowSource(iter([empty, full, full]))
    assert source.has_rows() and source.has_rows()
    assert sum(batch.num_rows for batch in source) == 4
    assert [batch.num_rows for batch in chunks([full, empty, full, full], 2 * full.nbytes)] == [4, 2]


GOOD = [("value", "binary")]


@pytest.mark.parametrize(
    ("columns", "topic", "word"),
    [
        ([("key", "string")], "t", "value"),
        (GOOD, None, "topic"),
        ([*GOOD, ("colour", "string")], "t", "colour"),
        ([("value", "int")], "t", "value"),
        ([*GOOD, ("partition", "bigint")], "t", "partition"),
        ([*GOOD, *GOOD], "t", "same name"),
    ],
)
def test_columns_that_cannot_be_written_are_refused_early(
    columns: list[tuple[str, str]], topic: str | None, word: str
) -> None:
    with pytest.raises(ConfigurationError, match=word):
        check_columns(columns, topic)


def test_columns_that_can_be_written() -> None:
    headers = "array<struct<key:string,value:binary>>"
    check_columns([("key", "string"), *GOOD, ("topic", "string"), ("partition", "int"), ("headers", headers)], None)
    check_columns([("value", "string collate UNICODE"), ("timestamp", "timestamp")], "t")
