"""The four codecs as Kafka frames them: its bytes are read, ours have the shape Java accepts, bombs are refused."""

from __future__ import annotations

import gzip
import random

import cramjam
import pytest

from fencepost.protocol.errors import CorruptCompression, DecompressionLimit, UnsupportedCompression
from fencepost.protocol.records.batch import HEADER_BYTES
from fencepost.protocol.records.compression import compress, decompress
from tests.unit.protocol.kafka_batches import BATCHES, CODECS, big_value

COMPRESSING = [name for name in CODECS if name != "none"]
RANDOM = random.Random(7).randbytes(200_000)
TEXT = b"".join(b"%d squared is %d; " % (i, i * i) for i in range(12_000))


@pytest.mark.parametrize("name", COMPRESSING)
def test_what_kafka_compressed_is_read(name: str) -> None:
    small = decompress(name, BATCHES[f"mixed_{name}"][HEADER_BYTES:], 10_000)
    assert bytes(small) == BATCHES["mixed_none"][HEADER_BYTES:]
    big = bytes(decompress(name, BATCHES[f"big_{name}"][HEADER_BYTES:], 1_000_000))
    assert big.count(big_value()) == 2


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("data", [b"", b"a", b"ab" * 40_000, TEXT, RANDOM, RANDOM[:65_536], TEXT[:32_768]])
def test_round_trip(name: str, data: bytes) -> None:
    assert bytes(decompress(name, compress(name, data), len(data))) == data
    assert bytes(decompress(name, compress(name, memoryview(data)), 10_000_000)) == data


@pytest.mark.parametrize(
    ("name", "level"), [("gzip", 1), ("gzip", 9), ("lz4", 1), ("lz4", 17), ("zstd", 1), ("zstd", 9)]
)
def test_levels(name: str, level: int) -> None:
    assert bytes(decompress(name, compress(name, TEXT, level), len(TEXT))) == TEXT


def test_snappy_is_written_as_xerials_stream_of_32_kib_blocks() -> None:
    compressed = bytes(compress("snappy", TEXT))
    kafka = BATCHES["big_snappy"][HEADER_BYTES:]
    assert compressed[:16] == kafka[:16] == b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2
    first = compressed[20 : 20 + int.from_bytes(compressed[16:20], "big")]
    assert len(bytes(cramjam.snappy.decompress_raw(first))) == 32 * 1024


def test_raw_snappy_is_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert bytes(decompress("snappy", raw, len(TEXT))) == TEXT


def test_two_xerial_streams_in_a_row_are_one() -> None:
    twice = bytes(compress("snappy", TEXT)) + bytes(compress("snappy", b"the end"))
    assert bytes(decompress("snappy", twice, 10**6)) == TEXT + b"the end"


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    compressed = bytes(compress("lz4", TEXT))
    kafka = BATCHES["big_lz4"][HEADER_BYTES:]
    assert compressed[:7] == kafka[:7] == bytes.fromhex("04224d18604082")
    assert bytes(cramjam.lz4.compress(TEXT))[4] & 0x20 == 0  # what a general purpose encoder does instead


def test_lz4_stores_what_does_not_shrink() -> None:
    assert len(compress("lz4", RANDOM)) <= len(RANDOM) + 7 + 4 * 4 + 4


@pytest.mark.parametrize("name", COMPRESSING)
def test_a_bomb_is_refused(name: str) -> None:
    bomb = compress(name, bytes(20_000_000))
    with pytest.raises(DecompressionLimit):
        decompress(name, bomb, 1_000_000)


@pytest.mark.parametrize("name", CODECS)
def test_the_limit_is_exact(name: str) -> None:
    compressed = compress(name, TEXT)
    assert len(decompress(name, compressed, len(TEXT))) == len(TEXT)
    with pytest.raises(DecompressionLimit):
        decompress(name, compressed, len(TEXT) - 1)


def test_output_grows_when_the_size_in_the_bytes_is_too_small() -> None:
    # Two gzip members: the trailer tells the size of the last one only. Two zstd frames likewise.
    assert bytes(decompress("gzip", gzip.compress(TEXT) + gzip.compress(b"end"), 10**6)) == TEXT + b"end"
    frames = bytes(compress("zstd", b"start")) + bytes(compress("zstd", TEXT))
    assert bytes(decompress("zstd", frames, 10**6)) == b"start" + TEXT
    frames = bytes(compress("lz4", b"start")) + bytes(compress("lz4", TEXT))
    assert bytes(decompress("lz4", frames, 10**6)) == b"start" + TEXT


def test_a_size_that_lies_does_not_allocate_it() -> None:
    lying = bytearray(gzip.compress(b"x"))
    lying[-4:] = b"\xff\xff\xff\xff"
    with pytest.raises(CorruptCompression):
        decompress("gzip", lying, 2**40)
    with pytest.raises(CorruptCompression):
        decompress("snappy", b"\xff\xff\xff\xff\x0f\x00", 2**40)


@pytest.mark.parametrize("name", COMPRESSING)
def test_damaged_bytes_are_refused_or_differ_but_stay_bounded(name: str) -> None:
    compressed = bytes(compress(name, TEXT[:5_000]))
    source = random.Random(3)
    refused = 0
    for _ in range(200):
        damaged = bytearray(compressed)
        damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
        try:
            result = decompress(name, damaged[: source.randrange(1, len(damaged) + 1)], 100_000)
        except (CorruptCompression, DecompressionLimit):
            refused += 1
        else:
            assert len(result) <= 100_000
    assert refused > 50


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnsupportedCompression):
        compress("brotli", b"")
    with pytest.raises(UnsupportedCompression):
        decompress("brotli", b"", 1)
