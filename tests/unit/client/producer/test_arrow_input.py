"""Arrow tables on their way in: large ones go piece by piece, batches are about equally large."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fencepost.client.producer.arrow_input import PIECE_BYTES, Target, encode_table, in_pieces
from fencepost.client.producer.partitioner import Sticky
from fencepost.config import ProducerConfig
from fencepost.protocol.records.decoding import decode_batches


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
        value or b"" for one in batches for value in decode_batches(one, check_crc=False).values()
    ) == b"".join(table(rows, 100).column("value").to_pylist())
    sizes = [len(one) for one in batches]
    assert max(sizes) <= config.max_request_size
    assert min(sizes) > 0.8 * max(sizes)
    assert len(sizes) == -(-sum(sizes) // config.max_request_size)
