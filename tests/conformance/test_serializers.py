"""Serializers and deserializers as settings: with other clients as peers, and records that cannot be deserialized."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import fencepost
from fencepost.errors import ConfigurationError, RegistryUnavailableError, SerializationError
from fencepost.schemas import Context, Decoder, Encoder
from tests.support.brokers import BrokerUnderTest

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]})
TEA = {"item": "a pot of tea"}  # confluent-kafka refuses values of less than 6 bytes


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


JSON: dict[str, Any] = {"value_serializer": as_json, "key_serializer": str.encode}
FROM_JSON: dict[str, Any] = {"value_deserializer": json.loads, "key_deserializer": bytes.decode}


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def topic(broker: BrokerUnderTest, admin: fencepost.Admin) -> str:
    """A topic with two partitions."""
    name = broker.name("t")
    admin.create_topic(name, 2)
    return name


def reader(broker: BrokerUnderTest, topic: str, partitions: int = 1, **settings: Any) -> fencepost.Consumer:
    consumer = fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest", **settings)
    consumer.assign([(topic, number) for number in range(partitions)])
    return consumer


def polled(consumer: fencepost.Consumer, count: int) -> list[fencepost.Record]:
    found: list[fencepost.Record] = []
    while len(found) < count:
        found += consumer.poll(10_000)
    return found


def objects(records: list[fencepost.Record]) -> list[tuple[Any, Any]]:
    return [(record.key, record.value) for record in records]


def values(records: list[fencepost.Record]) -> list[Any]:
    return [record.value for record in records]


# --- with other clients ---


@pytest.mark.filterwarnings("ignore:.*does not implement kafka.serializer:DeprecationWarning")
def test_kafka_python_reads_and_writes_the_same_with_the_same_functions(
    broker: BrokerUnderTest, topic: str, closing: ExitStack
) -> None:
    host = broker.bootstrap_servers
    theirs = kafka.KafkaProducer(bootstrap_servers=host, **JSON)
    theirs.send(topic, TEA, "ann", partition=0).get(30)
    theirs.close()
    with fencepost.Producer.from_config({"bootstrap.servers": host, **JSON}) as ours:
        ours.send(topic, TEA, "ann", partition=0)  # type: ignore[arg-type]
    assert objects(polled(closing.enter_context(reader(broker, topic, **FROM_JSON)), 2)) == [("ann", TEA)] * 2
    consumer = kafka.KafkaConsumer(bootstrap_servers=host, auto_offset_reset="earliest", **FROM_JSON)
    consumer.assign([kafka.TopicPartition(topic, 0)])
    messages = [next(consumer) for _ in range(2)]
    consumer.close()
    assert [(message.key, message.value) for message in messages] == [("ann", TEA)] * 2


def test_schema_ids_in_headers_are_confluents(broker: BrokerUnderTest, topic: str, closing: ExitStack) -> None:
    """As a setting, by an Encoder, and by confluent-kafka's own producer: all clients read all records."""
    registry = SchemaRegistryClient.new_client({"url": "mock://of-this-test"})
    encode = AvroSerializer(registry, ORDER, conf={"schema.id.serializer": header_schema_id_serializer})
    decode = AvroDeserializer(registry, conf={"schema.id.deserializer": dual_schema_id_deserializer})
    with fencepost.Producer(broker.bootstrap_servers, value_serializer=encode) as producer:
        producer.send(topic, TEA, partition=0, headers=[("via", b"web")])  # type: ignore[arg-type]
        producer.send(topic, TEA, partition=0)  # type: ignore[arg-type]
    with fencepost.Producer(broker.bootstrap_servers) as plain:
        Encoder(encode).send(plain, topic, TEA, partition=0, headers=(("via", b"web"),))
        Encoder(encode).send(plain, topic, TEA, partition=0)
    headers: list[tuple[str, Any]] = []
    data = encode(TEA, SerializationContext(topic, MessageField.VALUE, headers))
    theirs = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    theirs.produce(topic, data, headers=headers, partition=0)
    assert theirs.flush(30) == 0
    raw = polled(closing.enter_context(reader(broker, topic)), 5)
    assert {record.value for record in raw} == {data}
    names = [[name for name, _ in record.headers] for record in raw]
    assert names == [["via", "__value_schema_id"], ["__value_schema_id"]] * 2 + [["__value_schema_id"]]
    assert [Decoder(decode).decode(record).value for record in raw] == [TEA] * 5
    assert values(polled(closing.enter_context(reader(broker, topic, value_deserializer=decode)), 5)) == [TEA] * 5
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": broker.name("g")})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    for _ in range(5):
        message = consumer.poll(30)
        assert message is not None
        context = SerializationContext(topic, MessageField.VALUE, message.headers())
        assert decode(message.value(), context) == TEA
    consumer.close()


