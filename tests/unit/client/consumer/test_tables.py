"""A poll of many partitions as one Arrow table: the same rows as each partition's own."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from fencepost.client.records import Fetched, arrow_schema, to_arrow, to_records, to_table
from fencepost.client.types import TimestampType, TopicPartition
from fencepost.protocol.records.columns import Header
from fencepost.protocol.records.decoding import decode_batches
from fencepost.protocol.records.encoding import encode_batch
from tests.support.engines import ENGINES, engine

Rows = Sequence[tuple[bytes | None, bytes | None, int]]
NONE: Sequence[Header] = ()


def fetched(topic: str, partition: int, kind: TimestampType, rows: Rows, headers: Sequence[Header] = NONE) -> Fetched:
    batch = encode_batch(
        keys=[key for key, _, _ in rows],
        values=[value for _, value, _ in rows],
        timestamps=[at for _, _, at in rows],
        headers=[headers for _ in rows],
    )
    return Fetched(TopicPartition(topic, partition), decode_batches(bytes(batch)), len(rows), kind)


EMPTY = decode_batches(b"")
PIECES = [
    fetched("a", 0, TimestampType.CREATE_TIME, [(b"k", b"v", 5), (None, None, 6)]),
    fetched("a", 7, TimestampType.LOG_APPEND_TIME, [(None, b"", 1_700_000_000_000)], [("h", b"1"), ("h", None)]),
    Fetched(TopicPartition("a", 8), EMPTY, 3, TimestampType.CREATE_TIME),
    fetched("b\N{LATIN SMALL LETTER E WITH ACUTE}", 2**31 - 1, TimestampType.CREATE_TIME, [(b"", b"x" * 100, 0)] * 30),
    fetched("a", 1, TimestampType.CREATE_TIME, [(None, None, 7)]),
]


@pytest.mark.parametrize("form", ENGINES)
@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("count", range(len(PIECES) + 1))
def test_the_rows_of_all_pieces_stand_behind_each_other(count: int, headers: bool, form: str) -> None:
    pieces = PIECES[:count]
    with engine(form):
        table = to_table(iter(pieces), headers=headers)
    table.validate(full=True)
    assert table.schema == arrow_schema(headers=headers)
    assert table.to_pylist() == [row for piece in pieces for row in to_arrow(piece, headers=headers).to_pylist()]
    records = [record for piece in pieces for record in to_records(piece)]
    names = ["topic", "partition", "offset", "key", "value", "timestampType"]
    assert [tuple(row[name] for name in names) for row in table.select(names).to_pylist()] == [
        (message.topic, message.partition, message.offset, message.key, message.value, int(message.timestamp_type))
        for message in records
    ]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [message.timestamp_ms * 1000 for message in records]


def test_many_partitions_make_one_array_for_each_column() -> None:
    """A thousand partitions with a few records each: to make a column for each of them was most of the time."""
    table = to_table([PIECES[0]._replace(partition=TopicPartition("a", n)) for n in range(50)])
    chunks = {name: table[name].num_chunks for name in table.column_names}
    assert set(chunks.values()) == {1}
    assert table["partition"].to_pylist() == [n for n in range(50) for _ in range(2)]


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ([], [-1, -1, -1, -1]),
        ([(0, 7)], [7, 7, 7, 7]),
        ([(0, 3), (1, 4), (3, 9)], [3, 4, 4, 9]),
        ([(0, 3), (1, 4), (2, 5), (90, 6)], [3, 4, 5, 5]),
        ([(1, 4), (3, 5)], [-1, 4, 4, 5]),
        ([(-5, 2), (-1, 3)], [3, 3, 3, 3]),
    ],
)
def test_each_record_has_the_epoch_of_its_batch(epochs: list[tuple[int, int]], expected: list[int]) -> None:
    piece = fetched("a", 0, TimestampType.CREATE_TIME, [(None, b"%d" % n, n) for n in range(4)])
    records = list(to_records(piece._replace(epochs=epochs)))
    assert [record.leader_epoch for record in records] == expected
    first, rest = piece._replace(epochs=epochs).split(2)
    assert [record.leader_epoch for half in (first, rest) for record in to_records(half)] == expected
