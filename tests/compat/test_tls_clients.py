"""Clients of others by TLS: with a certificate, as the user that it is mapped to, and with SASL through it."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.client.admin import Acl, AclOperation, ResourceType
from fencepost.errors import AuthenticationError, ConfigurationError, ProduceFailedError
from fencepost.spark.options import SinkOptions
from fencepost.spark.sink.runner import ClusterClient
from tests.support.certificates import Identity
from tests.support.commands import Commands
from tests.support.kafka_tools import run_kafka_tool
from tests.support.tls import Certificates

ADMIN, PASSWORD = "admin", "a secret"
CLOSED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN}",
}
WAIT_S = 60.0
OPEN = "for-alice"
SHUT = "for-others"


@dataclass
class World:
    """A broker where alice, by her certificate, may write and read one topic; `certificates.clients` has others."""

    broker: Broker
    certificates: Certificates
    bob: Identity

    @property
    def mutual(self) -> str:
        return self.broker.listener("MUTUAL")

    @property
    def sasl(self) -> str:
        return self.broker.listener("SASL_SSL")

    def admin(self) -> fencepost.Admin:
        return fencepost.Admin(
            self.sasl,
            security_protocol="SASL_SSL",
            sasl_username=ADMIN,
            sasl_password=PASSWORD,
            ssl_truststore_location=str(self.certificates.authority.path),
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    with Broker({**certificates.settings(), **CLOSED}, users={ADMIN: PASSWORD}) as broker:
        running = World(broker, certificates, certificates.authority.issue("bob"))
        with running.admin() as admin:
            for topic in (OPEN, SHUT):
                admin.create_topic(topic, 1)
            admin.create_acls(
                [
                    Acl(ResourceType.TOPIC, OPEN, "User:alice", AclOperation.ALL),
                    Acl(ResourceType.GROUP, "*", "User:alice", AclOperation.READ),
                ]
            )
        yield running


def librdkafka(world: World, identity: Identity | None, **more: Any) -> dict[str, Any]:
    own = (
        {}
        if identity is None
        else {
            "ssl.certificate.location": str(identity.certificate_path),
            "ssl.key.location": str(identity.key_path),
        }
    )
    return {
        "bootstrap.servers": world.mutual,
        "security.protocol": "SSL",
        "ssl.ca.location": str(world.certificates.authority.path),
        "log_level": 0,
        **own,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def send(config: dict[str, Any], topic: str) -> KafkaError | None:
    """One record; returns what came of it."""
    outcome: list[KafkaError | None] = []
    producer = Producer(config)
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(WAIT_S) == 0
    return outcome[0]


def test_librdkafka(world: World) -> None:
    alice = world.certificates.alice
    assert send(librdkafka(world, alice), OPEN) is None
    for identity, topic in ((alice, SHUT), (world.bob, OPEN)):
        denied = send(librdkafka(world, identity), topic)
        assert denied is not None
        assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer(librdkafka(world, alice, group_id="librdkafka", auto_offset_reset="earliest"))
    consumer.subscribe([OPEN])
    polled = (consumer.poll(1.0) for _ in range(60))
    assert next(message for message in polled if message is not None and not message.error()).value() == b"value"
    consumer.close()
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "bootstrap.servers": world.sasl}
    login |= {"sasl.username": ADMIN, "sasl.password": PASSWORD}
    assert send({**librdkafka(world, None), **login}, SHUT) is None


def stores_of(folder: Path, authority: Path, identity: Identity, password: str) -> tuple[Path, Path]:
    """A key store made by OpenSSL, and a trust store made by Java's keytool, both PKCS#12."""
    keys, trusted = folder / "keys.p12", folder / "trusted.p12"
    files = ("-in", str(identity.certificate_path), "-inkey", str(identity.key_path), "-out", str(keys))
    subprocess.run(["openssl", "pkcs12", "-export", *files, "-passout", f"pass:{password}"], check=True)
    options = ("-noprompt", "-alias", "ca", "-storetype", "PKCS12", "-storepass", password)
    subprocess.run(
        ["keytool", "-importcert", *options, "-file", str(authority), "-keystore", str(trusted)],
        check=True,
        capture_output=True,
    )
    return keys, trusted


