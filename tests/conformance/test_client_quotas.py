"""Client quotas on both brokers (KIP-546, KIP-13): what may be set, what is told, and that a client is kept waiting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, ThrottleEvent, TopicPartition

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from fencepost.protocol.produce_wire import ProducePartition, ProduceRequest, decode_response, encode_request
from tests.support.batches import batch
from tests.support.brokers import BrokerUnderTest
from tests.support.group_member import until
from tests.support.raw_client import RawClient

Parts = list[tuple[str, str | None]]


@pytest.fixture
def client(broker: BrokerUnderTest) -> Iterator[RawClient]:
    with broker.connect() as client:
        yield client


def alter(client: RawClient, parts: Parts, *ops: tuple[str, float | None], only_check: bool = False) -> tuple[int, str]:
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )
    answer = client.call(AlterClientQuotasRequest(entries=[entry], validate_only=only_check), 1).entries[0]
    return answer.error_code, answer.error_message or ""


def described(client: RawClient, kind: str, name: str) -> list[dict[str, float]]:
    wanted = ComponentData(entity_type=kind, match_type=0, match=name)
    answer = client.call(DescribeClientQuotasRequest(components=[wanted], strict=True), 1)
    assert answer.error_code == ErrorCode.NONE
    return [{each.key: each.value for each in entry.values} for entry in answer.entries]


def test_quotas_are_set_told_and_removed(broker: BrokerUnderTest, client: RawClient) -> None:
    name = broker.name("quota")

    def is_described(*expected: dict[str, float]) -> None:
        until(lambda: described(client, "user", name) == list(expected))

    assert alter(client, [("user", name)], ("producer_byte_rate", 5000.0), only_check=True) == (0, "")
    assert described(client, "user", name) == []
    assert alter(client, [("user", name)], ("producer_byte_rate", 5000.0), ("request_percentage", 12.5)) == (0, "")
    is_described({"producer_byte_rate": 5000.0, "request_percentage": 12.5})
    assert alter(client, [("user", name)], ("producer_byte_rate", None)) == (0, "")
    is_described({"request_percentage": 12.5})
    assert alter(client, [("user", name)], ("request_percentage", None)) == (0, "")
    is_described()


@pytest.mark.parametrize(
    ("parts", "op"),
    [
        ([], ("producer_byte_rate", 1.0)),
        ([("foo", "x")], ("producer_byte_rate", 1.0)),
        ([("user", "x")], ("nonsense", 1.0)),
        ([("user", "x")], ("producer_byte_rate", 1.5)),
        ([("user", "x")], ("producer_byte_rate", -1.0)),
        ([("ip", "127.0.0.1"), ("user", "x")], ("connection_creation_rate", 1.0)),
    ],
)
def test_what_cannot_be_is_refused(client: RawClient, parts: Parts, op: tuple[str, float]) -> None:
    assert alter(client, parts, op)[0] == ErrorCode.INVALID_REQUEST


def test_who_takes_too_much_is_told_to_wait(broker: BrokerUnderTest, client: RawClient) -> None:
    name = broker.name("greedy")
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    assert client.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
    assert alter(client, [("client-id", name)], ("producer_byte_rate", 1000.0))[0] == 0
    until(lambda: described(client, "client-id", name) == [{"producer_byte_rate": 1000.0}])
    waits = []
    with RawClient(broker.bootstrap_servers, client_id=name) as greedy:
        for _ in range(2):
            request = ProduceRequest(None, -1, 30_000, [ProducePartition(name, None, 0, batch(bytes(6_000)))])
            answer = decode_response(memoryview(greedy.exchange(0, 9, b"".join(encode_request(request, 9)))), 9)
            assert answer.partitions[0].error_code == ErrorCode.NONE
            waits.append(answer.throttle_ms)
    # 6,000 bytes and what is around them, twice, in a window of ten seconds at 1,000 bytes a second.
    assert waits[0] == 0
    assert 1_000 < waits[1] < 6_000


def test_what_was_sent_before_a_client_was_told_to_wait_is_answered_after_that(
    broker: BrokerUnderTest, client: RawClient
) -> None:
    """As Java's clients and librdkafka send: several requests before the first answer."""
    name = broker.name("hasty")
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    assert client.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
    rate = 20_000.0
    assert alter(client, [("client-id", name)], ("producer_byte_rate", rate))[0] == 0
    until(lambda: described(client, "client-id", name) == [{"producer_byte_rate": rate}])
    request = ProduceRequest(None, -1, 30_000, [ProducePartition(name, None, 0, batch(bytes(30_000)))])
    bodies = [b"".join(encode_request(request, 9))] * 8
    with RawClient(broker.bootstrap_servers, client_id=name) as hasty:
        answers = [decode_response(answer, 9) for answer in hasty.exchange_many(0, 9, bodies)]
    assert {answer.partitions[0].error_code for answer in answers} == {ErrorCode.NONE}
    # The seventh is more than ten seconds of its rate.
    assert [answer.throttle_ms > 0 for answer in answers] == [False] * 6 + [True] * 2


def test_librdkafka_hears_of_it(broker: BrokerUnderTest, client: RawClient) -> None:
    """KIP-219: of what it wrote, and of what it read."""
    name = broker.name("greedy-librdkafka")
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    assert client.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
    rates = {"producer_byte_rate": 2000.0, "consumer_byte_rate": 2000.0}
    assert alter(client, [("client-id", name)], *rates.items())[0] == 0
    until(lambda: described(client, "client-id", name) == [rates])
    reported: list[ThrottleEvent] = []
    shared = {"bootstrap.servers": broker.bootstrap_servers, "client.id": name, "throttle_cb": reported.append}
    producer = Producer({**shared, "linger.ms": 0})
    for _ in range(2):
        producer.produce(name, bytes(12_000))
        assert producer.flush(60) == 0
    assert 0 < max(event.throttle_time for event in reported) < 20
    reported.clear()
    consumer = Consumer({**shared, "group.id": name, "fetch.message.max.bytes": 13_000})
    consumer.assign([TopicPartition(name, 0, 0)])
    for _ in range(600):
        consumer.poll(0.1)
        if reported:
            break
    consumer.close()
    assert 0 < reported[0].throttle_time < 20
