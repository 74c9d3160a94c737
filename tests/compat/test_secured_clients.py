"""Clients of others on a broker that asks who they are and what they may.

librdkafka, kafka-python, aiokafka, and Kafka's own tool for ACLs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import admin as _admin

from fencepost.broker.embedded import Broker
from tests.support.kafka_tools import run_kafka_tool

admin_api: Any = _admin  # its names are imported there without being exported, as type checkers see it

USERS = {"admin": "the admin's", "alice": 'pass=word,"ü', "bob": "b"}
CLOSED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
WAIT_S = 60.0


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(CLOSED, users=USERS) as broker:
        yield broker.bootstrap_servers


def as_user(servers: str, user: str, **more: Any) -> dict[str, Any]:
    """librdkafka's configuration."""
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS.get(user, "wrong"),
        "log_level": 0,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def grant(servers: str, user: str, kind: Any, name: str, operation: Any) -> None:
    binding = admin_api.AclBinding(
        kind,
        name,
        admin_api.ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        admin_api.AclPermissionType.ALLOW,
    )
    admin = admin_api.AdminClient(as_user(servers, "admin"))
    (future,) = admin.create_acls([binding]).values()
    future.result(WAIT_S)


def send(servers: str, user: str, topic: str) -> KafkaError | None:
    """One record; returns what came of it."""
    outcome: list[KafkaError | None] = []
    producer = Producer(as_user(servers, user))
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(WAIT_S) == 0
    return outcome[0]


def make_topic(servers: str, name: str) -> str:
    admin = admin_api.AdminClient(as_user(servers, "admin"))
    admin.create_topics([admin_api.NewTopic(name, 1, 1)])[name].result(WAIT_S)
    return name


def test_librdkafka(servers: str) -> None:
    topic = make_topic(servers, "of-librdkafka")
    denied = send(servers, "alice", topic)
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    grant(servers, "alice", admin_api.ResourceType.TOPIC, topic, admin_api.AclOperation.ALL)
    assert send(servers, "alice", topic) is None
    consumer = Consumer(as_user(servers, "alice", group_id="librdkafka", auto_offset_reset="earliest"))
    consumer.subscribe([topic])
    message = consumer.poll(WAIT_S)
    error = message.error() if message is not None else None
    assert error is not None
    assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    grant(servers, "alice", admin_api.ResourceType.GROUP, "librdkafka", admin_api.AclOperation.READ)
    polled = (consumer.poll(1.0) for _ in range(60))
    seen = next(message for message in polled if message is not None and not message.error())
    consumer.close()
    assert seen.value() == b"value"


def test_librdkafka_transactions(servers: str) -> None:
    topic = make_topic(servers, "of-transactions")
    producer = Producer(as_user(servers, "alice", transactional_id="tx-1"))
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(WAIT_S)
    assert raised.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    grant(servers, "alice", admin_api.ResourceType.TRANSACTIONAL_ID, "tx-1", admin_api.AclOperation.WRITE)
    grant(servers, "alice", admin_api.ResourceType.TOPIC, topic, admin_api.AclOperation.WRITE)
    producer = Producer(as_user(servers, "alice", transactional_id="tx-1"))
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"value")
    producer.commit_transaction(WAIT_S)


