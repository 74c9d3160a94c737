"""New passwords and certificates for clients that run, on both brokers, beside confluent-kafka."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import fencepost
from fencepost.broker.security.listeners import jaas_line
from fencepost.client.admin import ScramMechanism, ScramUpsertion
from fencepost.compat import confluent_kafka as compat
from fencepost.errors import AuthenticationError, ConfigurationError, KafkaError, UsageError
from tests.conformance.conftest import ARMS
from tests.support.certificates import Authority
from tests.support.secure_kafka import secure_kafka
from tests.support.secured import Secured, secured
from tests.support.tls import Certificates
from tests.support.waiting import until

SESSION_MS = 6_000  # a login begins in its last 5 to 15 %, which a busy machine has to hold
FIRST, SECOND = "the first word", "the second word"
PATIENCE_S = 60


@pytest.fixture(scope="module", params=ARMS)
def world(request: pytest.FixtureRequest) -> Iterator[Secured]:
    name = "listener.name.clients.scram-sha-256.connections.max.reauth.ms"
    with secured(request.param, {name: SESSION_MS, "authorizer.class.name": ""}, scram=True) as running:
        yield running


@pytest.fixture
def user(world: Secured) -> str:
    name = world.name("user")
    set_password(world, name, FIRST)
    return name


def set_password(world: Secured, user: str, password: str) -> None:
    """Set it, and wait until the broker takes it: Kafka's controller tells its brokers."""
    with fencepost.Admin(world.open_address) as admin:
        admin.alter_user_scram_credentials([ScramUpsertion(user, ScramMechanism.SCRAM_SHA_256, password)])

    def taken() -> bool:
        with contextlib.suppress(AuthenticationError), fencepost.Admin(**login(world, user, password)) as admin:
            admin.list_topics()
            return True
        return False

    until(taken)


def login(world: Secured, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": world.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": user,
        "sasl_password": password,
    }


def dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def connections(client: Any) -> int:
    """Return the number of open connections of the client."""
    links = client._core.cluster.links._links.values()
    return sum(link.live is not None for link in links)


def drop(client: Any) -> None:
    """Close its connections, as a broker that restarts does."""

    async def close() -> None:
        for link in client._core.cluster.links._links.values():
            if link.live is not None:
                link.live.close()

    client._io.call(close)


def test_a_session_is_renewed_with_the_new_password(world: Secured, user: str) -> None:
    """KIP-368: the same connection logs in again. Without the new password the broker refuses it."""
    topic = world.name("t")
    with (
        fencepost.Producer(**login(world, user, FIRST)) as informed,
        # The long pause keeps it from another login by itself.
        fencepost.Producer(**login(world, user, FIRST), reconnect_backoff_max_ms=600_000) as uninformed,
    ):
        informed.send(topic, b"v", partition=0).result(PATIENCE_S)
        uninformed.send(topic, b"v", partition=0).result(PATIENCE_S)
        cluster = informed._core.cluster
        connection = cluster.live(cluster.leader(topic, 0))
        assert connection is not None
        set_password(world, user, SECOND)
        informed.set_sasl_credentials(user, SECOND)
        failures: list[KafkaError] = []

        def refused() -> bool:
            informed.send(topic, b"v", partition=0).result(PATIENCE_S)
            error = uninformed.send(topic, b"v", partition=0).exception(PATIENCE_S) if not failures else None
            failures.extend([error] if error is not None else [])
            return bool(failures)

        until(refused)
        assert isinstance(failures[0].__cause__, AuthenticationError)
        assert cluster.live(cluster.leader(topic, 0)) is connection
        with pytest.raises(AuthenticationError):
            uninformed.send(topic, b"v")
        uninformed.set_sasl_credentials(user, SECOND)
        assert uninformed.send(topic, b"v", partition=0).result(PATIENCE_S).offset > 0


