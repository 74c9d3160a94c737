"""SerializingProducer, DeserializingConsumer and the schema registry, with confluent-kafka and with our module."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import fencepost
from tests.support.brokers import BrokerUnderTest
from tests.support.confluent_programs import PATIENCE_S, Kit, both, read, shown
from tests.support.schema_registry import schema_registry

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]})
PAPER = json.dumps({"title": "Paper", "type": "object", "properties": {"pages": {"type": "integer"}}})
TEA = {"item": "a pot of tea"}


def note_class() -> Any:
    """A class of Protobuf as protoc would generate it: message Note { string item = 1; }, the second of its file."""
    file = descriptor_pb2.FileDescriptorProto(name="notes.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other")
    text, optional = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    file.message_type.add(name="Note").field.add(name="item", number=1, type=text, label=optional)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call, unused-ignore]
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Note"))


Note = note_class()
KINDS = {"avro": "Avro", "json_schema": "JSON", "protobuf": "Protobuf"}
VALUE_OF = {"avro": TEA, "json_schema": {"pages": 3}, "protobuf": Note(item="a pot of tea")}
SUBJECT_OF = {"avro": "Order", "json_schema": "Paper", "protobuf": "shop.Note"}
INDEX_OF_MESSAGE = {"avro": b"", "json_schema": b"", "protobuf": b"\2\2"}  # one index, 1; both in zigzag


def part(kit: Kit, path: str) -> Any:
    """A module below that of the kit."""
    return import_module(f"{kit.module.__name__}.{path}")


def failure(kit: Kit, error: Exception) -> Any:
    """The classes of an exception by name, as far as they are the module's, with the code of its KafkaError."""
    own = (kit.module.__name__, "confluent_kafka", "cimpl")
    classes = [each.__name__ for each in type(error).__mro__ if each.__module__.startswith(own)]
    cause = getattr(error, "exception", None)
    code = error.args[0].name() if error.args and hasattr(error.args[0], "name") else None
    return [each for each in classes if not each.startswith("_")], type(cause).__name__, code


def caught(kit: Kit, call: Any) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - each kind is compared
        return failure(kit, error)


def raw(broker: BrokerUnderTest, topic: str, count: int) -> list[Any]:
    """Keys, values and headers of a partition."""
    found: list[fencepost.Record] = []
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        while len(found) < count:
            found += consumer.poll(10_000)
    return [(record.key, record.value, list(record.headers)) for record in found]


BUILDERS = ("SerializerBuilder", "DeserializerBuilder")
VALUES: dict[str, list[Any]] = {
    "String": ["", "ä", "\ud800", b"bytes", 5, None],
    "Integer": [0, -(2**31), 2**31, 1.5, "1", True, None],
    "Double": [0, -1.5, float("inf"), 10**400, "1", None],
}
BYTES: dict[str, list[Any]] = {
    "String": [b"", b"\xc3\xa4", b"\xff", None],
    "Integer": [b"\0\0\0\1", b"\xff" * 4, b"\0", b"", None],
    "Double": [bytes(8), b"\x7f\xf0" + bytes(6), b"\0", None],
}


@pytest.mark.parametrize("kind", VALUES)
def test_plain_serializers(broker: BrokerUnderTest, admin: fencepost.Admin, kind: str) -> None:
    def program(kit: Kit) -> Any:
        module = part(kit, "serialization")
        write, read_back = getattr(module, f"{kind}Serializer")(), getattr(module, f"{kind}Deserializer")()
        context = module.SerializationContext("t", module.MessageField.VALUE)
        return (
            [caught(kit, lambda value=value: write(value, context)) for value in VALUES[kind]],
            [caught(kit, lambda value=value: write(value)) for value in VALUES[kind]],
            [repr(caught(kit, lambda data=data: read_back(data, context))) for data in BYTES[kind]],
            isinstance(write, module.Serializer),
            isinstance(read_back, module.Deserializer),
            [write.close(), write.set_cluster_id_resolver(len), read_back.close()],
        )

    written, *_ = both(broker, admin, program)
    assert written[-1] is None
    assert [each for each in written if isinstance(each, list)], "one of them is refused"