@pytest.mark.java
def test_our_client_with_pkcs12(world: World, tmp_path: Path) -> None:
    keys, trusted = stores_of(tmp_path, world.certificates.authority.path, world.certificates.alice, PASSWORD)
    settings = {
        "bootstrap.servers": world.mutual,
        "security.protocol": "SSL",
        "ssl.keystore.location": str(keys),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(trusted),
        "ssl.truststore.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
    }
    with fencepost.Producer.from_config(settings) as producer:
        assert producer.send(OPEN, b"value").result(WAIT_S).offset >= 0
        with pytest.raises(ProduceFailedError, match="TOPIC_AUTHORIZATION_FAILED"):
            producer.send(SHUT, b"value").result(WAIT_S)
    of_spark = SinkOptions.parse({**{f"kafka.{name}": value for name, value in settings.items()}, "sink.id": "copy"})
    sink = ClusterClient(dict(of_spark.client.common))
    sink.reach()
    sink.close()
    del settings["ssl.truststore.type"], settings["ssl.truststore.password"], settings["ssl.truststore.location"]
    of_librdkafka = {**settings, "ssl.ca.location": str(world.certificates.authority.path)}
    assert send({**of_librdkafka, "log_level": 0}, OPEN) is None
    with fencepost.Producer.from_config(of_librdkafka) as producer:
        assert producer.send(OPEN, b"value").result(WAIT_S).offset >= 0
    with pytest.raises(ConfigurationError, match=r"keys.p12: it cannot be read as PKCS#12, or needs another ssl.key"):
        fencepost.Producer.from_config({**of_librdkafka, "ssl.keystore.password": "another"})
    with pytest.raises(ConfigurationError, match=r"trusted.p12: it has no key"):
        fencepost.Producer.from_config({**of_librdkafka, "ssl.keystore.location": str(trusted)})
    (tmp_path / "old.jks").write_bytes(b"\xfe\xed\xfe\xed" + bytes(20))
    with pytest.raises(ConfigurationError, match=r"old.jks: the old format .* `keytool -importkeystore"):
        fencepost.Producer.from_config({**of_librdkafka, "ssl.keystore.location": str(tmp_path / "old.jks")})


@pytest.mark.parametrize(
    ("whose", "alert"),
    [("missing", "certificate required"), ("of a stranger", "unknown ca"), ("expired", "certificate expired")],
)
def test_librdkafka_is_told_of_its_certificate(world: World, whose: str, alert: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer({**librdkafka(world, world.certificates.clients[whose]), "error_cb": errors.append})
    for _ in range(600):
        producer.poll(0.1)
        if errors:
            break
    assert f"alert {alert}" in errors[0].str()


@pytest.mark.asyncio
async def test_aiokafka(world: World) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    with_tls = {
        "bootstrap_servers": world.mutual,
        "security_protocol": "SSL",
        "ssl_context": world.certificates.context(world.certificates.alice),
    }
    producer = aiokafka.AIOKafkaProducer(**with_tls)
    await producer.start()
    try:
        assert (await producer.send_and_wait(OPEN, b"value")).offset >= 0
        with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
            await producer.send_and_wait(SHUT, b"value")
    finally:
        await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(OPEN, **with_tls, group_id="aiokafka", auto_offset_reset="earliest")
    await consumer.start()
    try:
        assert (await consumer.getone()).value == b"value"
    finally:
        await consumer.stop()
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=world.sasl,
        security_protocol="SASL_SSL",
        ssl_context=world.certificates.context(),
        sasl_mechanism="PLAIN",
        sasl_plain_username=ADMIN,
        sasl_plain_password=PASSWORD,
    )
    await producer.start()
    try:
        assert (await producer.send_and_wait(SHUT, b"value")).offset >= 0
    finally:
        await producer.stop()