@pytest.mark.parametrize("is_idempotent", [True, False], ids=["idempotent", "plain"])
def test_a_producer_goes_on_when_the_broker_accepts_its_password_again(
    world: Secured, user: str, is_idempotent: bool
) -> None:
    """A user may be created, or a certificate renewed, after the producer was refused. Nobody tells the producer."""
    topic, refused, reported = world.name("t"), list[KafkaError](), list[Any]()
    with fencepost.Producer(**login(world, user, FIRST), enable_idempotence=is_idempotent) as producer:
        producer.send(topic, b"v").result(PATIENCE_S)
        set_password(world, user, SECOND)
        drop(producer)
        peer = confluent_kafka.Producer({**dotted(login(world, user, FIRST)), "enable.idempotence": is_idempotent})
        peer.produce(topic, b"v", on_delivery=lambda error, _: reported.append(error))
        with pytest.raises(KafkaError) as caught:
            producer.send(topic, b"v").result(PATIENCE_S)
        assert isinstance(caught.value.__cause__, AuthenticationError)
        set_password(world, user, FIRST)

        def delivered() -> bool:
            try:
                producer.send(topic, b"v").result(PATIENCE_S)
            except KafkaError as error:
                refused.append(error)
                return False
            return True

        until(delivered)
        assert all(isinstance(error, AuthenticationError) for error in refused), refused
        assert peer.flush(PATIENCE_S) == 0
    assert reported == [None]


@pytest.mark.parametrize(
    ("kind", "more", "ask"),
    [
        (fencepost.Producer, {}, lambda client, topic: client.send(topic, b"v").result(PATIENCE_S)),
        (fencepost.Consumer, {}, lambda client, topic: client.end_offsets([(topic, 0)])),
        (fencepost.ShareConsumer, {"group_id": "g"}, lambda client, topic: until(lambda: joined(client, topic))),
        (fencepost.Admin, {}, lambda client, topic: client.list_topics()),
    ],
    ids=["producer", "consumer", "share consumer", "admin"],
)
def test_new_connections_use_the_new_password(
    world: Secured, user: str, kind: type[Any], more: dict[str, Any], ask: Callable[[Any, str], object]
) -> None:
    topic = world.name("t")
    with fencepost.Admin(world.open_address) as admin:
        admin.create_topic(topic, 1)
    with kind(**login(world, user, FIRST), **more) as client:
        ask(client, topic)
        set_password(world, user, SECOND)
        client.set_sasl_credentials(user, SECOND)
        drop(client)
        ask(client, topic)
        assert connections(client) > 0


def joined(client: Any, topic: str) -> bool:
    if not client.subscription():
        client.subscribe([topic])
    client.poll(100)
    return client.assignment() != [] and connections(client) > 0


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (fencepost.AsyncProducer, {}),
        (fencepost.AsyncConsumer, {}),
        (fencepost.AsyncShareConsumer, {"group_id": "g"}),
        (fencepost.AsyncAdmin, {}),
    ],
    ids=["producer", "consumer", "share consumer", "admin"],
)
def test_asyncio_clients(world: Secured, user: str, kind: type[Any], more: dict[str, Any]) -> None:
    async def body() -> None:
        async with kind(**login(world, user, "neither"), **more) as client:
            cluster = client._core.cluster
            with pytest.raises(AuthenticationError):
                await cluster.any_connection(cluster.runtime.now_ms() + PATIENCE_S * 1000)
            client.set_sasl_credentials(user, FIRST)
            await cluster.any_connection(cluster.runtime.now_ms() + PATIENCE_S * 1000)

    asyncio.run(body())


def test_a_refused_producer_that_is_closed_leaves_no_task(world: Secured, user: str) -> None:
    """It waits for the time of another login until it is closed."""

    async def body() -> set[asyncio.Task[Any]]:
        async with fencepost.AsyncProducer(**login(world, user, FIRST), reconnect_backoff_max_ms=600_000) as client:
            topic = world.name("t")
            await (await client.send(topic, b"v"))
            set_password(world, user, SECOND)
            for link in client._core.cluster.links._links.values():
                if link.live is not None:
                    link.live.close()
            with pytest.raises(KafkaError) as caught:
                await (await client.send(topic, b"v"))
            assert isinstance(caught.value.__cause__, AuthenticationError)
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.cancelling()}

    assert asyncio.run(body()) == set()