def test_a_wrong_password_is_told(servers: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer({**as_user(servers, "mallory"), "error_cb": errors.append})
    for _ in range(600):
        producer.poll(0.1)
        if errors:
            break
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "Invalid username or password" in errors[0].str()


SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def carol(servers: str) -> tuple[str, str]:
    """Somebody whose passwords are stored, set by librdkafka, and who may do everything with a topic of that name."""
    name, password = "carol", 'pass=word,"ü'
    admin = admin_api.AdminClient(as_user(servers, "admin"))
    for mechanism in (admin_api.ScramMechanism.SCRAM_SHA_256, admin_api.ScramMechanism.SCRAM_SHA_512):
        credential = admin_api.ScramCredentialInfo(mechanism, 5000)
        wanted = admin_api.UserScramCredentialUpsertion(name, credential, password.encode())
        admin.alter_user_scram_credentials([wanted])[name].result(WAIT_S)
    grant(servers, name, admin_api.ResourceType.TOPIC, make_topic(servers, name), admin_api.AclOperation.ALL)
    return name, password


@pytest.mark.parametrize("mechanism", SCRAM)
def test_librdkafka_with_scram(servers: str, carol: tuple[str, str], mechanism: str) -> None:
    name, password = carol
    own = {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password}
    outcome: list[KafkaError | None] = []
    producer = Producer({**as_user(servers, name), **own})
    producer.produce(name, b"value", on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(WAIT_S) == 0
    assert outcome == [None]
    errors: list[KafkaError] = []
    producer = Producer({**as_user(servers, name), **own, "sasl.password": "other", "error_cb": errors.append})
    for _ in range(600):
        producer.poll(0.1)
        if errors:
            break
    assert errors[0].code() == KafkaError._AUTHENTICATION


@pytest.mark.parametrize("mechanism", SCRAM)
def test_kafka_python_with_scram(servers: str, carol: tuple[str, str], mechanism: str) -> None:
    kafka = pytest.importorskip("kafka")
    login = {"bootstrap_servers": servers, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    name, password = carol
    producer = kafka.KafkaProducer(**login, sasl_plain_username=name, sasl_plain_password=password)
    assert producer.send(name, b"value").get(WAIT_S).offset >= 0
    producer.close()
    admin = kafka.KafkaAdminClient(**login, sasl_plain_username="admin", sasl_plain_password=USERS["admin"])
    try:
        reported = str(admin.describe_user_scram_credentials([name]))
    finally:
        admin.close()
    assert reported.count("5000") == len(SCRAM), reported


@pytest.mark.asyncio
@pytest.mark.parametrize("mechanism", SCRAM)
async def test_aiokafka_with_scram(servers: str, carol: tuple[str, str], mechanism: str) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    name, password = carol
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=name,
        sasl_plain_password=password,
    )
    await producer.start()
    try:
        assert (await producer.send_and_wait(name, b"value")).offset >= 0
    finally:
        await producer.stop()


def test_kafka_python(servers: str) -> None:
    kafka = pytest.importorskip("kafka")
    topic = make_topic(servers, "of-kafka-python")
    for operation in (admin_api.AclOperation.READ, admin_api.AclOperation.WRITE):
        grant(servers, "bob", admin_api.ResourceType.TOPIC, topic, operation)
    login = {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "bob",
        "sasl_plain_password": USERS["bob"],
    }
    producer = kafka.KafkaProducer(**login)
    assert producer.send(topic, b"value").get(WAIT_S).offset == 0
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send("of-somebody-else", b"value").get(WAIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(**login, auto_offset_reset="earliest", consumer_timeout_ms=int(WAIT_S * 1000))
    consumer.assign([kafka.TopicPartition(topic, 0)])
    assert next(consumer).value == b"value"
    consumer.close()


@pytest.mark.asyncio
async def test_aiokafka(servers: str) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    topic = make_topic(servers, "of-aiokafka")
    grant(servers, "bob", admin_api.ResourceType.TOPIC, topic, admin_api.AclOperation.ALL)
    grant(servers, "bob", admin_api.ResourceType.GROUP, "aiokafka", admin_api.AclOperation.READ)
    login = {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "bob",
        "sasl_plain_password": USERS["bob"],
    }
    producer = aiokafka.AIOKafkaProducer(**login)
    await producer.start()
    try:
        assert (await producer.send_and_wait(topic, b"value")).offset == 0
    finally:
        await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(topic, **login, group_id="aiokafka", auto_offset_reset="earliest")
    await consumer.start()
    try:
        assert (await consumer.getone()).value == b"value"
    finally:
        await consumer.stop()


@pytest.mark.java
def test_kafkas_own_tool(servers: str, tmp_path: Path) -> None:
    """`kafka-acls.sh`: with the admin's password it gives and shows rights, with somebody else's it is refused."""
    password = USERS["admin"]
    properties = tmp_path / "admin.properties"
    properties.write_text(_java_login("admin", password))
    where = ("--bootstrap-server", servers, "--command-config", str(properties))
    given = run_kafka_tool(
        "AclCommand",
        *where,
        *("--add", "--allow-principal", "User:carol", "--producer", "--topic", "of-java", "--transactional-id", "tx-"),
        *("--resource-pattern-type", "prefixed", "--idempotent"),
    )
    assert given.status == 0, given.output
    shown = run_kafka_tool("AclCommand", *where, "--list", "--principal", "User:carol")
    assert shown.status == 0, shown.output
    for text in ("name=of-java, patternType=PREFIXED", "name=tx-, patternType=PREFIXED", "operation=IDEMPOTENT_WRITE"):
        assert text in shown.stdout
    removed = run_kafka_tool(
        "AclCommand",
        *where,
        *("--remove", "--topic", "of-java", "--resource-pattern-type", "prefixed", "--force"),
    )
    assert removed.status == 0, removed.output
    (tmp_path / "bob.properties").write_text(_java_login("bob", USERS["bob"]))
    refused = run_kafka_tool(
        "AclCommand",
        *("--bootstrap-server", servers, "--command-config", str(tmp_path / "bob.properties"), "--list"),
    )
    assert "ClusterAuthorizationException" in refused.output


def _java_login(user: str, password: str) -> str:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="{user}" password="{password}";\n'
    )
