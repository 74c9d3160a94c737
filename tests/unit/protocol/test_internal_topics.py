"""Batches of internal topics: those that Kafka wrote are read, and those written here are read back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fencepost.broker.coordinator.group.log import decode_record
from fencepost.broker.coordinator.txn.model import TransactionRecord
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import iter_batches, parse_header, verify_crc
from fencepost.protocol.records.encoding import encode_pairs
from fencepost.protocol.records.walk import pairs_of

SEGMENTS = Path(__file__).parents[2] / "golden" / "segments"


def read_segment(name: str) -> list[tuple[int, bytes, bytes | None]]:
    data = (SEGMENTS / name / "00000000000000000000.log").read_bytes()
    records: list[tuple[int, bytes, bytes | None]] = []
    for header, batch in iter_batches(data):
        if not header.is_control:
            records += pairs_of(header, batch)
    return records


def dumped_offsets(name: str) -> list[int]:
    """Offsets of the records (markers left out) as Kafka's own DumpLogSegments tells them."""
    text = (SEGMENTS / f"{name}.dump.txt").read_text()
    return [int(line[1]) for line in re.finditer(r"^\| offset: (\d+) (?!.*endTxnMarker)", text, re.MULTILINE)]


def test_kafkas_transaction_log_is_read() -> None:
    records = read_segment("__transaction_state-0")
    assert [offset for offset, _, _ in records] == dumped_offsets("__transaction_state-0")
    names = {TransactionRecord.from_bytes(key, value).transactional_id for _, key, value in records}
    dump = (SEGMENTS / "__transaction_state-0.dump.txt").read_text()
    assert names == set(re.findall(r'"transactionalId":"([^"]+)"', dump))
    assert len(records) > 5


def test_kafkas_offsets_are_read() -> None:
    records = read_segment("__consumer_offsets-0")
    assert [offset for offset, _, _ in records] == dumped_offsets("__consumer_offsets-0")
    decoded = [decode_record(key, value) for _, key, value in records]
    dump = (SEGMENTS / "__consumer_offsets-0.dump.txt").read_text()
    known = {record.group_id for record in decoded if record is not None}
    assert known
    assert known <= set(re.findall(r'"group":"([^"]+)"', dump))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 127, 128, 8191, 8192, 100_000])
def test_what_is_written_is_read_back(size: int) -> None:
    records = [(b"k" * size, b"v" * size), (b"", None), (b"k", b""), (b"last", b"x")]
    batch = encode_pairs(records, 1_700_000_000_000, producer_id=7, producer_epoch=3, transactional=True)
    header = parse_header(batch)
    assert verify_crc(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert (header.is_transactional, header.record_count, header.last_offset) == (True, 4, 3)
    assert list(pairs_of(header, memoryview(batch))) == [(i, *record) for i, record in enumerate(records)]


def test_a_batch_that_promises_more_records_than_it_has() -> None:
    batch = encode_pairs([(b"key", b"value")], 0)
    header = parse_header(batch)._replace(record_count=2)
    with pytest.raises(CorruptBatch):
        list(pairs_of(header, memoryview(batch)))