@pytest.mark.parametrize("module", [confluent_kafka, compat], ids=["confluent-kafka", "ours"])
def test_the_same_program_with_confluent_kafka(world: Secured, user: str, module: Any) -> None:
    """A producer with a wrong password delivers when it has got the right one."""
    outcomes: list[Any] = []
    settings = {**dotted(login(world, user, "neither")), "message.timeout.ms": PATIENCE_S * 1000}
    errors: list[Any] = []
    producer = module.Producer({**settings, "error_cb": errors.append})
    until(lambda: poke(producer, errors))
    producer.set_sasl_credentials(user, FIRST)
    producer.produce(world.name("t"), b"v", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(PATIENCE_S)
    assert outcomes == [None]
    assert errors[0].name() == "_AUTHENTICATION"


def poke(producer: Any, errors: list[Any]) -> bool:
    """Ask something, which makes a client connect, until an error has come."""
    with contextlib.suppress(confluent_kafka.KafkaException, compat.KafkaException):
        producer.list_topics(timeout=0.5)
    producer.poll(0)
    return bool(errors)


def test_wrong_use() -> None:
    with fencepost.Producer("127.0.0.1:1") as producer, pytest.raises(UsageError, match="does not log in"):
        producer.set_sasl_credentials("a", "b")
    settings: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT"}
    oauth: dict[str, Any] = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: "token"}
    with fencepost.Admin("127.0.0.1:1", **settings, **oauth) as admin, pytest.raises(UsageError, match="OAUTHBEARER"):
        admin.set_sasl_credentials("a", "b")
    with fencepost.Admin("127.0.0.1:1", **settings, sasl_username="a", sasl_password="b") as admin:  # noqa: S106
        with pytest.raises(ConfigurationError, match="password"):
            admin.set_sasl_credentials("a", "\ud800")
        with pytest.raises(TypeError):
            admin.set_sasl_credentials("a", None)  # type: ignore[arg-type]


# --- certificates ---


@pytest.fixture(scope="module", params=ARMS)
def mutual(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Authority]]:
    """The address of a listener that requires certificates, and who issues them."""
    folder = tmp_path_factory.mktemp("mutual")
    if request.param == "fencepost":
        certificates = Certificates(folder)
        line = {"listener.name.sasl_ssl.plain.sasl.jaas.config": jaas_line({"a": "b"})}
        with fencepost.Broker({**certificates.settings(), **line}) as broker:
            yield broker.listener("MUTUAL"), certificates.authority
        return
    authority = Authority(folder)
    with secure_kafka(folder / "kafka", authority) as kafka:
        yield kafka.address_of("MUTUAL"), authority


def test_changed_certificates_are_read_again(
    mutual: tuple[str, Authority], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The client begins with an expired certificate, then finds half a file, then a good one."""
    address, authority = mutual
    keystore = tmp_path / "client.pem"
    shutil.copy(authority.issue("late", valid_days=-2).keystore, keystore)
    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": str(authority.path)}
    with fencepost.Admin(address, **settings, ssl_keystore_location=str(keystore)) as admin:
        with pytest.raises(KafkaError):
            admin.list_topics(api_timeout_ms=2_000)
        good = authority.issue("alice").keystore.read_text()
        keystore.write_text(good[: len(good) // 3])
        with pytest.raises(KafkaError):
            admin.list_topics(api_timeout_ms=2_000)
        assert [text for text in caplog.messages if "cannot be read" in text and "ssl_keystore" in text]
        keystore.write_text(good)
        assert isinstance(admin.list_topics(), list)


def test_a_changed_truststore_is_read_again(mutual: tuple[str, Authority], tmp_path: Path) -> None:
    address, authority = mutual
    trusted = tmp_path / "ca.pem"
    trusted.write_text(Authority(tmp_path, "Stranger").certificate)
    keystore = str(authority.issue("alice").keystore)
    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_keystore_location": keystore}
    with fencepost.Consumer(address, **settings, ssl_truststore_location=str(trusted)) as consumer:
        with pytest.raises(AuthenticationError, match="not accepted"):
            consumer.end_offsets([("t", 0)])
        trusted.write_text(authority.certificate)
        assert isinstance(consumer._io.call(lambda: reach(consumer)), str)


async def reach(client: Any) -> str:
    cluster = client._core.cluster
    connection = await cluster.any_connection(cluster.runtime.now_ms() + PATIENCE_S * 1000)
    return str(connection.name)
