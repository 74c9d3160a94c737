"""Produce and Fetch in every version: acknowledgements, refused batches, what a fetch returns and how much."""

from __future__ import annotations

import socket
import struct
import threading
import time

import pytest

from fencepost.protocol import fetch_wire, frame, produce_wire
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.records.batch import iter_batches
from fencepost.protocol.records.encoding import encode_batch
from fencepost.protocol.records.markers import encode_marker
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import Closed, RawClient
from tests.support.waiting import until

LARGE = 50_000_000


def batch_of(*values: bytes) -> bytes:
    """Of now: a batch whose timestamp is a week away from its neighbour's begins a new segment, where a fetch ends."""
    return bytes(encode_batch(keys=[None] * len(values), values=values, timestamps=int(time.time() * 1000)))


def fetch_with(
    client: RawClient,
    topic: str,
    offset: int = 0,
    *,
    version: int = 12,
    partition_bytes: int = LARGE,
    total_bytes: int = LARGE,
    wait_ms: int = 0,
    min_bytes: int = 1,
    committed: bool = False,
    leader_epoch: int = -1,
) -> fetch_wire.FetchPartitionResult:
    topic_id = None
    if version >= 13:
        (found,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
        topic_id = found.topic_id
    partition = fetch_wire.FetchPartition(0, offset, partition_bytes, current_leader_epoch=leader_epoch)
    wanted = fetch_wire.FetchTopic(topic if topic_id is None else None, topic_id, [partition])
    request = fetch_wire.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=total_bytes,
        isolation_level=int(committed),
        topics=[wanted],
    )
    body = b"".join(fetch_wire.encode_request(request, version))
    answer = fetch_wire.decode_response(client.exchange(1, version, body), version)
    assert answer.error_code == 0
    return answer.topics[0].partitions[0]


def offsets(result: fetch_wire.FetchPartitionResult) -> list[tuple[int, int]]:
    """(first offset, last offset) of each whole batch; a piece at the end is left out, as every consumer does."""
    return [(header.base_offset, header.last_offset) for header, _ in iter_batches(result.records, allow_partial=True)]


@pytest.mark.parametrize("version", range(3, 13))
def test_every_produce_version(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    topic = client.create_topic(broker.name("t"))
    for number in range(2):
        answer = client.produce(topic, batch_of(b"a", b"b"), version=version)
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 2 * number, -1)
        assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert client.fetch(topic).values == [b"a", b"b"] * 2


@pytest.mark.parametrize("version", range(4, 19))
def test_every_fetch_version(broker: BrokerUnderTest, client: RawClient, version: int) -> None:
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    client.produce(topic, batch_of(b"a", b"b"))
    me = client.start_producer(name)
    client.produce(topic, [b"gone"], transactional_id=name, producer=me, sequence=0)
    assert client.end_transaction(name, me, commit=False).error_code == 0
    client.wait_for_state(name, "CompleteAbort")
    for committed in (False, True):
        result = fetch_with(client, topic, version=version, committed=committed)
        assert (result.error_code, result.high_watermark, result.last_stable_offset) == (0, 4, 4)
        assert result.log_start_offset == (0 if version >= 5 else -1)
        assert list(result.aborted or []) == ([(me.producer_id, 2)] if committed else [])
        assert offsets(result) == [(0, 1), (2, 2), (3, 3)]
    # From the middle of the first batch the whole batch comes; behind the aborted one nothing of it is listed.
    assert offsets(fetch_with(client, topic, 1, version=version))[0] == (0, 1)
    after = fetch_with(client, topic, 3, version=version, committed=True)
    assert offsets(after) == [(3, 3)]
    assert (fetch_with(client, topic, 4, version=version).error_code, bytes(fetch_with(client, topic, 4).records)) == (
        0,
        b"",
    )
    for beyond in (5, -1):
        outside = fetch_with(client, topic, beyond, version=version)
        assert (outside.error_code, offsets(outside)) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acknowledgements(broker: BrokerUnderTest, client: RawClient, acks: int) -> None:
    """acks=0 is not answered: the next answer on the connection is that of the next request."""
    topic = client.create_topic(broker.name("t"))
    wanted = produce_wire.ProducePartition(topic, None, 0, batch_of(b"x"))
    body = b"".join(produce_wire.encode_request(produce_wire.ProduceRequest(None, acks, 30_000, [wanted]), 9))
    if acks:
        answer = produce_wire.decode_response(client.exchange(0, 9, body), 9).partitions[0]
        assert (answer.error_code, answer.base_offset) == (0, 0)
    else:
        client.send_only(0, 9, body)
    deadline = time.monotonic() + 120
    while client.end_offset(topic) < 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert client.fetch(topic).values == [b"x"]


def test_acknowledgements_that_are_none(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))
    wanted = produce_wire.ProducePartition(topic, None, 0, batch_of(b"x"))
    body = b"".join(produce_wire.encode_request(produce_wire.ProduceRequest(None, 2, 30_000, [wanted]), 9))
    answer = produce_wire.decode_response(client.exchange(0, 9, body), 9).partitions[0]
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert client.end_offset(topic) == 0


def test_an_error_without_acknowledgement_closes_the_connection(broker: BrokerUnderTest, client: RawClient) -> None:
    """So that the client asks for metadata again."""
    wanted = produce_wire.ProducePartition(broker.name("nowhere"), None, 0, batch_of(b"x"))
    body = b"".join(produce_wire.encode_request(produce_wire.ProduceRequest(None, 0, 30_000, [wanted]), 9))
    client.send_only(0, 9, body)
    with pytest.raises((Closed, ConnectionError)):
        client.api_versions()