def test_kafka_python(world: World) -> None:
    kafka = pytest.importorskip("kafka")

    def producer(identity: Identity | None, **more: object) -> Any:
        context: ssl.SSLContext = world.certificates.context(identity)
        return kafka.KafkaProducer(
            **{"bootstrap_servers": world.mutual, "security_protocol": "SSL", "ssl_context": context, **more}
        )

    mine = producer(world.certificates.alice)
    assert mine.send(OPEN, b"value").get(WAIT_S).offset >= 0
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        mine.send(SHUT, b"value").get(WAIT_S)
    mine.close()
    login = {"sasl_mechanism": "PLAIN", "sasl_plain_username": ADMIN, "sasl_plain_password": PASSWORD}
    other = producer(None, bootstrap_servers=world.sasl, security_protocol="SASL_SSL", **login)
    assert other.send(SHUT, b"value").get(WAIT_S).offset >= 0
    other.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=world.mutual,
        security_protocol="SSL",
        ssl_context=world.certificates.context(world.certificates.alice),
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(WAIT_S * 1000),
    )
    consumer.assign([kafka.TopicPartition(OPEN, 0)])
    assert next(consumer).value == b"value"
    consumer.close()


def test_ours(world: World) -> None:
    with_tls: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_truststore_location": str(world.certificates.authority.path),
        "ssl_keystore_location": str(world.certificates.alice.keystore),
    }
    with fencepost.Producer(world.mutual, **with_tls) as producer:
        assert producer.send(OPEN, b"value").result().offset >= 0
        with pytest.raises(ProduceFailedError, match="29"):
            producer.send(SHUT, b"value").result()
    with fencepost.Consumer(world.mutual, group_id="ours", auto_offset_reset="earliest", **with_tls) as consumer:
        consumer.subscribe([OPEN])
        assert next(iter(consumer)).value == b"value"
    with_tls["ssl_keystore_location"] = None
    refused = pytest.raises(AuthenticationError, match="does not accept our certificate, or wants a certificate")
    with fencepost.Admin(world.mutual, **with_tls) as admin, refused:
        admin.list_topics()


def test_our_commands(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    trusted = f"ssl.truststore.type=PEM\nssl.truststore.location={world.certificates.authority.path}\n"
    own = f"ssl.keystore.type=PEM\nssl.keystore.location={world.certificates.alice.keystore}\n"

    file.write_text(f"security.protocol=SSL\n{trusted}{own}")
    as_alice = Commands(world.mutual, capsys, "--command-config", str(file))
    assert as_alice.json("topics", "list") == [OPEN]

    login = f"sasl.mechanism=PLAIN\nsasl.username={ADMIN}\nsasl.password={PASSWORD}\n"
    file.write_text(f"security.protocol=SASL_SSL\n{trusted}{login}")
    as_admin = Commands(world.sasl, capsys, "--command-config", str(file))
    assert {OPEN, SHUT} <= set(as_admin.json("topics", "list"))

    file.write_text(f"security.protocol=SSL\n{trusted}")
    without = Commands(world.mutual, capsys, "--command-config", str(file))
    without("topics", "list", status=1)
    assert "does not accept our certificate, or wants a certificate" in without.error


@pytest.mark.java
def test_java(world: World, tmp_path: Path) -> None:
    """Kafka's tools: the console's producer as alice, who may; `kafka-topics` as her, who sees hers and no other."""

    def properties(identity: Identity) -> str:
        path = tmp_path / "client.properties"
        authority = world.certificates.authority.path
        path.write_text(
            f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={authority}\n"
            f"ssl.keystore.type=PEM\nssl.keystore.location={identity.keystore}\n"
        )
        return str(path)

    config = properties(world.certificates.alice)
    reported = run_kafka_tool(
        "TopicCommand",
        *("--bootstrap-server", world.mutual, "--command-config", config, "--list"),
    )
    assert reported.status == 0, reported.output
    assert reported.stdout.split() == [OPEN]
    sent = run_kafka_tool(
        "ConsoleProducer",
        *("--bootstrap-server", world.mutual, "--command-config", config, "--topic", OPEN, "--sync"),
        stdin="of java\n",
    )
    assert sent.status == 0, sent.output
    with world.admin() as admin:
        assert admin.list_topics()
    read = run_kafka_tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", world.mutual, "--command-config", config, "--topic", OPEN, "--from-beginning"),
        *("--group", "java", "--timeout-ms", "20000", "--max-messages", "1"),
    )
    assert read.stdout.strip() in ("value", "of java"), read.output
    untrusted = world.certificates.clients["of a stranger"]
    assert untrusted is not None
    refused = run_kafka_tool(
        "TopicCommand",
        *("--bootstrap-server", world.mutual, "--command-config", properties(untrusted), "--list"),
    )
    assert "SslAuthenticationException" in refused.output
