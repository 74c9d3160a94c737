"""Records as objects: through confluent-kafka's serializers and a registry, and what happens to those that cannot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import fencepost
from fencepost.errors import ConfigurationError, RegistryUnavailableError, RetriableError, SerializationError
from fencepost.schemas import Context, Decoder, Encoder
from tests.support.schema_registry import schema_registry

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "what", "type": ["null", "string"], "default": None}],
    }
)
WHO = json.dumps(
    {"title": "Requester", "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
)


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with schema_registry() as url:
        yield url


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with fencepost.Broker() as broker:
        yield broker.bootstrap_servers


def client(registry: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry})


def records(servers: str, topic: str, count: int) -> list[fencepost.Record]:
    found: list[fencepost.Record] = []
    with fencepost.Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        while len(found) < count:
            found += consumer.poll(10_000)
    return found


def test_avro_values_and_json_keys(registry: str, servers: str) -> None:
    encoder = Encoder(AvroSerializer(client(registry), ORDER), JSONSerializer(WHO, client(registry)))
    with fencepost.Producer(servers) as producer:
        encoder.send(producer, "orders", {"id": 7, "what": "tea"}, {"name": "ann"}, headers=[("via", b"web")]).result()
        encoder.send(producer, "orders", None, {"name": "ann"}, partition=0).result()
    first, second = records(servers, "orders", 2)
    assert first.value is not None and first.key is not None
    assert first.value[:1] == first.key[:1] == b"\0", "the wire format's magic byte"
    # Another client of the registry, as in another process: it finds the schemas by the numbers in the bytes.
    others = client(registry)
    decoder = Decoder(AvroDeserializer(others), JSONDeserializer(None, schema_registry_client=others))
    assert decoder.decode(first)[:2] == ({"name": "ann"}, {"id": 7, "what": "tea"})
    assert decoder.decode(second)[:2] == ({"name": "ann"}, None)
    assert decoder.decode(first).record is first


def word_class() -> Any:
    """A message class, as protoc would make it."""
    file = descriptor_pb2.FileDescriptorProto(name="word.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Word").field.add(name="text", number=1, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Word"))


def test_protobuf(registry: str, servers: str) -> None:
    word = word_class()
    settings: dict[str, Any] = {"use.deprecated.format": False}
    encoder = Encoder(ProtobufSerializer(word, client(registry), settings))
    with fencepost.Producer(servers) as producer:
        encoder.send(producer, "words", word(text="tea"), b"as it is").result()
    decoder = Decoder(ProtobufDeserializer(word, settings, schema_registry_client=client(registry)))
    key, value, _ = decoder.decode(records(servers, "words", 1)[0])
    assert (key, value.text) == (b"as it is", "tea")


def test_what_cannot_be_encoded_is_not_sent(registry: str, servers: str) -> None:
    encoder = Encoder(AvroSerializer(client(registry), ORDER))
    with fencepost.Producer(servers, transactional_id="schemas") as producer:
        producer.init_transactions()
        with producer.transaction():
            encoder.send(producer, "spoiled", {"id": 1})
            with pytest.raises(SerializationError, match="the value of a record of spoiled cannot be encoded") as met:
                encoder.send(producer, "spoiled", {"id": "one"})
        assert (met.value.topic, met.value.partition, met.value.offset) == ("spoiled", -1, -1)
    (only,) = records(servers, "spoiled", 1)
    assert Decoder(AvroDeserializer(client(registry))).decode(only).value == {"id": 1, "what": None}


def test_what_cannot_be_decoded_has_its_place_and_the_next_one_comes(registry: str, servers: str) -> None:
    encoder, decoder = Encoder(AvroSerializer(client(registry), ORDER)), Decoder(AvroDeserializer(client(registry)))
    with fencepost.Producer(servers) as producer:
        producer.send("mixed", b"not of a registry").result()
        encoder.send(producer, "mixed", {"id": 3}).result()
    bad, good = records(servers, "mixed", 2)
    with pytest.raises(SerializationError, match="of mixed-0 at offset 0 cannot be decoded") as met:
        decoder.decode(bad)
    assert (met.value.topic, met.value.partition, met.value.offset) == ("mixed", 0, 0)
    assert decoder.decode(good).value["id"] == 3


def test_a_registry_that_is_not_there_is_named() -> None:
    nobody = SchemaRegistryClient({"url": "http://127.0.0.1:9", "max.retries": 0, "timeout": 1})
    with pytest.raises(RegistryUnavailableError, match="orders cannot be encoded: ConnectError"):
        Encoder(AvroSerializer(nobody, ORDER)).encode("orders", {"id": 1})


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (SchemaRegistryError(503, -1, "out of order"), True),
        (SchemaRegistryError(429, -1, "too many"), True),
        (SchemaRegistryError(404, 40401, "no such subject"), False),
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (FileNotFoundError("order.avsc"), False),
        (ValueError("no string"), False),
    ],
)
def test_an_outage_of_the_registry_may_pass(error: Exception, may_pass: bool) -> None:
    def fails(_: object, __: object) -> bytes:
        raise error

    with pytest.raises(SerializationError) as raised:
        Encoder(fails).encode("orders", {"id": 1})
    assert isinstance(raised.value, RetriableError) is may_pass
    assert raised.value.__cause__ is error


def test_asynchronous_serializers_are_refused(servers: str) -> None:
    async def encode(value: object, context: object) -> bytes:
        return b"v"

    class OfConfluent:
        """Its call is none of a coroutine function, and gives a coroutine."""

        def __call__(self, value: object, context: object) -> Any:
            return encode(value, context)

    words = "gives a coroutine: serializers are called synchronously"
    for serializer_class in (Encoder, Decoder):
        with pytest.raises(ConfigurationError, match=words):
            serializer_class(encode)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=f"OfConfluent for the value {words}"):
        Encoder(OfConfluent()).encode("orders", 1)
    with pytest.raises(ConfigurationError, match=f"OfConfluent for the key {words}"):
        Encoder(key=OfConfluent()).encode("orders", b"v", 1)


def test_any_callable_will_do(servers: str) -> None:
    reported: list[Context] = []

    def to_json(value: object, context: Context) -> bytes:
        reported.append(context)
        return json.dumps(value).encode()

    async def both_ways() -> object:
        encoder, decoder = Encoder(to_json), Decoder(lambda data, _: json.loads(data))
        async with fencepost.AsyncProducer(servers) as producer:
            value, key = await asyncio.to_thread(encoder.encode, "async", [1, 2], b"k")
            await (await producer.send("async", value, key))
        async with fencepost.AsyncConsumer(servers, auto_offset_reset="earliest") as consumer:
            await consumer.assign([("async", 0)])
            return decoder.decode((await consumer.poll(10_000))[0]).value

    assert asyncio.run(both_ways()) == [1, 2]
    assert reported == [Context("async", "value", None)]