# --- the functions ---


def test_functions_get_the_context_if_they_want_it(broker: BrokerUnderTest, topic: str, closing: ExitStack) -> None:
    """None, of a record without a key and of a tombstone, stays None."""
    met: list[Context] = []

    def encode(value: Any, context: Context) -> bytes:
        met.append(context._replace(headers=list(context.headers or ())))
        return as_json(value)

    def decode(data: bytes, ctx: Context | None = None) -> Any:
        assert ctx is not None
        met.append(ctx)
        return json.loads(data)

    with fencepost.Producer(broker.bootstrap_servers, value_serializer=encode, key_serializer=encode) as producer:
        producer.send(topic, TEA, "ann", partition=0, headers={"via": b"web"})  # type: ignore[arg-type]
        producer.send(topic, None, partition=0)
    via = [("via", b"web")]
    assert met == [Context(topic, "value", via), Context(topic, "key", via)]
    both: dict[str, Any] = {"value_deserializer": decode, "key_deserializer": decode}
    assert objects(polled(closing.enter_context(reader(broker, topic, **both)), 2)) == [("ann", TEA), (None, None)]
    assert met[2:] == met[:2]


def test_what_cannot_be_serialized_is_not_sent_and_the_transaction_goes_on(
    broker: BrokerUnderTest, topic: str, closing: ExitStack
) -> None:
    settings: dict[str, Any] = {"value_serializer": as_json, "key_serializer": lambda key: key}
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=topic, **settings) as producer:
        producer.init_transactions()
        with producer.transaction():
            with pytest.raises(SerializationError, match=f"value of a record of {topic} cannot be encoded: TypeError"):
                producer.send(topic, object(), partition=0)  # type: ignore[arg-type]
            with pytest.raises(SerializationError, match="returned int instead of bytes"):
                producer.send(topic, TEA, 7, partition=0)  # type: ignore[arg-type]
            producer.send(topic, TEA, b"ann", partition=0)  # type: ignore[arg-type]
    consumer = closing.enter_context(reader(broker, topic, value_deserializer=json.loads))
    assert objects(polled(consumer, 1)) == [(b"ann", TEA)]


def test_asynchronous_functions_are_for_asyncio(broker: BrokerUnderTest, topic: str) -> None:
    async def encode(value: Any) -> bytes:
        await asyncio.sleep(0)
        return as_json(value)

    async def decode(data: bytes, context: Context) -> Any:
        await asyncio.sleep(0)
        return json.loads(data)

    host = broker.bootstrap_servers
    for make in (
        lambda: fencepost.Producer(host, value_serializer=encode),
        lambda: fencepost.Consumer(host, key_deserializer=decode),
    ):
        with pytest.raises(ConfigurationError, match="gives a coroutine"):
            make()

    async def body() -> list[tuple[Any, Any]]:
        async with fencepost.AsyncProducer(host, value_serializer=encode, key_serializer=str.encode) as producer:
            for key in ("a", "b", "c"):
                await producer.send(topic, TEA, key, partition=0)  # type: ignore[arg-type]
        found: list[tuple[Any, Any]] = []
        async with fencepost.AsyncConsumer(
            host, auto_offset_reset="earliest", value_deserializer=decode, key_deserializer=bytes.decode
        ) as consumer:
            await consumer.assign([(topic, 0)])
            while len(found) < 2:
                found += objects(await consumer.poll(10_000, 1))
            record = await anext(consumer)
            return [*found, (record.key, record.value)]

    assert asyncio.run(body()) == [("a", TEA), ("b", TEA), ("c", TEA)]


def test_columns_stay_bytes(broker: BrokerUnderTest, topic: str, closing: ExitStack) -> None:
    with fencepost.Producer(broker.bootstrap_servers, **JSON) as producer:
        producer.send(topic, TEA, "ann", partition=0)  # type: ignore[arg-type]
    consumer = closing.enter_context(reader(broker, topic, **FROM_JSON))
    while not (table := consumer.poll_arrow(10_000)).num_rows:
        pass
    assert table.select(["key", "value"]).to_pylist() == [{"key": b"ann", "value": as_json(TEA)}]
    consumer.seek((topic, 0), 0)
    while not (pieces := consumer.poll_columns(10_000)):
        pass
    assert list(pieces[0].columns.values()) == [as_json(TEA)]


# --- records that cannot be deserialized ---


@pytest.fixture
def spoiled(broker: BrokerUnderTest, topic: str) -> str:
    """Partition 0 has a record that is no JSON at offset 2 of 5."""
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number in range(5):
            producer.send(topic, b"no JSON" if number == 2 else b"%d" % number, partition=0)
    return topic


