"""Transaction markers, against bytes of Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import seal
from fencepost.protocol.records.markers import Marker, control_type, encode_marker, parse_marker
from tests.support.batches import put_at
from tests.unit.protocol.kafka_batches import BATCHES


def test_a_commit_marker_is_kafkas_byte_for_byte() -> None:
    batch = encode_marker(True, producer_id=4000, producer_epoch=7, coordinator_epoch=11, timestamp_ms=1600000000000)
    put_at(batch, 42, 5)
    assert batch == BATCHES["marker_commit"]


def test_an_abort_marker_is_kafkas_byte_for_byte() -> None:
    batch = encode_marker(False, producer_id=4001, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1600000000001)
    assert batch == BATCHES["marker_abort"]


def test_kafkas_markers_are_read() -> None:
    assert parse_marker(BATCHES["marker_commit"]) == Marker(commit=True, coordinator_epoch=11)
    assert parse_marker(memoryview(BATCHES["marker_abort"])) == Marker(commit=False, coordinator_epoch=0)
    assert (control_type(BATCHES["marker_commit"]), control_type(BATCHES["marker_abort"])) == (1, 0)


def test_a_data_batch_is_no_marker() -> None:
    with pytest.raises(CorruptBatch, match="not a control batch"):
        parse_marker(BATCHES["transactional"])


def test_other_control_records_have_a_type_but_are_no_marker() -> None:
    batch = bytearray(BATCHES["marker_commit"])
    batch[69] = 2  # the low byte of the type: LEADER_CHANGE
    assert control_type(batch) == 2
    with pytest.raises(CorruptBatch, match="type 2"):
        parse_marker(batch)


def test_an_emptied_control_batch_has_no_type() -> None:
    # Compaction leaves the header of a control batch behind when its record goes.
    batch = seal(b"", record_count=0, last_offset_delta=0, base_timestamp=0, max_timestamp=0, control=True)
    assert control_type(batch) is None


def read(batch: bytes | bytearray) -> Marker | None:
    try:
        marker = parse_marker(batch)
    except CorruptBatch:
        return None
    assert isinstance(marker.commit, bool)
    return marker


@pytest.mark.parametrize("value", [0x00, 0x01, 0x02, 0x20, 0x30, 0x40, 0x7F, 0x80, 0xFF])
def test_a_damaged_marker_is_read_or_refused_as_one_of_another_shape_is(value: int) -> None:
    """A byte behind the batch is none of it, and there the batch is read field by field."""
    whole = BATCHES["marker_commit"]
    assert len(whole) == 78
    for position in range(8, 78):
        batch = bytearray(whole)
        batch[position] = value
        assert read(batch) == read(batch + b"\x00"), position