def test_codecs_and_fields(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        module = part(kit, "serialization")
        context = module.SerializationContext(topic="t", field=module.MessageField.KEY, headers=[("h", b"1")])
        return (
            [(each.name, each.value, str(each), each == each.value, "t-" + each) for each in module.MessageField],
            [context.topic, context.field, context.headers],
            module.StringSerializer("utf-16-le")("ä"),
            module.StringDeserializer(codec="latin-1")(b"\xe4"),
            [caught(kit, lambda each=each: getattr(module, each)()(b"")) for each in ("Serializer", "Deserializer")],
            [caught(kit, lambda each=each: getattr(module, each)().build({}, True)) for each in BUILDERS],
        )

    assert both(broker, admin, program)[2] == "ä".encode("utf-16-le")


def test_records_with_serializers(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """Functions get the object and the context, first of the key, and may append headers."""

    def program(kit: Kit) -> Any:
        serialization = part(kit, "serialization")
        contexts: list[Any] = []
        reports: list[Any] = []

        def write(value: Any, context: Any) -> bytes | None:
            contexts.append((context.topic, context.field, context.headers, value))
            if context.headers is not None:
                context.headers.append((str(context.field), b"1"))
            return None if value is None else json.dumps(value).encode()

        def read_back(data: bytes | None, context: Any) -> Any:
            contexts.append((context.topic, context.field, context.headers, data))
            return None if data is None else json.loads(data)

        topic = kit.topic("t")
        producer = kit.open(
            kit.module.SerializingProducer,
            **{"key.serializer": serialization.StringSerializer("utf_8"), "value.serializer": write},
        )
        producer.produce(topic, "k", {"a": 1}, 0, lambda *report: reports.append(report), 1_700_000_000_000, [])
        producer.produce(topic=topic, value=None, on_delivery=lambda *report: reports.append(report))
        left = producer.flush(PATIENCE_S)
        consumer = kit.open(
            kit.module.DeserializingConsumer,
            **{"key.deserializer": serialization.StringDeserializer(), "value.deserializer": read_back},
            **{"group.id": kit.name("g"), "auto.offset.reset": "earliest", "enable.partition.eof": True},
        )
        consumer.assign([kit.partition("t", 0)])
        found = read(consumer, 2)
        deserialized = [(each.deserialized_key(), each.deserialized_value(), each.headers()) for each in found]
        end = caught(kit, lambda: consumer.poll(PATIENCE_S))
        return (
            left,
            contexts,
            [(error, message.key(), message.value(), message.offset()) for error, message in reports],
            [shown(each)[-3:] for each in found],
            deserialized,
            [end, caught(kit, lambda: consumer.consume(1, 1)), consumer.poll(0)],
            [kit.plain(topic), *raw(broker, topic, 2)],
        )

    left, contexts, _, _, deserialized, (end, consume, nothing), _ = both(broker, admin, program)
    assert (left, nothing) == (0, None)
    assert contexts[0][1] == "value"
    assert deserialized == [["k", {"a": 1}, [["value", b"1"]]], [None, None, None]]
    assert end[2] == "_PARTITION_EOF"
    assert end[0][0] == "ConsumeError"
    assert consume[0] == []  # NotImplementedError


def test_failures_of_serializers(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """The error has the exception of the serializer, and of a consumer the message; later records are read."""

    def program(kit: Kit) -> Any:
        serialization, error_module = part(kit, "serialization"), part(kit, "error")
        topic = kit.topic("t")
        integer = serialization.IntegerSerializer()
        producer = kit.open(kit.module.SerializingProducer, **{"key.serializer": integer, "value.serializer": integer})
        seen: list[Any] = [
            caught(kit, lambda: producer.produce(topic, key="k", value=1)),
            caught(kit, lambda: producer.produce(topic, key=1, value="v")),
            caught(kit, lambda: producer.produce(None, key="k")),
        ]
        for key, value in ((1, 1), (1, None)):
            producer.produce(topic, key=key, value=value)
        producer.flush(PATIENCE_S)
        with fencepost.Producer(broker.bootstrap_servers) as other:
            for key_bytes, value_bytes in ((b"x", b"\0\0\0\1"), (b"\0\0\0\1", b"x"), (b"\0\0\0\2", b"\0\0\0\3")):
                other.send(topic, value_bytes, key_bytes)
        deserializer = serialization.IntegerDeserializer()
        consumer = kit.open(
            kit.module.DeserializingConsumer,
            **{"key.deserializer": deserializer, "value.deserializer": deserializer},
            **{"group.id": kit.name("g"), "auto.offset.reset": "earliest"},
        )
        consumer.assign([kit.partition("t", 0)])
        while len(seen) < 8:
            try:
                message = consumer.poll(1)
                if message is not None:
                    seen.append((message.key(), message.value()))
            except error_module.ConsumeError as error:
                message = error.kafka_message
                attributes = (error.code, error.name, isinstance(error, serialization.SerializationError))
                seen.append((failure(kit, error), attributes, message.key(), message.value(), message.offset()))
        producer.close()
        seen.append(caught(kit, lambda: producer.produce(topic, key="k")))
        return seen

    seen = both(broker, admin, program)
    assert [each[0][0] for each in seen[:2]] == ["KeySerializationError", "ValueSerializationError"]
    assert seen[5][0][0][0] == "KeyDeserializationError"
    assert seen[6][0][0][0] == "ValueDeserializationError"
    assert seen[7] == [2, 3]


def test_builders(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """A builder gets the settings, may take some of them, and its serializer is closed with the client."""

    def program(kit: Kit) -> Any:
        module: Any = part(kit, "serialization")
        calls: list[Any] = []

        class Plain(module.StringSerializer):  # type: ignore[misc]
            def set_cluster_id_resolver(self, resolver: Any) -> None:
                calls.append(("resolver", isinstance(resolver(), str)))

            def close(self) -> None:
                calls.append("closed")

        class Builder(module.SerializerBuilder):  # type: ignore[misc]
            def build(self, conf: dict[str, Any], is_key: bool) -> Any:
                calls.append((is_key, "own.setting" in conf, "bootstrap.servers" in conf))
                left = dict(conf)
                left.pop("own.setting", None)
                return Plain(), left

        class Wrong(module.SerializerBuilder):  # type: ignore[misc]
            def __init__(self, built: Any) -> None:
                self.built = built

            def build(self, conf: dict[str, Any], is_key: bool) -> Any:
                return self.built

        producer_class = kit.module.SerializingProducer
        ready = {"value.serializer": Plain()}
        with producer_class(
            kit.settings() | {"own.setting": 1, "key.serializer.builder": Builder()} | ready
        ) as producer:
            producer.produce(kit.topic("t"), key="k", value="v")
        return (
            calls,
            raw(broker, kit.name("t"), 1),
            caught(kit, lambda: producer_class(kit.settings() | ready | {"value.serializer.builder": Builder()})),
            [
                caught(kit, lambda wrong=wrong: producer_class(kit.settings() | {"key.serializer.builder": wrong}))
                for wrong in (Wrong(None), Wrong((Plain(), None)), Wrong((Plain(), {"no.such": 1})))
            ],
            caught(kit, producer_class),
            calls.count("closed"),
        )

    calls, records, *_ = both(broker, admin, program)
    assert calls[0] == [True, True, True]
    assert records == [[b"k", b"v", []]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("id_location", ["prefix", "headers"])
def test_schema_registry(broker: BrokerUnderTest, admin: fencepost.Admin, kind: str, id_location: str) -> None:
    def program(kit: Kit) -> Any:
        with schema_registry() as url:
            return against(kit, url)

    def against(kit: Kit, url: str) -> Any:
        registry, module = part(kit, "schema_registry"), part(kit, f"schema_registry.{kind}")
        topic = kit.topic("t")
        client = registry.SchemaRegistryClient({"url": url})
        name = KINDS[kind]
        write_id = {"prefix": registry.prefix_schema_id_serializer, "headers": registry.header_schema_id_serializer}
        settings = {
            "schema.id.serializer": write_id[id_location],
            "subject.name.strategy": registry.topic_record_subject_name_strategy,
        }
        if kind == "avro":
            write = module.AvroSerializer(client, ORDER, lambda value, _: value, conf=settings)
            read_back = module.AvroDeserializer(client, from_dict=lambda value, _: sorted(value.items()))
        elif kind == "json_schema":
            write = module.JSONSerializer(PAPER, client, conf=settings)
            read_back = module.JSONDeserializer(PAPER, schema_registry_client=client)
        else:
            write = module.ProtobufSerializer(Note, client, settings)
            read_back = module.ProtobufDeserializer(Note, {}, client)
        value = VALUE_OF[kind]
        producer = kit.open(kit.module.SerializingProducer, **{"value.serializer": write})
        producer.produce(topic, value=value, headers=[])
        producer.flush(PATIENCE_S)
        wrong = caught(kit, lambda: producer.produce(topic, value={"item": 5, "pages": "x"}, headers=[]))
        serialization = part(kit, "serialization")
        context = serialization.SerializationContext(topic, serialization.MessageField.VALUE, [])
        consumer = kit.open(
            kit.module.DeserializingConsumer,
            **{"value.deserializer": read_back, "group.id": kit.name("g"), "auto.offset.reset": "earliest"},
        )
        consumer.assign([kit.partition("t", 0)])
        with fencepost.Producer(broker.bootstrap_servers) as other:
            other.send(topic, b"no schema id in front")
        message = read(consumer, 1)[0]
        broken = caught(kit, lambda: consumer.poll(PATIENCE_S))
        schema = client.get_schema(1)
        subject = f"{topic}-{SUBJECT_OF[kind]}"
        assert client.lookup_schema(subject, schema).schema_id == 1
        data, headers = raw(broker, topic, 1)[0][1:]
        return (
            [name, message.value(), data, headers],
            wrong,
            broken,
            [caught(kit, lambda: read_back(b"no schema id in front", context)), read_back(None, context)],
            [schema.schema_type, schema.schema_str],
            [type(each).__name__ for each in (client, schema)],
            isinstance(write, serialization.Serializer),
        )

    (_, value, data, headers), wrong, broken, (direct, nothing), schema, *_ = both(broker, admin, program)
    assert value == ([["item", "a pot of tea"]] if kind == "avro" else VALUE_OF[kind])
    if id_location == "prefix":
        assert data[:5] == b"\0\0\0\0\1"
    else:
        assert headers == [["__value_schema_id", b"\1" + UUID(int=1).bytes + INDEX_OF_MESSAGE[kind]]]
    assert wrong[0][0] == "ValueSerializationError"
    assert broken[0][0] == "ValueDeserializationError"
    assert direct[0] == ["SerializationError", "KafkaException"]
    assert nothing is None
    assert schema[0] == KINDS[kind].upper()


@pytest.mark.parametrize("kind", ["avro", "json_schema"])
def test_builders_of_the_schema_registry(broker: BrokerUnderTest, admin: fencepost.Admin, kind: str) -> None:
    def program(kit: Kit) -> Any:
        with schema_registry() as url:
            module, name = part(kit, f"schema_registry.{kind}"), KINDS[kind]
            topic = kit.topic("t")
            build = getattr(module, f"{name}SerializerBuilder")().set_schema_registry_config({"url": url})
            build_reader = getattr(module, f"{name}DeserializerBuilder")().set_schema_registry_config({"url": url})
            with kit.module.SerializingProducer(
                kit.settings() | {"value.serializer.builder": build.set_schema(ORDER if kind == "avro" else PAPER)}
            ) as producer:
                producer.produce(topic, value=TEA if kind == "avro" else {"pages": 3})
            if kind == "json_schema":
                build_reader = build_reader.set_schema(PAPER)
            settings = {"group.id": kit.name("g"), "auto.offset.reset": "earliest"}
            with kit.module.DeserializingConsumer(
                kit.settings() | settings | {"value.deserializer.builder": build_reader}
            ) as consumer:
                consumer.assign([kit.partition("t", 0)])
                return read(consumer, 1)[0].value(), raw(broker, topic, 1)

    value, records = both(broker, admin, program)
    assert value == (TEA if kind == "avro" else {"pages": 3})
    assert records[0][1][:5] == b"\0\0\0\0\1"


def test_errors_of_the_registry(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        with schema_registry() as url:
            client = part(kit, "schema_registry").SchemaRegistryClient({"url": url})
            errors = part(kit, "schema_registry.error")
            try:
                client.get_schema(77)
            except errors.SchemaRegistryError as error:
                return error.http_status_code, error.error_code, str(error)

    assert both(broker, admin, program)[:2] == [404, 40403]


def test_subject_names(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    def program(kit: Kit) -> Any:
        registry, serialization = part(kit, "schema_registry"), part(kit, "serialization")
        context = serialization.SerializationContext("t", serialization.MessageField.KEY)
        names = ("topic_subject_name_strategy", "topic_record_subject_name_strategy", "record_subject_name_strategy")
        return [
            caught(kit, lambda name=name, given=given: getattr(registry, name)(given, "Order"))
            for name in names
            for given in (context, None)
        ]

    assert both(broker, admin, program)[::2] == ["t-key", "t-Order", "Order"]
