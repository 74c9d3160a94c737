"""Batches that cannot be read: what is before them comes out, the error says where, the rest of the world goes on."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

import fencepost
from fencepost.client.consumer import fetch_requests as fetching
from fencepost.errors import CorruptRecordError, DecompressionLimitError
from fencepost.protocol.errors import CorruptBatch, CorruptCompression, DecompressionLimit, WireError
from fencepost.protocol.records.batch import HEADER_BYTES, iter_batches
from fencepost.protocol.records.decoding import DecodedRecords, decode_readable

BAD, GOOD = fencepost.TopicPartition("bad", 0), fencepost.TopicPartition("good", 0)
PER_BATCH = 3
POLLS = 200

Poison = Callable[[bytearray], None]


def garbage(batch: bytearray) -> None:
    batch[HEADER_BYTES:] = b"\xff" * (len(batch) - HEADER_BYTES)


def too_few(batch: bytearray) -> None:
    batch[57:61] = struct.pack(">i", PER_BATCH + 1)


def too_many(batch: bytearray) -> None:
    batch[57:61] = struct.pack(">i", PER_BATCH - 1)


def not_lz4(batch: bytearray) -> None:
    batch[22] |= 3


def no_codec(batch: bytearray) -> None:
    batch[22] |= 7


KINDS: dict[str, tuple[Poison, type[Exception]]] = {
    "garbage": (garbage, CorruptBatch),
    "too few records": (too_few, CorruptBatch),
    "too many records": (too_many, CorruptBatch),
    "not lz4": (not_lz4, CorruptCompression),
    "no such codec": (no_codec, WireError),
}


def fill(broker: fencepost.Broker) -> None:
    """Batches of three records each, in both topics: 0 1 2, 3 4 5, 6 7 8."""
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for first in range(0, 3 * PER_BATCH, PER_BATCH):
            for partition in (BAD, GOOD):
                for number in range(first, first + PER_BATCH):
                    producer.send(partition.topic, b"%d" % number, partition=0)
            producer.flush()


def poison(directory: Path, kind: Poison) -> None:
    """The second batch of bad-0, damaged as a producer would have sealed it: its CRC is right."""
    (segment,) = (directory / "bad-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    batches = [(header, len(batch)) for header, batch in iter_batches(bytes(data))]
    assert [header.record_count for header, _ in batches] == [PER_BATCH] * 3
    start, end = batches[0][1], batches[0][1] + batches[1][1]
    batch = data[start:end]
    kind(batch)
    batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
    data[start:end] = batch
    segment.write_bytes(data)


@pytest.fixture(params=KINDS)
def poisoned(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[fencepost.Broker, type[Exception]]]:
    kind, cause = KINDS[request.param]
    with fencepost.Broker(data_dir=str(tmp_path)) as broker:
        fill(broker)
    poison(tmp_path, kind)
    with fencepost.Broker(data_dir=str(tmp_path)) as broker:
        yield broker, cause


def check(error: CorruptRecordError, cause: type[Exception]) -> None:
    assert (error.topic, error.partition, error.offset, error.next_offset) == ("bad", 0, PER_BATCH, 2 * PER_BATCH)
    assert isinstance(error.__cause__, cause)
    assert "bad-0" in str(error)
    assert "seek(('bad', 0), 6)" in str(error)


class Seen:
    """Values by topic, and errors, that the consumer returned."""

    def __init__(self) -> None:
        self.values: dict[str, list[int]] = {"bad": [], "good": []}
        self.errors: list[CorruptRecordError] = []

    def add(self, topic: str, value: bytes) -> None:
        self.values[topic].append(int(value))


def test_poll(poisoned: tuple[fencepost.Broker, type[Exception]]) -> None:
    broker, cause = poisoned
    seen = Seen()
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest", max_poll_records=2) as consumer:
        consumer.assign([BAD, GOOD])
        for _ in range(POLLS):
            try:
                for record in consumer.poll(1000):
                    seen.add(record.topic, record.value or b"")
            except CorruptRecordError as error:
                seen.errors.append(error)
                check(error, cause)
                assert consumer.position(BAD) == PER_BATCH
            if len(seen.errors) >= 2 and len(seen.values["good"]) == 9:
                break
        assert seen.values == {"bad": [0, 1, 2], "good": list(range(9))}
        assert len(seen.errors) >= 2  # it is told again and again, not once and then silence
        consumer.seek((seen.errors[0].topic, seen.errors[0].partition), seen.errors[0].next_offset)
        rest = [record.value for _ in range(2) for record in consumer.poll(5000)]
    assert rest == [b"6", b"7", b"8"]


def test_poll_arrow(poisoned: tuple[fencepost.Broker, type[Exception]]) -> None:
    broker, cause = poisoned
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([BAD])
        assert consumer.poll_arrow(5000)["value"].to_pylist() == [b"0", b"1", b"2"]
        with pytest.raises(CorruptRecordError) as caught:
            consumer.poll_arrow(5000)
        check(caught.value, cause)
        consumer.seek(BAD, caught.value.next_offset)
        assert consumer.poll_arrow(5000)["value"].to_pylist() == [b"6", b"7", b"8"]


def test_iteration(poisoned: tuple[fencepost.Broker, type[Exception]]) -> None:
    broker, cause = poisoned
    values = []
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([BAD])

        def read_all() -> None:
            for record in consumer:
                values.append(record.value)

        with pytest.raises(CorruptRecordError) as caught:
            read_all()
        check(caught.value, cause)
        assert values == [b"0", b"1", b"2"]
        consumer.seek(BAD, caught.value.next_offset)
        for record in consumer:
            values.append(record.value)
            if len(values) == 6:
                break
    assert values[3:] == [b"6", b"7", b"8"]


def test_asyncio(poisoned: tuple[fencepost.Broker, type[Exception]]) -> None:
    broker, cause = poisoned

    async def read() -> tuple[list[bytes | None], CorruptRecordError]:
        async with fencepost.AsyncConsumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            await consumer.assign([BAD])
            values = [record.value for record in await consumer.poll(5000)]
            with pytest.raises(CorruptRecordError) as caught:
                await consumer.poll(5000)
            consumer.seek(BAD, caught.value.next_offset)
            return values + [record.value for record in await consumer.poll(5000)], caught.value

    values, error = asyncio.run(read())
    check(error, cause)
    assert values == [b"0", b"1", b"2", b"6", b"7", b"8"]


def test_a_range(poisoned: tuple[fencepost.Broker, type[Exception]]) -> None:
    broker, cause = poisoned
    values: list[bytes | None] = []
    with fencepost.Consumer(broker.bootstrap_servers) as consumer:

        def read_all() -> None:
            for piece in consumer.fetch_range("bad", 0, 1, 9):
                values.extend(piece.columns.values())

        with pytest.raises(CorruptRecordError) as caught:
            read_all()
        check(caught.value, cause)
        assert values == [b"1", b"2"]
        assert [piece.columns.values() for piece in consumer.fetch_range("bad", 0, 0, 3)] == [[b"0", b"1", b"2"]]
        assert [piece.columns.values() for piece in consumer.fetch_range("bad", 0, 6, 9)] == [[b"6", b"7", b"8"]]


def old_magic(batch: bytearray) -> None:
    batch[16] = 1


def test_what_the_broker_finds_damaged(tmp_path: Path) -> None:
    with fencepost.Broker(data_dir=str(tmp_path)) as broker:
        fill(broker)
    poison(tmp_path, old_magic)
    with (
        fencepost.Broker(data_dir=str(tmp_path)) as broker,
        fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([BAD, GOOD])
        seen = Seen()

        def read_until(good: int) -> None:
            for record in consumer:
                seen.add(record.topic, record.value or b"")
                if len(seen.values["good"]) == good and record.topic == "good":
                    break

        with pytest.raises(CorruptRecordError) as caught:
            read_until(10)
        error = caught.value
        assert (error.topic, error.partition, error.offset, error.next_offset, error.code) == ("bad", 0, 3, -1, 2)
        assert seen.values["bad"] == [0, 1, 2]
        consumer.pause([BAD])
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            producer.send("good", b"9", partition=0).result()
        read_until(10)
    assert seen.values == {"bad": [0, 1, 2], "good": list(range(10))}


def test_what_decompresses_to_too_much() -> None:
    large = b"x" * 2_000_000
    with fencepost.Broker({"message.max.bytes": 10_000_000}) as broker:
        with fencepost.Producer(
            broker.bootstrap_servers, compression_type="zstd", max_request_size=10_000_000
        ) as producer:
            for value in (b"before", large, b"behind"):
                producer.send("bad", value, partition=0)
                producer.flush()
        settings = {"auto_offset_reset": "earliest", "max_decompressed_bytes": 1_000_000}
        with fencepost.Consumer(broker.bootstrap_servers, **settings) as consumer:  # type: ignore[arg-type]
            consumer.assign([BAD])
            assert [record.value for record in consumer.poll(5000)] == [b"before"]
            with pytest.raises(DecompressionLimitError, match="max_decompressed_bytes") as caught:
                consumer.poll(5000)
            assert isinstance(caught.value.__cause__, DecompressionLimit)
            assert (caught.value.offset, caught.value.next_offset) == (1, 2)
            consumer.seek(BAD, 2)
            assert [record.value for record in consumer.poll(5000)] == [b"behind"]
        with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([BAD])
            values = [record.value for _ in range(3) for record in consumer.poll(1000)]
            assert values == [b"before", large, b"behind"]


def test_what_waits_decompressed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty batches of 1 MB in one fetch, a budget of 2 MB: all come, never more than one batch beyond it at once."""
    sizes = []

    def counted(*args: Any, **kwargs: Any) -> DecodedRecords:
        decoded = decode_readable(*args, **kwargs)
        sizes.append(decoded.decoded_bytes)
        return decoded

    monkeypatch.setattr(fetching, "decode_readable", counted)
    with fencepost.Broker() as broker:
        with fencepost.Producer(broker.bootstrap_servers, compression_type="zstd") as producer:
            for number in range(20):
                producer.send("bad", bytes([number]) * 1_000_000, partition=0)
                producer.flush()
        settings = {"auto_offset_reset": "earliest", "max_decompressed_bytes": 2_000_000}
        with fencepost.Consumer(broker.bootstrap_servers, **settings) as consumer:  # type: ignore[arg-type]
            consumer.assign([BAD])
            values: list[bytes] = []
            for _ in range(POLLS):
                values += [record.value or b"" for record in consumer.poll(1000)]
                if len(values) >= 20:
                    break
    assert [value[0] for value in values] == list(range(20))
    assert max(sizes) < 3_200_000
    assert len(sizes) > 5


