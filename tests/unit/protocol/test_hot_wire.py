"""The hand-written Produce and Fetch codecs against kio, generated from Kafka's own schemas: the same bytes."""

from __future__ import annotations

import io
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from fencepost.protocol import fetch_wire, produce_wire
from fencepost.protocol.errors import MalformedMessage

TOPIC, TOPIC_ID = "orders", UUID(int=0x1234567890ABCDEF)
PRODUCE_VERSIONS = range(produce_wire.VERSIONS[0], produce_wire.VERSIONS[1] + 1)
FETCH_VERSIONS = range(fetch_wire.VERSIONS[0], fetch_wire.VERSIONS[1] + 1)


def kio_class(api_key: int, version: int, kind: Any, name: str) -> Any:
    return getattr(load_payload_module(api_key, version, kind), name)


def kio_read(api_key: int, version: int, kind: Any, name: str, body: bytes) -> Any:
    entity, size = entity_reader(kio_class(api_key, version, kind, name))(body, 0)
    assert size == len(body)
    return entity


def kio_write(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def names(version: int, first_with_ids: int = 13) -> tuple[str | None, UUID | None]:
    return (None, TOPIC_ID) if version >= first_with_ids else (TOPIC, None)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_request_is_what_kio_reads_and_writes(version: int) -> None:
    topic, topic_id = names(version)
    partitions = [produce_wire.ProducePartition(topic, topic_id, n, b"batch%d" % n) for n in (0, 7)]
    request = produce_wire.ProduceRequest("txn", -1, 1500, partitions)
    body = b"".join(produce_wire.encode_request(request, version))
    entity = kio_read(0, version, EntityType.request, "ProduceRequest", body)
    assert (entity.transactional_id, entity.acks, entity.timeout.total_seconds()) == ("txn", -1, 1.5)
    assert [(p.index, p.records) for p in entity.topic_data[0].partition_data] == [(0, b"batch0"), (7, b"batch7")]
    assert kio_write(entity) == body
    assert produce_wire.decode_request(memoryview(body), version) == request


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_response_is_what_kio_reads_and_writes(version: int) -> None:
    topic, topic_id = names(version)
    results = [
        produce_wire.ProducePartitionResult(topic, topic_id, 0, 0, 41, 1_700_000_000_000, 3 if version >= 5 else -1),
        produce_wire.ProducePartitionResult(
            topic, topic_id, 1, 47, error_message="old epoch" if version >= 8 else None
        ),
    ]
    response = produce_wire.ProduceResponse(results, 20)
    body = b"".join(produce_wire.encode_response(response, version))
    entity = kio_read(0, version, EntityType.response, "ProduceResponse", body)
    read = entity.responses[0].partition_responses
    assert [(p.index, int(p.error_code), p.base_offset) for p in read] == [(0, 0, 41), (1, 47, -1)]
    assert kio_write(entity) == body
    assert produce_wire.decode_response(memoryview(body), version) == response


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_request_is_what_kio_reads_and_writes(version: int) -> None:
    topic, topic_id = names(version)
    partition = fetch_wire.FetchPartition(4, 99, 1 << 20)
    if version >= 5:
        partition.log_start_offset = 2
    if version >= 9:
        partition.current_leader_epoch = 5
    if version >= 12:
        partition.last_fetched_epoch = 6
    request = fetch_wire.FetchRequest(500, 1, 1 << 25, 1, topics=[fetch_wire.FetchTopic(topic, topic_id, [partition])])
    if version >= 7:
        request.session_id, request.session_epoch = 12, 3
        request.forgotten = [fetch_wire.ForgottenTopic(topic, topic_id, [1, 2])]
    if version >= 11:
        request.rack_id = "rack"
    body = b"".join(fetch_wire.encode_request(request, version))
    entity = kio_read(1, version, EntityType.request, "FetchRequest", body)
    assert (entity.min_bytes, int(entity.isolation_level)) == (1, 1)
    assert [(p.partition, p.fetch_offset) for p in entity.topics[0].partitions] == [(4, 99)]
    assert kio_write(entity) == body
    assert fetch_wire.decode_request(memoryview(body), version) == request


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_response_is_what_kio_reads_and_writes(version: int) -> None:
    topic, topic_id = names(version)
    log_start = 1 if version >= 5 else -1
    results = [
        fetch_wire.FetchPartitionResult(0, 0, 50, 40, log_start, [(7, 11), (8, 30)], b"records"),
        fetch_wire.FetchPartitionResult(1, 1, -1, -1, -1, None, b""),
    ]
    response = fetch_wire.FetchResponse([fetch_wire.FetchTopicResult(topic, topic_id, results)], throttle_ms=5)
    if version >= 7:
        response.error_code, response.session_id = 70, 99
    body = b"".join(fetch_wire.encode_response(response, version))
    entity = kio_read(1, version, EntityType.response, "FetchResponse", body)
    read = entity.responses[0].partitions
    assert [(a.producer_id, a.first_offset) for a in read[0].aborted_transactions] == [(7, 11), (8, 30)]
    assert (read[0].records, read[1].aborted_transactions) == (b"records", None)
    assert kio_write(entity) == body
    assert fetch_wire.decode_response(memoryview(body), version) == response


def test_records_are_not_copied() -> None:
    records = bytearray(b"x" * 1000)
    request = produce_wire.ProduceRequest(None, 1, 1, [produce_wire.ProducePartition(TOPIC, None, 0, records)])
    assert any(buffer is records for buffer in produce_wire.encode_request(request, 9))


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_produce_request_cut_anywhere_is_malformed_or_shorter(version: int) -> None:
    topic, topic_id = names(version)
    request = produce_wire.ProduceRequest(
        "txn", -1, 1500, [produce_wire.ProducePartition(topic, topic_id, 0, b"batch")]
    )
    body = b"".join(produce_wire.encode_request(request, version))
    refused = 0
    for size in range(len(body)):
        with pytest.raises(MalformedMessage):
            produce_wire.decode_request(memoryview(body[:size]), version)
        refused += 1
    assert refused == len(body) > 20


@pytest.mark.parametrize("version", [4, 12, 18])
def test_a_fetch_response_cut_anywhere_is_malformed(version: int) -> None:
    topic, topic_id = names(version)
    result = fetch_wire.FetchPartitionResult(0, 0, 50, 40, 1, [(7, 11)], b"records")
    response = fetch_wire.FetchResponse([fetch_wire.FetchTopicResult(topic, topic_id, [result])])
    body = b"".join(fetch_wire.encode_response(response, version))
    refused = 0
    for size in range(len(body)):
        with pytest.raises(MalformedMessage):
            fetch_wire.decode_response(memoryview(body[:size]), version)
        refused += 1
    assert refused == len(body) > 20


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_request_of_many_partitions_is_what_kio_reads_and_writes(version: int) -> None:
    """Counts and names longer than one byte of a varint tells."""
    long_name = "n" * 200
    topic, topic_id = (None, TOPIC_ID) if version >= 13 else (long_name, None)
    partitions = [fetch_wire.FetchPartition(number, number * 7, 1 << 20) for number in range(300)]
    request = fetch_wire.FetchRequest(500, 1, 1 << 25, 1, topics=[fetch_wire.FetchTopic(topic, topic_id, partitions)])
    request.topics.append(fetch_wire.FetchTopic(*names(version), []))
    if version >= 7:
        request.forgotten = [fetch_wire.ForgottenTopic(*names(version), list(range(200)))]
    if version >= 11:
        request.rack_id = "r" * 130
    body = b"".join(fetch_wire.encode_request(request, version))
    entity = kio_read(1, version, EntityType.request, "FetchRequest", body)
    assert [p.fetch_offset for p in entity.topics[0].partitions] == [each.fetch_offset for each in partitions]
    assert kio_write(entity) == body
    assert fetch_wire.decode_request(memoryview(body), version) == request


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_request_cut_anywhere_is_malformed(version: int) -> None:
    topic, topic_id = names(version)
    partitions = [fetch_wire.FetchPartition(number, 9, 1 << 20) for number in range(2)]
    request = fetch_wire.FetchRequest(topics=[fetch_wire.FetchTopic(topic, topic_id, partitions)])
    if version >= 7:
        request.forgotten = [fetch_wire.ForgottenTopic(topic, topic_id, [1, 2])]
    body = b"".join(fetch_wire.encode_request(request, version))
    for size in range(len(body)):
        with pytest.raises(MalformedMessage):
            fetch_wire.decode_request(memoryview(body[:size]), version)


@pytest.mark.parametrize("version", [v for v in FETCH_VERSIONS if v >= 12])
def test_a_fetch_request_of_too_many_elements_or_without_a_name_is_malformed(version: int) -> None:
    body = bytearray(b"".join(fetch_wire.encode_request(fetch_wire.FetchRequest(), version)))
    at = len(body) - 4  # the topics, the forgotten ones, the rack and the tags
    assert fetch_wire.decode_request(memoryview(body), version).topics == []
    for wrong in (b"\xff\xff\xff\xff\x07\x01\x01\x00", b"\x01\xff\xff\xff\xff\x07\x01\x00", b"\x01\x01\x00\x00"):
        with pytest.raises(MalformedMessage):
            fetch_wire.decode_request(memoryview(bytes(body[:at]) + wrong), version)
    with pytest.raises(MalformedMessage):
        fetch_wire.decode_request(memoryview(bytes(body[:at]) + b"\x01\x01\x02\xff\x00"), version)


@pytest.mark.parametrize("version", [v for v in FETCH_VERSIONS if v >= 15])
def test_the_tag_of_a_replica_is_read(version: int) -> None:
    body = b"".join(fetch_wire.encode_request(fetch_wire.FetchRequest(), version))
    tagged = body[:-1] + b"\x01\x01\x0d" + (7).to_bytes(4, "big") + (1).to_bytes(8, "big") + b"\x00"
    assert kio_read(1, version, EntityType.request, "FetchRequest", tagged).replica_state.replica_id == 7
    assert fetch_wire.decode_request(memoryview(tagged), version).replica_id == 7
