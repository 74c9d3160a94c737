"""The short codec of Produce against the general one: equal requests, equal answers, and None for all other bytes."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from fencepost.protocol import produce_wire
from fencepost.protocol.frame import decode_request_header, encode_request_frame, encode_response_head
from fencepost.protocol.produce_one import OneBatch, decode_one, encode_one_answer
from fencepost.protocol.produce_wire import ProducePartition, ProducePartitionResult, ProduceRequest, ProduceResponse

TOPIC_ID = UUID(int=0x1234567890ABCDEF)
VERSIONS = range(produce_wire.VERSIONS[0], produce_wire.VERSIONS[1] + 1)
LONGEST_NAME = "n" * 126


def partition(version: int, topic: str, index: int, records: bytes) -> ProducePartition:
    by_id = version >= 13
    return ProducePartition(None if by_id else topic, TOPIC_ID if by_id else None, index, records)


def framed(version: int, request: ProduceRequest, client_id: str | None) -> bytes:
    body = b"".join(produce_wire.encode_request(request, version))
    return encode_request_frame(0, version, 77, client_id, body)[4:]


def by_the_general_codec(frame: bytes) -> OneBatch:
    header, position = decode_request_header(memoryview(frame))
    request = produce_wire.decode_request(memoryview(frame)[position:], header.api_version)
    (only,) = request.partitions
    return OneBatch(
        version=header.api_version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic=only.topic,
        topic_id=only.topic_id,
        partition=only.partition,
        records=memoryview(only.records),
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 20_000])
def test_a_request_is_read_as_by_the_general_codec(version: int, size: int) -> None:
    for client_id, transactional_id, topic in (("c", None, "t"), (None, "txn-ü", LONGEST_NAME), ("", "", "ö")):
        only = partition(version, topic, 7, b"\x05" * size)
        frame = framed(version, ProduceRequest(transactional_id, -1, 1500, [only]), client_id)
        assert decode_one(memoryview(frame)) == by_the_general_codec(frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_another_form_is_left_to_the_general_codec(version: int) -> None:
    one, two = partition(version, "t", 0, b"batch"), partition(version, "t", 1, b"batch")
    for partitions in ([], [one, two]):
        assert decode_one(memoryview(framed(version, ProduceRequest(None, 1, 1, partitions), "c"))) is None
    if 9 <= version < 13:
        long = partition(version, LONGEST_NAME + "n", 0, b"batch")
        assert decode_one(memoryview(framed(version, ProduceRequest(None, 1, 1, [long]), "c"))) is None
    if version >= 9:
        tagged = framed(version, ProduceRequest(None, 1, 1, [one]), "c")[:-1] + b"\x01\x09\x00"
        assert decode_one(memoryview(tagged)) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_bytes_are_read_as_by_the_general_codec_or_left_to_it(version: int) -> None:
    random = Random(version)
    whole = framed(version, ProduceRequest("txn", -1, 1500, [partition(version, "topic", 3, b"records")]), "client")
    read = 0
    for cut in range(len(whole)):
        assert decode_one(memoryview(whole[:cut])) is None
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(random.randint(1, 3)):
            damaged[random.randrange(4, len(damaged))] = random.choice((0, 1, 2, 3, 127, 128, 255))
        if (found := decode_one(memoryview(damaged))) is not None:
            assert found == by_the_general_codec(bytes(damaged))
            read += 1
    assert read > 100


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("append_time_ms", [-1, 1_700_000_000_000])
def test_an_answer_has_the_bytes_of_the_general_codec(version: int, append_time_ms: int) -> None:
    only = partition(version, "töpic", 7, b"batch")
    asked = decode_one(memoryview(framed(version, ProduceRequest(None, -1, 1500, [only]), "c")))
    assert asked is not None
    result = ProducePartitionResult(only.topic, only.topic_id, 7, 0, 2**40, append_time_ms, 3)
    body = b"".join(produce_wire.encode_response(ProduceResponse([result]), version))
    expected = encode_response_head(0, version, 77, len(body)) + body
    assert encode_one_answer(asked, 2**40, append_time_ms, 3) == expected
