"""Decoding up to what cannot be read."""

from __future__ import annotations

import struct

import pytest

from fencepost.protocol.errors import CorruptBatch, DecompressionLimit, UnsupportedMagic
from fencepost.protocol.records.columns import Columns
from fencepost.protocol.records.decoding import decode_batches, decode_readable
from fencepost.protocol.records.encoding import encode_batch
from tests.support.batches import put_at


def at(offset: int, *values: bytes, compression: str = "none") -> bytes:
    batch = encode_batch(values=list(values), compression=compression)
    put_at(batch, offset, 0)
    return bytes(batch)


def old_message(offset: int, magic: int) -> bytes:
    """A message of before Kafka 0.11: crc, magic, attributes, with magic 1 a timestamp, key and value."""
    body = struct.pack(">IBb", 0, magic, 0) + (struct.pack(">q", 0) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", 2) + b"ab"
    return struct.pack(">qi", offset, len(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_old_messages_end_what_can_be_read(magic: int, compression: str) -> None:
    data = at(0, b"a", b"b", compression=compression) + old_message(2, magic) + at(3, b"c", compression=compression)
    columns, unreadable, _, _ = decode_readable(data, start_offset=1)
    assert columns.values() == [b"b"]
    assert columns.next_offset == 2
    assert unreadable is not None
    assert unreadable[:2] == (2, 3)
    assert isinstance(unreadable.error, UnsupportedMagic)
    with pytest.raises(UnsupportedMagic):
        decode_batches(data)
    # On its own at the end of a fetch it is shorter than a header of today.
    columns, unreadable, _, _ = decode_readable(old_message(2, magic), start_offset=2)
    assert len(columns) == 0
    assert unreadable is not None
    assert unreadable[:2] == (2, 3)


def test_a_bad_batch_is_passed_by_the_offset_in_its_header() -> None:
    bad = bytearray(at(5, b"x", b"y", b"z"))
    bad[-1] ^= 0xFF
    columns, unreadable, _, _ = decode_readable(bytes(bad) + at(8, b"a"), start_offset=6)
    assert (len(columns), columns.next_offset) == (0, 6)
    assert unreadable is not None
    assert unreadable[:2] == (6, 8)
    assert isinstance(unreadable.error, CorruptBatch)


def test_reading_pauses_where_there_is_no_room() -> None:
    data = b"".join(at(number, bytes([number]) * 1000, compression="zstd") for number in range(5))
    columns, unreadable, decoded_bytes, _ = decode_readable(data, room_bytes=1500)
    assert (columns.offsets.tolist(), columns.next_offset, unreadable) == ([0, 1], 2, None)
    assert 2000 <= decoded_bytes < 2200
    columns, unreadable, _, _ = decode_readable(data, room_bytes=0, start_offset=4)
    assert (columns.offsets.tolist(), columns.next_offset, unreadable) == ([4], 5, None)


TINY = 1000
"""Records of a batch; they take 52,000 bytes as columns, and a fifth of that on the wire."""


def test_tiny_records_pause_reading_too() -> None:
    data = b"".join(at(number * TINY, *[b""] * TINY) for number in range(5))
    assert len(data) < 5 * TINY * 11
    columns, unreadable, decoded_bytes, _ = decode_readable(data, room_bytes=100_000)
    assert (len(columns), columns.next_offset, unreadable) == (2 * TINY, 2 * TINY, None)
    assert decoded_bytes == 2 * TINY * 52
    arrays = [getattr(columns, name) for name in Columns.__slots__ if name not in ("blob", "next_offset")]
    assert sum(array.nbytes for array in arrays) == decoded_bytes
    assert columns.size_bytes == len(data) + decoded_bytes


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_batch_of_too_many_tiny_records_is_named(compression: str) -> None:
    data = at(0, b"before") + at(1, *[b""] * TINY, compression=compression)
    columns, unreadable, _, _ = decode_readable(data, max_batch_bytes=40_000)
    assert columns.values() == [b"before"]
    assert unreadable is not None
    assert isinstance(unreadable.error, DecompressionLimit)
    assert "batch at offset 1: 1000 records take" in str(unreadable.error)


def test_a_count_that_is_a_lie_is_corrupt_and_not_too_large() -> None:
    batch = bytearray(at(0, b"a"))
    batch[57:61] = struct.pack(">i", 2**31 - 1)
    _, unreadable, _, _ = decode_readable(bytes(batch), check_crc=False)
    assert unreadable is not None
    assert isinstance(unreadable.error, CorruptBatch)
