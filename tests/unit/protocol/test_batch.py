"""Headers, CRC and stamping, against bytes of Apache Kafka 4.3.1."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fencepost.protocol.errors import CorruptBatch, UnsupportedCompression, UnsupportedMagic
from fencepost.protocol.records.batch import (
    CODECS,
    HEADER_BYTES,
    add_sequence,
    iter_batches,
    parse_header,
    seal,
    set_producer,
    verify_crc,
)
from tests.support.batches import put_at
from tests.unit.protocol.kafka_batches import BATCHES


def test_every_field_of_a_transactional_header_is_read() -> None:
    header = parse_header(BATCHES["transactional"])

    assert header.base_offset == 5_000_000_000
    assert header.size_bytes == len(BATCHES["transactional"])
    assert header.partition_leader_epoch == 9
    assert header.magic == 2
    assert (header.last_offset_delta, header.record_count, header.last_offset) == (2, 3, 5_000_000_002)
    assert (header.base_timestamp, header.max_timestamp) == (1, 3)
    assert (header.producer_id, header.producer_epoch) == (4611686018427387904, 32766)
    assert header.is_transactional and not header.is_control
    assert header.compression == "none"
    assert header.timestamp_type == "create_time"


def test_the_last_sequence_wraps_to_zero() -> None:
    # Kafka: DefaultRecordBatch.incrementSequence; sequences 2147483646, 2147483647, 0.
    header = parse_header(BATCHES["transactional"])
    assert (header.base_sequence, header.last_sequence) == (2147483646, 0)
    assert add_sequence(2147483647, 1) == 0
    assert add_sequence(2147483640, 10) == 2


def test_a_batch_without_sequences_has_no_last_sequence() -> None:
    header = parse_header(BATCHES["mixed_none"])
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (-1, -1, -1, -1)


def test_timestamp_type_and_control_bits() -> None:
    assert parse_header(BATCHES["log_append_time"]).timestamp_type == "log_append_time"
    assert parse_header(BATCHES["log_append_time"]).max_timestamp == 1700000000000
    assert parse_header(BATCHES["marker_commit"]).is_control
    assert parse_header(BATCHES["marker_commit"]).is_transactional


@pytest.mark.parametrize("name", CODECS)
def test_the_codec_is_named_and_the_crc_of_kafka_verifies(name: str) -> None:
    batch = BATCHES[f"mixed_{name}"]
    assert parse_header(batch).compression == name
    assert verify_crc(batch)


def test_an_undefined_codec_is_refused_by_name() -> None:
    batch = seal(b"", record_count=1, base_timestamp=0, max_timestamp=0)
    batch[22] |= 5
    with pytest.raises(UnsupportedCompression):
        _ = parse_header(batch).compression
    with pytest.raises(UnsupportedCompression, match="brotli"):
        seal(b"", record_count=1, base_timestamp=0, max_timestamp=0, compression="brotli")


@pytest.mark.parametrize("position", [17, 21, 30, 43, 57, 61, 87])
def test_a_flipped_bit_breaks_the_crc(position: int) -> None:
    batch = bytearray(BATCHES["transactional"])
    batch[position] ^= 0x10
    assert not verify_crc(batch)


def test_sealing_again_gives_kafkas_bytes() -> None:
    original = BATCHES["transactional"]
    sealed = seal(
        original[HEADER_BYTES:],
        record_count=3,
        base_timestamp=1,
        max_timestamp=3,
        producer_id=4611686018427387904,
        producer_epoch=32766,
        base_sequence=2147483646,
        transactional=True,
        base_offset=5_000_000_000,
        partition_leader_epoch=9,
    )
    assert sealed == original


def test_assigning_offset_and_leader_epoch_keeps_the_crc() -> None:
    batch = bytearray(BATCHES["mixed_zstd"])
    put_at(batch, 123456789012, 17)
    header = parse_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (123456789012, 17)
    assert header.size_bytes == len(batch)
    assert verify_crc(batch)
    assert batch[16:] == BATCHES["mixed_zstd"][16:]


def test_a_sealed_batch_gets_another_producer() -> None:
    batch = bytearray(BATCHES["transactional"])
    set_producer(batch, 12, 3, 0, transactional=True)
    header = parse_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (12, 3, 0)
    assert header.is_transactional
    assert verify_crc(batch)

    set_producer(batch, 4611686018427387904, 32766, 2147483646, transactional=True)
    assert batch == BATCHES["transactional"]


def test_restamping_can_clear_the_transactional_bit() -> None:
    batch = bytearray(BATCHES["transactional"])
    set_producer(memoryview(batch), 12, 3, 0, transactional=False)
    assert not parse_header(batch).is_transactional
    assert verify_crc(batch)


@pytest.mark.parametrize("name", ["magic0", "magic1"])
def test_old_message_sets_are_named(name: str) -> None:
    with pytest.raises(UnsupportedMagic, match=f"magic {name[-1]}"):
        parse_header(BATCHES[name])
    with pytest.raises(UnsupportedMagic):
        list(iter_batches(BATCHES[name], allow_partial=True))


def test_batches_one_after_the_other_are_walked_without_a_copy() -> None:
    names = ["mixed_none", "marker_commit", "mixed_gzip"]
    buffer = b"".join(BATCHES[name] for name in names)
    found = list(iter_batches(buffer))
    assert [bytes(batch) for _, batch in found] == [BATCHES[name] for name in names]
    assert all(batch.obj is buffer for _, batch in found)
    assert parse_header(buffer, len(BATCHES["mixed_none"])).is_control


@pytest.mark.parametrize("missing", [1, 20, 60, 80, 87])
def test_a_batch_cut_short_is_an_error_unless_allowed(missing: int) -> None:
    whole = BATCHES["marker_commit"]
    buffer = whole + BATCHES["transactional"][:-missing]
    with pytest.raises(CorruptBatch):
        list(iter_batches(buffer))
    assert [bytes(batch) for _, batch in iter_batches(buffer, allow_partial=True)] == [whole]


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_below_the_header_is_corrupt(length: int) -> None:
    batch = bytearray(BATCHES["idempotent"])
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch):
        parse_header(batch)
    with pytest.raises(CorruptBatch):
        list(iter_batches(batch, allow_partial=True))


def test_an_unknown_magic_is_corrupt() -> None:
    batch = bytearray(BATCHES["idempotent"])
    batch[16] = 3
    with pytest.raises(CorruptBatch, match="magic 3"):
        parse_header(batch)


def test_importing_the_header_code_is_cheap() -> None:
    code = (
        "import sys; from fencepost.protocol.records import batch, markers, compression;"
        "print([name for name in ('numpy', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