def test_batches_that_are_refused(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"), max_message_bytes="1000")
    assert client.produce(topic, batch_of(b"x" * 2000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    short = batch_of(b"x")[:-3]
    assert client.produce(topic, short).error_code == ErrorCode.INVALID_RECORD
    name = broker.name("txn")
    me = client.start_producer(name)
    marker = encode_marker(
        True, producer_id=me.producer_id, producer_epoch=me.epoch, coordinator_epoch=0, timestamp_ms=1
    )
    assert client.produce(topic, bytes(marker), transactional_id=name).error_code == ErrorCode.INVALID_RECORD
    assert client.produce(broker.name("nowhere"), batch_of(b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.end_offset(topic) == 0


def test_timestamps_of_the_log(broker: BrokerUnderTest, client: RawClient) -> None:
    """message.timestamp.type=LogAppendTime: the answer carries the time, and so does the batch."""
    topic = client.create_topic(broker.name("t"), message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    answer = client.produce(topic, batch_of(b"a", b"b"))
    assert before - 1000 <= answer.log_append_time_ms <= int(time.time() * 1000) + 1000
    ((header, _),) = iter_batches(client.fetch(topic).result.records)
    assert (header.max_timestamp, header.timestamp_type) == (answer.log_append_time_ms, "log_append_time")


def test_how_much_a_fetch_returns(broker: BrokerUnderTest, client: RawClient) -> None:
    """Always at least one batch, although it is larger than asked for; otherwise up to the partition's limit."""
    topic = client.create_topic(broker.name("t"))
    for _ in range(4):
        assert client.produce(topic, batch_of(b"x" * 1000)).error_code == 0
    size = len(fetch_with(client, topic).records) // 4
    assert offsets(fetch_with(client, topic, partition_bytes=1)) == [(0, 0)]
    assert offsets(fetch_with(client, topic, total_bytes=1)) == [(0, 0)]
    assert offsets(fetch_with(client, topic, partition_bytes=2 * size)) == [(0, 0), (1, 1)]
    assert offsets(fetch_with(client, topic, 1, partition_bytes=2 * size + 10)) == [(1, 1), (2, 2)]
    assert len(fetch_with(client, topic, 1, partition_bytes=2 * size + 10).records) <= 2 * size + 10


def test_a_fetch_waits_for_records(broker: BrokerUnderTest, client: RawClient) -> None:
    topic = client.create_topic(broker.name("t"))
    client.produce(topic, batch_of(b"a"))
    assert offsets(fetch_with(client, topic, wait_ms=60_000)) == [(0, 0)]  # there is something: no waiting
    assert offsets(fetch_with(client, topic, 1, wait_ms=50)) == []

    def later() -> None:
        with broker.connect() as other:
            other.produce(topic, batch_of(b"b"))

    writer = threading.Timer(0.2, later)
    writer.start()
    began = time.monotonic()
    result = fetch_with(client, topic, 1, wait_ms=110_000)
    writer.join()
    assert offsets(result) == [(1, 1)]
    assert time.monotonic() - began < 100


def test_a_reader_of_what_is_committed_waits_for_the_end(broker: BrokerUnderTest, client: RawClient) -> None:
    """Records of an open transaction are nothing to wake up for; its commit is."""
    topic, name = client.create_topic(broker.name("t")), broker.name("txn")
    me = client.start_producer(name)
    client.produce(topic, [b"x"], transactional_id=name, producer=me, sequence=0)
    assert offsets(fetch_with(client, topic, wait_ms=50, committed=True)) == []

    def later() -> None:
        with broker.connect() as other:
            other.end_transaction(name, me, commit=True)

    writer = threading.Timer(0.2, later)
    writer.start()
    result = fetch_with(client, topic, wait_ms=25_000, committed=True)
    writer.join()
    assert offsets(result)[0] == (0, 0)


def test_leader_epochs(broker: BrokerUnderTest, client: RawClient) -> None:
    """A reader that knows a newer leader is told to wait, one that knows an older one to look again."""
    topic = client.create_topic(broker.name("t"))
    client.produce(topic, batch_of(b"a"))
    assert fetch_with(client, topic, leader_epoch=0).error_code == 0
    assert fetch_with(client, topic, leader_epoch=7).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=7, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    assert client.call(request, 7).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_requests_are_handled_and_answered_although_the_client_sends_nothing_more(
    broker: BrokerUnderTest, client: RawClient, acks: int
) -> None:
    """A producer with acks=0 sends its last requests and closes its connection. Others wait for their answers."""
    count = 1500
    topic = client.create_topic(broker.name("last"))
    wanted = produce_wire.ProducePartition(topic, None, 0, batch_of(b"v"))
    body = b"".join(produce_wire.encode_request(produce_wire.ProduceRequest(None, acks, 30_000, [wanted]), 9))
    requests = b"".join(frame.encode_request_frame(0, 9, number, "last", body) for number in range(count))
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as producer:
        producer.sendall(requests)
        producer.shutdown(socket.SHUT_WR)
        answers = bytearray()
        while part := producer.recv(1 << 16):
            answers += part
    numbers = []
    while answers:
        size, number = struct.unpack_from(">ii", answers)
        numbers.append(number)
        del answers[: 4 + size]
    assert numbers == (list(range(count)) if acks else [])
    until(lambda: client.end_offset(topic) == count)
