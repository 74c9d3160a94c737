"""A task's rows on their way to the producer: which columns there may be, and that no batch of them is lost."""

from __future__ import annotations

import asyncio
from typing import cast

import pyarrow as pa
import pytest

from fencepost.client.producer.adopted import AdoptedProducer
from fencepost.errors import ConfigurationError
from fencepost.spark.sink import rows
from fencepost.spark.sink.content import content_of
from fencepost.spark.sink.decision import NO_ROWS
from fencepost.spark.sink.rows import RowSource, check_columns, chunks

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_a_source_without_rows_says_so_and_one_with_rows_loses_none() -> None:
    schema = pa.schema([("value", pa.string())])
    empty = pa.RecordBatch.from_pylist([], schema)
    full = pa.record_batch({"value": ["a", "b"]})
    assert not RowSource(iter([empty, empty])).has_rows()
    source = RowSource(iter([empty, full, full]))
    assert source.has_rows() and source.has_rows()
    assert sum(batch.num_rows for batch in source) == 4
    assert [batch.num_rows for batch in chunks([full, empty, full, full], 2 * full.nbytes)] == [4, 2]


def test_a_batch_above_the_most_is_cut_and_a_row_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark hands over up to 100,000 rows at once, whatever their size."""
    monkeypatch.setattr(rows, "CHUNK_BYTES_MOST", 10_000)
    values = [b"x" * (30_000 if number == 50 else 100 + number % 7) for number in range(1000)]
    headers = pa.array([[{"key": "n", "value": b"%d" % number}] * (number % 3) for number in range(1000)], HEADERS)
    whole = pa.record_batch({"value": values, "headers": headers})
    pieces = list(chunks([whole.slice(0, 400), whole.slice(400)], 10_000))
    assert all(piece.nbytes <= 10_000 or piece.num_rows == 1 for piece in pieces)
    assert pa.Table.from_batches(pieces).combine_chunks().to_batches() == [whole]
    assert sum((content_of(piece, "t") for piece in pieces), NO_ROWS) == content_of(whole, "t")


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


def test_a_topic_that_is_not_utf_8_is_refused_in_words() -> None:
    """Spark's cast from binary to string checks nothing."""
    topics = pa.array([b"t", b"\xff"]).view(pa.string())
    batch = pa.record_batch({"value": [b"a", b"b"], "topic": topics})
    with pytest.raises(ConfigurationError, match="a row's topic is not UTF-8"):
        asyncio.run(rows.send_rows(cast(AdoptedProducer, None), None, batch, "decisions"))
