"""Arrow tables on their way in: large ones go piece by piece, batches are about equally large."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

import fencepost
from fencepost.client.producer.arrow_input import PIECE_BYTES, Target, encode_table, in_pieces
from fencepost.client.producer.partitioner import Sticky
from fencepost.config import ProducerConfig
from fencepost.errors import ConfigurationError, ProduceFailedError
from fencepost.protocol.records.decoding import decode_batches
from fencepost.testing import read_all


def table(rows: int, size: int) -> pa.Table:
    values = [b"%08d" % number + b"x" * (size - 8) for number in range(rows)]
    return pa.table({"value": pa.array(values, pa.binary())})


@pytest.mark.parametrize("rows", [1, 10, 100, 1000])
def test_pieces_hold_every_row_in_order(rows: int) -> None:
    whole = table(rows, 50_000)
    pieces = list(in_pieces(whole))
    assert pa.concat_tables(pieces).equals(whole)
    assert len(pieces) == (1 if whole.nbytes <= 2 * PIECE_BYTES else -(-rows // (rows * PIECE_BYTES // whole.nbytes)))
    assert all(len(piece) > 0 for piece in pieces)


def test_rows_larger_than_a_piece_go_one_by_one() -> None:
    assert [len(piece) for piece in in_pieces(table(4, 6_000_000))] == [1, 1, 1, 1]


@pytest.mark.parametrize("rows", [1, 9_000, 10_000, 25_000])
def test_batches_of_a_table_are_about_equally_large(rows: int) -> None:
    config = ProducerConfig.make({"bootstrap_servers": "x"})
    target = Target("t", 1, [0], 0)
    batches = [data for _, data in encode_table(table(rows, 100), target, Sticky(1, lambda: 0.0), config)]
    assert b"".join(
        value or b"" for batch in batches for value in decode_batches(batch, check_crc=False).values()
    ) == b"".join(table(rows, 100).column("value").to_pylist())
    sizes = [len(batch) for batch in batches]
    assert max(sizes) <= config.max_request_size
    assert min(sizes) > 0.8 * max(sizes)
    assert len(sizes) == -(-sum(sizes) // config.max_request_size)


def test_rows_without_a_key_or_a_partition_go_where_the_others_leave_them() -> None:
    keys = pa.chunked_array([pa.array([b"a", None, b"c"], pa.binary()), pa.array([b"c", b"a"], pa.binary())])
    rows = pa.table({"key": keys, "value": pa.array([b"0", b"1", b"2", b"3", b"4"], pa.binary())})
    config = ProducerConfig.make({"bootstrap_servers": "x"})
    target = Target("t", 1000, range(1000), 0)
    sent = [
        (value, partition)
        for partition, data in encode_table(rows, target, Sticky(1, lambda: 0.5), config)
        for value in decode_batches(data, check_crc=False).values()
    ]
    found = dict(sent)
    assert found.keys() == {b"0", b"1", b"2", b"3", b"4"}
    assert found[b"0"] == found[b"4"]
    assert found[b"2"] == found[b"3"]
    assert len({found[b"0"], found[b"1"], found[b"2"]}) == 3


def test_neither_way_through_arrow_imports_pandas() -> None:
    script = """
import sys
import pyarrow as pa
from fencepost.client.producer.arrow_input import Target, encode_table
from fencepost.client.producer.partitioner import Sticky
from fencepost.client.records import Fetched, to_arrow
from fencepost.client.types import TimestampType, TopicPartition
from fencepost.config import ProducerConfig
from fencepost.protocol.records.decoding import decode_batches
from fencepost.protocol.records.encoding import encode_batch

sealed = encode_batch(keys=[b"a", None, b"c"], values=[b"0", b"1", b"2"], timestamps=[1, 2, 3])
fetched = Fetched(TopicPartition("t", 0), decode_batches(sealed), 3, TimestampType.CREATE_TIME)
rows = pa.Table.from_batches([to_arrow(fetched, headers=True)]).select(["key", "value", "headers"])
config = ProducerConfig.make({"bootstrap_servers": "x"})
sent = list(encode_table(rows, Target("t", 50, range(50), 0), Sticky(1, lambda: 0.5), config))
print(len(sent) > 1, "pandas" in sys.modules)
"""
    pytest.importorskip("pandas")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["True", "False"]


def refused(rows: pa.Table, topic: str | None = "t") -> str:
    """Send rows that must be refused. Return the error."""
    with fencepost.Broker() as broker, fencepost.Producer(broker.bootstrap_servers) as producer:
        try:
            producer.send_arrow(topic, rows).result(10)
        except (ConfigurationError, ProduceFailedError) as error:
            return str(error)
    pytest.fail("the rows were sent")


@pytest.mark.parametrize("column", ["value", "key", "headers", "timestamp", "partition", "topic"])
def test_a_column_that_is_there_twice_is_refused_by_name(column: str) -> None:
    names = ["value", column, column] if column != "value" else ["value", "value"]
    rows = pa.Table.from_arrays([pa.array([b"a"], pa.binary())] * len(names), names=names)
    assert f"more than one column '{column}'" in refused(rows, None if column == "topic" else "t")


@pytest.mark.parametrize("nulls", [[], [None]], ids=["", "with nulls"])
def test_timestamps_that_do_not_fit_are_refused(nulls: list[None]) -> None:
    times = pa.array([*nulls, 2**62], pa.timestamp("s"))  # in milliseconds a multiple of 2**64
    assert "out of bounds" in refused(pa.table({"value": [b"a"] * len(times), "timestamp": times}))


@pytest.mark.parametrize("nulls", [[], [None]], ids=["", "with nulls"])
def test_numbers_of_another_width_are_no_timestamps(nulls: list[None]) -> None:
    times = pa.array([*nulls, 5], pa.int32())
    error = refused(pa.table({"value": [b"a"] * len(times), "timestamp": times}))
    assert "timestamps must be timestamp or int64" in error


def test_a_column_of_nulls_without_a_type_has_the_time_of_sending() -> None:
    rows = pa.table({"value": [b"a"], "timestamp": pa.nulls(1)})
    with fencepost.Broker() as broker, fencepost.Producer(broker.bootstrap_servers) as producer:
        assert producer.send_arrow("t", rows).result(10)
        (record,) = read_all(broker, "t")
    assert record.timestamp_ms > 1_700_000_000_000
