"""Validation of produced records: the broker refuses unreadable ones, and reports errors by record."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable

import pytest

from fencepost import Consumer, Record
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.records.batch import iter_batches, seal
from fencepost.protocol.records.compression import compress
from fencepost.protocol.records.decoding import decode_batches
from tests.support.batches import varint
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import RawClient

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HOUR_MS = 3_600_000
STUMBLES = -1  # UNKNOWN_SERVER_ERROR: Kafka found it, but not where it looks for what is invalid


def record(delta: int, key: bytes | None = b"k", *, after_ms: int = 0, tail: bytes = b"", key_length: int = 0) -> bytes:
    """One record with the value `v`; `key_length` says another length than the key has."""
    keyed = varint(-1) if key is None else varint(key_length or len(key)) + key
    body = b"\0" + varint(after_ms) + varint(delta) + keyed + varint(1) + b"v" + b"\0" + tail
    return varint(len(body)) + body


def sealed(section: bytes, count: int, codec: str = "none", now_ms: int = 0, *, newest_ms: int | None = None) -> bytes:
    now_ms = now_ms or int(time.time() * 1000)
    return bytes(
        seal(
            compress(codec, section),
            record_count=count,
            base_timestamp=now_ms,
            max_timestamp=now_ms if newest_ms is None else newest_ms,
            compression=codec,
        )
    )


def assert_nothing_stored(client: RawClient, topic: str) -> None:
    assert client.end_offset(topic) == 0
    assert client.produce(topic, sealed(record(0), 1)).base_offset == 0  # and the partition lives


# The end of a records section behind n good records, how many records it claims to be, and Kafka's code for plain and
# for compressed batches.
BAD: dict[str, tuple[Callable[[int], bytes], int, tuple[int, int]]] = {
    "a number without an end": (lambda n: b"\xff" * 50, 1, (STUMBLES, 87)),
    "zeros": (lambda n: b"\0" * 50, 1, (87, 87)),
    "fewer than the header says": (record, 10, (87, 87)),
    "more than the header says": (lambda n: record(n) + record(n + 1), 1, (87, 87)),
    "none, and the header says five": (lambda n: b"", 5, (87, 87)),
    "bytes behind the last": (lambda n: record(n) + b"\1\2\3", 1, (87, 87)),
    "bytes behind the fields": (lambda n: record(n, tail=b"abc"), 1, (87, 87)),
    "a key that is too long": (lambda n: record(n, b"a", key_length=1000), 1, (87, 87)),
    "cut short": (lambda n: record(n)[:-2], 1, (87, 87)),
    "the same offset twice": (lambda n: record(n) + record(n), 2, (0, STUMBLES)),
    "offsets that go back": (lambda n: record(n + 1) + record(n), 2, (0, STUMBLES)),
    "an offset left out": (lambda n: record(n) + record(n + 2), 2, (0, STUMBLES)),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("before", [0, 30])
def test_records_that_are_not_what_the_header_says(
    broker: BrokerUnderTest, client: RawClient, what: str, codec: str, before: int
) -> None:
    end, count, kafkas = BAD[what]
    section = b"".join(record(number) for number in range(before)) + end(before)
    topic = client.create_topic(broker.name("t"))
    answer = client.produce(topic, sealed(section, before + count, codec))
    # Kafka stores plain batches with any offsets, and where it stumbles it does not say what was wrong.
    expected = ErrorCode.INVALID_RECORD if broker.is_ours else kafkas[codec != "none"]
    assert answer.error_code == expected
    if expected:
        assert answer.base_offset == -1
        assert bool(answer.error_message) == broker.is_ours
        assert_nothing_stored(client, topic)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_what_the_codec_refuses(broker: BrokerUnderTest, client: RawClient, codec: str) -> None:
    topic = client.create_topic(broker.name("t"))
    now_ms = int(time.time() * 1000)
    batch = seal(b"nonsense" * 9, record_count=1, base_timestamp=now_ms, max_timestamp=now_ms, compression=codec)
    code = client.produce(topic, bytes(batch)).error_code
    assert code == (ErrorCode.INVALID_RECORD if broker.is_ours else STUMBLES)
    assert_nothing_stored(client, topic)


def wide(value: int) -> bytes:
    """A varint of five bytes that says more than 32 bits; Kafka takes the lower ones."""
    rest = (value << 1) ^ (value >> 31)
    return bytes([rest & 0x7F | 0x80, *(rest >> bits & 0x7F | 0x80 for bits in (7, 14, 21)), rest >> 28 & 0x0F | 0x70])


@pytest.mark.parametrize("codec", CODECS[::2])
@pytest.mark.parametrize("count", [1, 30])
def test_numbers_are_of_32_bits(broker: BrokerUnderTest, client: RawClient, codec: str, count: int) -> None:
    """Check that stored records whose numbers exceed 32 bits can be read, and found by offset and timestamp."""
    section = b""
    for number in range(count):
        body = b"\0" + varint(number) + wide(number) + wide(1) + b"k" + wide(1) + b"v"
        body += wide(1) + wide(1) + b"h" + wide(-1)
        section += wide(len(body)) + body
    topic = client.create_topic(broker.name("t"))
    now_ms = int(time.time() * 1000) - 1000
    batch = sealed(section, count, codec, now_ms, newest_ms=now_ms + count - 1)
    assert client.produce(topic, batch).error_code == 0
    with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        found: list[Record] = []
        while len(found) < count:
            found += consumer.poll(10_000)
        last = consumer.offsets_for({(topic, 0): now_ms + count - 1})
    assert [(record.offset, record.key, record.value) for record in found] == [(n, b"k", b"v") for n in range(count)]
    assert all(list(record.headers) == [("h", None)] for record in found)
    assert [each.offset for each in last.values()] == [count - 1]


def message(magic: int) -> bytes:
    body = struct.pack(">Bb", magic, 0) + (struct.pack(">q", 0) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", 2) + b"ab"
    body = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(body)) + body


def changed(at: int, value: int) -> bytes:
    batch = bytearray(sealed(record(0), 1))
    batch[at] = value
    return bytes(batch)


NOT_BATCHES: dict[str, tuple[Callable[[], bytes], ErrorCode]] = {
    "nothing": (lambda: b"", ErrorCode.INVALID_RECORD),
    "ten bytes": (lambda: bytes(10), ErrorCode.INVALID_RECORD),
    "thirty bytes": (lambda: bytes(30), ErrorCode.CORRUPT_MESSAGE),
    "a hundred bytes": (lambda: bytes(100), ErrorCode.CORRUPT_MESSAGE),
    "a batch of no records": (lambda: sealed(b"", 0), ErrorCode.INVALID_RECORD),
    "a batch of fewer than none": (lambda: sealed(b"", -1), ErrorCode.INVALID_RECORD),
    "magic 0": (lambda: message(0), ErrorCode.INVALID_RECORD),
    "magic 1": (lambda: message(1), ErrorCode.INVALID_RECORD),
    "five of magic 1": (lambda: message(1) * 5, ErrorCode.INVALID_RECORD),
    "magic 3": (lambda: changed(16, 3), ErrorCode.CORRUPT_MESSAGE),
    "a bad CRC": (lambda: changed(17, 0), ErrorCode.CORRUPT_MESSAGE),
    "two batches": (lambda: sealed(record(0), 1) * 2, ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("what", NOT_BATCHES)
def test_what_is_no_batch(broker: BrokerUnderTest, client: RawClient, what: str) -> None:
    topic = client.create_topic(broker.name("t"))
    make, code = NOT_BATCHES[what]
    assert client.produce(topic, make()).error_code == code
    assert_nothing_stored(client, topic)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("before", [0, 30])
def test_records_without_a_key_in_a_compacted_topic(
    broker: BrokerUnderTest, client: RawClient, codec: str, before: int
) -> None:
    topic = client.create_topic(broker.name("t"), cleanup_policy="compact")
    section = b"".join(record(number) for number in range(before))
    section += record(before) + record(before + 1, None) + record(before + 2) + record(before + 3, None)
    answer = client.produce(topic, sealed(section, before + 4, codec))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [before + 1, before + 3]
    assert all("without" in (error.message or "") for error in answer.record_errors)
    assert answer.error_message
    assert_nothing_stored(client, topic)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("is_in_header", [True, False], ids=["the header says so", "the header does not"])
def test_a_record_from_the_future(broker: BrokerUnderTest, client: RawClient, codec: str, is_in_header: bool) -> None:
    topic = client.create_topic(broker.name("t"))
    now_ms = int(time.time() * 1000)
    section = record(0) + record(1, after_ms=2 * HOUR_MS) + record(2)
    batch = sealed(section, 3, codec, now_ms, newest_ms=now_ms + 2 * HOUR_MS if is_in_header else now_ms)
    answer = client.produce(topic, batch)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert_nothing_stored(client, topic)


@pytest.mark.parametrize("codec", CODECS)
def test_the_largest_timestamp_is_that_of_the_records(broker: BrokerUnderTest, client: RawClient, codec: str) -> None:
    topic = client.create_topic(broker.name("t"))
    now_ms = int(time.time() * 1000) - 1000
    section = record(0) + record(1, after_ms=5) + record(2)
    assert client.produce(topic, sealed(section, 3, codec, now_ms, newest_ms=now_ms + 100)).error_code == 0
    records = client.fetch(topic).result.records
    ((header, _),) = iter_batches(records)
    assert header.max_timestamp == now_ms + 5
    assert decode_batches(records).timestamps.tolist() == [now_ms, now_ms + 5, now_ms]


@pytest.mark.parametrize("version", range(3, 13))
def test_zstd_needs_a_version_that_knows_it(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    """KIP-110."""
    topic = client.create_topic(broker.name("t"))
    code = client.produce(topic, sealed(record(0), 1, "zstd"), version=version).error_code
    assert code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else 0)


@pytest.mark.parametrize("wanted", ["producer", "uncompressed", *CODECS[1:]])
def test_the_topic_says_how_records_are_compressed(broker: BrokerUnderTest, client: RawClient, wanted: str) -> None:
    topic = client.create_topic(broker.name("t"), compression_type=wanted)
    section = b"".join(record(number, b"key %d" % number) for number in range(40))
    for codec in CODECS:
        assert client.produce(topic, sealed(section, 40, codec)).error_code == 0
    records = client.fetch(topic).result.records
    found = [(header.compression, header.base_offset, header.record_count) for header, _ in iter_batches(records)]
    codecs = {"producer": list(CODECS), "uncompressed": ["none"] * 5}.get(wanted, [wanted] * 5)
    assert found == [(codec, 40 * number, 40) for number, codec in enumerate(codecs)]
    assert decode_batches(records).keys() == [b"key %d" % number for number in range(40)] * 5
