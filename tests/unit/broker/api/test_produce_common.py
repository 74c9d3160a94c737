"""The short codecs of Produce against the general one: equal requests, equal answers, and None for all other bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from random import Random
from uuid import UUID

import pytest

from fencepost.broker.api.records import produce_common
from fencepost.broker.api.records.produce_common import CommonBatch, CommonProduce, Taken, encode_common_answer
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.validate import Flaw, admitted, header_of
from fencepost.protocol import produce_wire
from fencepost.protocol.frame import decode_request_header, encode_request_frame, encode_response_head
from fencepost.protocol.produce_wire import ProducePartition, ProducePartitionResult, ProduceRequest, ProduceResponse
from fencepost.protocol.records import engine as chosen
from fencepost.protocol.records.batch import CODEC_MASK, HEADER_BYTES, seal
from fencepost.protocol.records.check import check_records
from fencepost.protocol.records.encoding import encode_batch
from tests.support.engines import ENGINES, engine

TOPIC_ID = UUID(int=0x1234567890ABCDEF)
OTHER_ID = UUID(int=0xFEDCBA0987654321)
VERSIONS = range(produce_wire.VERSIONS[0], produce_wire.VERSIONS[1] + 1)
LONGEST_NAME = "n" * 126
LARGEST = 249

Read = Callable[[memoryview], CommonProduce | None]


@pytest.fixture(params=ENGINES)
def read(request: pytest.FixtureRequest) -> Iterator[Read]:
    """The reader of one form."""
    with engine(request.param):
        yield produce_common.read_common


@pytest.fixture
def native() -> Iterator[Read]:
    with engine("native"):
        yield produce_common.read_common


@pytest.fixture
def plain() -> Iterator[Read]:
    with engine("plain"):
        yield produce_common.read_common


def is_native() -> bool:
    return chosen.is_native


def records(count: int, size: int = 10, *, key: bytes | None = None) -> bytes:
    timestamps = [1_700_000_000_000 + number for number in range(count)]
    return bytes(encode_batch(keys=[key] * count, values=[b"v" * size] * count, timestamps=timestamps))


def partition(version: int, topic: str, index: int, batch: bytes, topic_id: UUID = TOPIC_ID) -> ProducePartition:
    by_id = version >= 13
    return ProducePartition(None if by_id else topic, topic_id if by_id else None, index, batch)


def framed(version: int, request: ProduceRequest, client_id: str | None = "c") -> bytes:
    body = b"".join(produce_wire.encode_request(request, version))
    return encode_request_frame(0, version, 77, client_id, body)[4:]


def named(each: ProducePartition) -> str | bytes:
    return (each.topic_id or UUID(int=0)).bytes if each.topic is None else each.topic


def by_the_general_codec(frame: bytes) -> CommonProduce:
    """The request without what a reader may find out about its batches."""
    header, position = decode_request_header(memoryview(frame))
    request = produce_wire.decode_request(memoryview(frame)[position:], header.api_version)
    batches = [
        CommonBatch(named(each), each.partition, memoryview(each.records), None, None) for each in request.partitions
    ]
    return CommonProduce(
        version=header.api_version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        batches=batches,
    )


def without_facts(found: CommonProduce | None) -> CommonProduce:
    assert found is not None
    return found._replace(batches=[each._replace(header=None, checked=None) for each in found.batches])


def assert_facts_are_true(found: CommonProduce) -> None:
    """The native reader says of a batch only what the general checks find."""
    for batch in found.batches:
        header = header_of(batch.records)
        assert not isinstance(header, Flaw)
        assert batch.header == header
        general = admitted(batch.records, LogConfig(message_timestamp_type="LogAppendTime"), 1_700_000_000_000)
        assert not isinstance(general, Flaw)
        if header.attributes & CODEC_MASK:
            assert batch.checked is None
        else:
            section = batch.records[HEADER_BYTES:]
            assert batch.checked == check_records(section, header.record_count, header.base_timestamp)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 20_000])
def test_plain_python_reads_a_request_as_the_general_codec_does(plain: Read, version: int, size: int) -> None:
    for client_id, transactional_id, topic in (("c", None, "t"), (None, "txn-ü", LONGEST_NAME), ("", "", "ö")):
        only = partition(version, topic, 7, b"\x05" * size)
        frame = framed(version, ProduceRequest(transactional_id, -1, 1500, [only]), client_id)
        assert plain(memoryview(frame)) == by_the_general_codec(frame)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, 2, 40])
def test_the_native_module_reads_a_request_as_the_general_codec_does(native: Read, version: int, count: int) -> None:
    names = ("t", "t", "ö", "n" * LARGEST, "t")
    ids = (TOPIC_ID, TOPIC_ID, OTHER_ID, UUID(int=7), TOPIC_ID)
    wanted = [
        partition(version, name, index, records(count, 10 * index, key=b"k" if index else None), topic_id)
        for index, (name, topic_id) in enumerate(zip(names, ids, strict=True))
    ]
    for client_id, transactional_id, most in (("c", None, 1), (None, "txn-ü", 5), ("", "x" * 200, 3)):
        frame = framed(version, ProduceRequest(transactional_id, -1, 1500, wanted[:most]), client_id)
        found = native(memoryview(frame))
        assert without_facts(found) == by_the_general_codec(frame)
        assert found is not None
        assert len(found.batches) == most
        assert all(batch.checked is not None for batch in found.batches)
        assert_facts_are_true(found)


@pytest.mark.parametrize("most", [1000, 1001])
def test_the_native_module_reads_at_most_a_thousand_batches(native: Read, most: int) -> None:
    wanted = [partition(9, "t", index, records(1)) for index in range(most)]
    found = native(memoryview(framed(9, ProduceRequest(None, -1, 1500, wanted))))
    assert (found is None) == (most > 1000)


def test_the_native_module_leaves_several_large_batches_to_the_general_path(native: Read) -> None:
    large = records(1, 5 << 20)
    for most in (1, 2):
        wanted = [partition(9, "t", index, large) for index in range(most)]
        found = native(memoryview(framed(9, ProduceRequest(None, -1, 1500, wanted))))
        assert (found is None) == (most > 1)


UNSOUND = {
    "a control batch": {"control": True},
    "a delete horizon": {"attributes": 0x40},
    "another count": {"record_count": 3},
    "another last offset": {"last_offset_delta": 7},
    "a base offset": {"base_offset": 1},
    "no sequence": {"producer_id": 1, "producer_epoch": 0, "base_sequence": -1},
    "a transaction without a producer": {"transactional": True},
}


@pytest.mark.parametrize("fields", UNSOUND.values(), ids=list(UNSOUND))
def test_the_native_module_leaves_an_unsound_batch_to_the_general_path(native: Read, fields: dict[str, int]) -> None:
    section = records(2)[HEADER_BYTES:]
    stamp = {"record_count": 2, "base_timestamp": 1_700_000_000_000, "max_timestamp": 1_700_000_000_001} | fields
    attributes = stamp.pop("attributes", 0)
    batch = seal(section, **stamp)  # type: ignore[arg-type]
    if attributes:
        batch[22] |= attributes
    frame = framed(9, ProduceRequest(None, -1, 1500, [partition(9, "t", 0, bytes(batch))]))
    assert native(memoryview(frame)) is None
    assert isinstance(admitted(bytes(batch), LogConfig(), 1_700_000_000_000), Flaw)


@pytest.mark.parametrize("version", VERSIONS)
def test_another_form_is_left_to_the_general_codec(read: Read, version: int) -> None:
    entry = partition(version, "t", 0, records(1))
    assert read(memoryview(framed(version, ProduceRequest(None, 1, 1, [])))) is None
    if version >= 9:
        tagged = framed(version, ProduceRequest(None, 1, 1, [entry]))[:-1] + b"\x01\x09\x00"
        assert read(memoryview(tagged)) is None
    other_api = b"\x00\x01" + framed(version, ProduceRequest(None, 1, 1, [entry]))[2:]
    assert not is_native() or read(memoryview(other_api)) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_bytes_are_read_as_by_the_general_codec_or_left_to_it(read: Read, version: int) -> None:
    random = Random(version)
    wanted = [partition(version, "topic", 3, records(2))]
    if is_native():
        wanted.append(partition(version, "topic", 4, records(1)))
    whole = framed(version, ProduceRequest("txn", -1, 1500, wanted), "client")
    found = 0
    for cut in range(len(whole)):
        assert read(memoryview(whole[:cut])) is None
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(random.randint(1, 3)):
            damaged[random.randrange(4, len(damaged))] = random.choice((0, 1, 2, 3, 127, 128, 255))
        if (asked := read(memoryview(damaged))) is not None:
            assert without_facts(asked) == by_the_general_codec(bytes(damaged))
            if is_native():
                assert_facts_are_true(asked)
            found += 1
    assert found > 100


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("append_time_ms", [-1, 1_700_000_000_000])
@pytest.mark.parametrize("name", ENGINES)
def test_an_answer_has_the_bytes_of_the_general_codec(name: str, version: int, append_time_ms: int) -> None:
    names, ids = ("töpic", "töpic", "n" * LARGEST, "töpic"), (TOPIC_ID, TOPIC_ID, OTHER_ID, TOPIC_ID)
    wanted = [partition(version, names[row], row, b"batch", ids[row]) for row in range(4 if name == "native" else 1)]
    head = CommonProduce(version, 77, "c", None, -1, 1500, [])
    taken = [(named(each), row, 2**40 + row, append_time_ms, 3) for row, each in enumerate(wanted)]
    results = [
        ProducePartitionResult(each.topic, each.topic_id, row, 0, 2**40 + row, append_time_ms, 3)
        for row, each in enumerate(wanted)
    ]
    body = b"".join(produce_wire.encode_response(ProduceResponse(results), version))
    with engine(name):
        answer = encode_common_answer(head, taken)
    assert answer == encode_response_head(0, version, 77, len(body)) + body


def test_reading_and_answering_keeps_no_memory() -> None:
    """Blocks of the interpreter are counted; the numbers are large enough to be objects of their own."""
    wanted = [partition(9, "t", 300 + index, records(2, key=b"k")) for index in range(100)]
    frame = memoryview(framed(9, ProduceRequest("id", -1, 1500, wanted)))
    taken: list[Taken] = [("t", 300 + index, 2**40 + index, 2**41, 2**39) for index in range(100)]
    head = CommonProduce(9, 77, "c", None, -1, 1500, [])
    with engine("native"):

        def once() -> None:
            assert produce_common.read_common(frame) is not None
            encode_common_answer(head, taken)

        once()
        before = sys.getallocatedblocks()
        for _ in range(200):
            once()
        assert sys.getallocatedblocks() - before < 200