def test_an_error_keeps_the_position_until_the_application_seeks(
    broker: BrokerUnderTest, spoiled: str, closing: ExitStack
) -> None:
    """As Java's RecordDeserializationException: the records before come first, then the error, again and again."""
    consumer = closing.enter_context(
        reader(broker, spoiled, group_id=broker.name("g"), enable_auto_commit=True, value_deserializer=json.loads)
    )
    at = fencepost.TopicPartition(spoiled, 0)
    assert values(polled(consumer, 2)) == [0, 1]
    for _ in range(3):
        with pytest.raises(SerializationError, match=f"{spoiled}-0 at offset 2 cannot be decoded") as caught:
            consumer.poll(10_000)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == (spoiled, 0, 2)
        assert consumer.position(at) == 2
        consumer.commit()
        assert consumer.committed([at])[at].offset == 2
    consumer.seek(at, caught.value.offset + 1)
    assert values(polled(consumer, 2)) == [3, 4]
    assert consumer.position(at) == 5


def test_an_iteration_raises_as_poll_does(broker: BrokerUnderTest, spoiled: str, closing: ExitStack) -> None:
    consumer = closing.enter_context(reader(broker, spoiled, value_deserializer=json.loads))
    assert values([next(consumer) for _ in range(2)]) == [0, 1]
    assert consumer.position((spoiled, 0)) == 2
    for _ in range(2):
        with pytest.raises(SerializationError, match="at offset 2"):
            next(consumer)
    consumer.seek((spoiled, 0), 3)
    assert values([next(consumer) for _ in range(2)]) == [3, 4]


@pytest.mark.parametrize("most", [1, 2, 100])
def test_other_partitions_are_read_meanwhile(
    broker: BrokerUnderTest, spoiled: str, closing: ExitStack, most: int
) -> None:
    """The error is not put off by another partition that has records, nor does it keep these from the application."""
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number in range(100, 120):
            producer.send(spoiled, b"%d" % number, partition=1)
    consumer = closing.enter_context(reader(broker, spoiled, 2, value_deserializer=json.loads, max_poll_records=most))
    found: list[Any] = []
    errors: list[SerializationError] = []
    errors_in_a_row = polls_in_a_row = 0
    while len(found) < 22:
        try:
            found += values(consumer.poll(10_000))
            polls_in_a_row, errors_in_a_row = polls_in_a_row + 1, 0
        except SerializationError as error:
            errors.append(error)
            polls_in_a_row, errors_in_a_row = 0, errors_in_a_row + 1
        assert polls_in_a_row < 30, "the error is put off"
        assert errors_in_a_row < 30, "the other partition is kept back"
    assert {(error.partition, error.offset) for error in errors} == {(0, 2)}
    assert sorted(found) == [0, 1, *range(100, 120)]
    consumer.seek((spoiled, 0), 3)
    assert sorted(values(polled(consumer, 2))) == [3, 4]


def test_an_outage_of_a_registry_loses_nothing(broker: BrokerUnderTest, topic: str, closing: ExitStack) -> None:
    """The same records come with the next poll."""
    outages = [ConnectionRefusedError("no registry")]

    def decode(data: bytes) -> Any:
        if data == b"1" and outages:
            raise outages.pop()
        return json.loads(data)

    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number, partition=0)
    consumer = closing.enter_context(reader(broker, topic, value_deserializer=decode, max_poll_records=1))
    assert values(polled(consumer, 1)) == [0]
    with pytest.raises(RegistryUnavailableError, match="no registry"):
        consumer.poll(10_000)
    assert values(polled(consumer, 2)) == [1, 2]


def test_asyncio_keeps_the_position_too(broker: BrokerUnderTest, spoiled: str) -> None:
    async def body() -> None:
        async with fencepost.AsyncConsumer(
            broker.bootstrap_servers, auto_offset_reset="earliest", value_deserializer=json.loads
        ) as consumer:
            await consumer.assign([(spoiled, 0)])
            found: list[Any] = []
            while len(found) < 2:
                found += values(await consumer.poll(10_000))
            for _ in range(2):
                with pytest.raises(SerializationError, match="at offset 2"):
                    await consumer.poll(10_000)
                with pytest.raises(SerializationError, match="at offset 2"):
                    await anext(consumer)
            assert await consumer.position((spoiled, 0)) == 2
            consumer.seek((spoiled, 0), 3)
            assert values([await anext(consumer), await anext(consumer)]) == [3, 4]
            assert found == [0, 1]

    asyncio.run(body())