def test_what_tiny_records_take_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 empty records are half a megabyte on the wire, and five times as much as columns."""
    sizes = []

    def counted(*args: Any, **kwargs: Any) -> DecodedRecords:
        decoded = decode_readable(*args, **kwargs)
        sizes.append(decoded.decoded_bytes)
        return decoded

    monkeypatch.setattr(fetching, "decode_readable", counted)
    with fencepost.Broker() as broker:
        with fencepost.Producer(broker.bootstrap_servers, batch_size=16_384) as producer:
            for _ in range(50_000):
                producer.send("bad", b"", partition=0)
        settings = {"auto_offset_reset": "earliest", "max_decompressed_bytes": 500_000}
        with fencepost.Consumer(broker.bootstrap_servers, **settings) as consumer:  # type: ignore[arg-type]
            consumer.assign([BAD])
            seen = 0
            for _ in range(POLLS):
                seen += len(consumer.poll(1000, max_records=50_000))
                if seen >= 50_000:
                    break
    assert seen == 50_000
    assert sum(sizes) >= 50_000 * 52
    assert max(sizes) < 700_000


def test_an_unexpected_failure_is_raised_by_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once in a back-off for each look, not as fast as the machine can, and never as an empty poll for ever."""
    calls = []

    def broken(*_: object, **__: object) -> None:
        calls.append(1)
        raise ImportError("no such module")

    with fencepost.Broker() as broker:
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            producer.send("bad", b"x", partition=0).result()
        with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([BAD])
            monkeypatch.setattr(fetching, "decode_readable", broken)

            def poll_on() -> None:
                for _ in range(20):
                    consumer.poll(1000)

            for _ in range(4):
                with pytest.raises(ImportError, match="no such module"):
                    poll_on()
            assert len(calls) <= 5
            monkeypatch.undo()
            records = []
            for _ in range(20):
                with contextlib.suppress(ImportError):  # one may still wait to be raised
                    records += consumer.poll(1000)
                if records:
                    break
            assert [record.value for record in records] == [b"x"]
