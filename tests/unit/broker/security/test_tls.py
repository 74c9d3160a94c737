"""TLS at the broker's sockets: who is let in, what the others are told and the log says, and what it costs anybody."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.broker.api.apis import SERVED
from fencepost.broker.embedded import Broker
from fencepost.broker.network import tls_sockets
from fencepost.broker.security.certificate_names import end_s_of
from fencepost.broker.security.tls import tls_failure
from fencepost.protocol.fetch_wire import FetchPartition, FetchRequest, FetchTopic, encode_request
from fencepost.protocol.frame import encode_request_frame
from fencepost.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from fencepost.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.metadata import MetadataRequest
from tests.support.raw_client import Closed, RawClient
from tests.support.tls import Certificates

USERS = {"admin": "a"}
TOPICS = MetadataRequest(topics=None)
GONE = (Closed, OSError)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[Broker]:
    with Broker(certificates.settings(), users=USERS) as running:
        yield running


def ask(address: str, tls: ssl.SSLContext | None, login: tuple[str, str] | None = None) -> None:
    with RawClient(address, tls=tls, login=login, timeout_s=60) as client:
        assert client.call(TOPICS, 9).brokers


@pytest.mark.parametrize(
    ("listener", "whose", "login"),
    [
        ("SSL", "missing", None),
        ("SSL", "good", None),
        ("SSL", "of a stranger", None),  # nobody asks for it
        ("ASKED", "missing", None),
        ("ASKED", "good", None),
        ("MUTUAL", "good", None),
        ("NEWEST", "missing", None),
        ("SASL_SSL", "missing", ("admin", "a")),
        ("PLAINTEXT", None, None),
    ],
)
def test_who_is_let_in(
    broker: Broker, certificates: Certificates, listener: str, whose: str | None, login: tuple[str, str] | None
) -> None:
    tls = None if whose is None else certificates.context(certificates.clients[whose])
    ask(broker.listener(listener), tls, login)


def says(data: bytes) -> Callable[[str, Certificates], None]:
    def send(address: str, certificates: Certificates) -> None:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(data)
            assert client.recv(1) == b""

    return send


def with_certificate(whose: str) -> Callable[[str, Certificates], None]:
    return lambda address, certificates: ask(address, certificates.context(certificates.clients[whose]))


def of_tls12(address: str, certificates: Certificates) -> None:
    context = certificates.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    ask(address, context)


def trusting_a_stranger(address: str, certificates: Certificates) -> None:
    ask(address, certificates.context(authority=certificates.foreign_authority))


@contextlib.contextmanager
def begun(address: str) -> Iterator[socket.socket]:
    """A connection on which half of a handshake's first message was sent."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(hello[: len(hello) // 2])
        yield client


def leaving(address: str, _: Certificates) -> None:
    with begun(address) as client:
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
        raise ConnectionResetError


REFUSED: list[tuple[str, str, Callable[[str, Certificates], None]]] = [
    ("SSL", "it does not speak TLS", says(encode_request_frame(18, 0, 1, "plain", b""))),
    ("SSL", "it does not speak TLS", says(b"GET / HTTP/1.1\r\n\r\n")),
    ("SSL", "it does not accept the broker's certificate", trusting_a_stranger),
    ("SSL", "it went away before its handshake was done", leaving),
    ("NEWEST", "no version of TLS in common", of_tls12),
    ("MUTUAL", "it shows no certificate, and ssl.client.auth=required", with_certificate("missing")),
    ("MUTUAL", "certificate is not accepted: unable to get local issuer", with_certificate("of a stranger")),
    ("MUTUAL", "certificate is not accepted: certificate has expired", with_certificate("expired")),
    ("ASKED", "certificate is not accepted: unable to get local issuer", with_certificate("of a stranger")),
    ("ASKED", "certificate is not accepted: certificate has expired", with_certificate("expired")),
    ("PLAINTEXT", "the client uses TLS, and the listener does not", with_certificate("missing")),
]


@pytest.mark.parametrize(("listener", "why", "attempt"), REFUSED)
def test_who_is_not_and_why(
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    listener: str,
    why: str,
    attempt: Callable[[str, Certificates], None],
) -> None:
    with Broker(certificates.settings(), users=USERS) as broker:
        healthy = RawClient(broker.listener("SSL"), tls=certificates.context(), timeout_s=60)
        with contextlib.suppress(*GONE):
            attempt(broker.listener(listener), certificates)
        broker.settle()
        assert healthy.call(TOPICS, 9).brokers
        healthy._socket.close()
        metrics = broker.metrics()
    assert [record.getMessage().count(why) for record in caplog.records if record.levelno >= logging.WARNING] == [1]
    assert metrics.counters["failed_handshakes"] == (listener != "PLAINTEXT")
    assert metrics.requests == {"metadata": 1}


@pytest.mark.parametrize(
    ("whose", "alert"),
    [("missing", "CERTIFICATE_REQUIRED"), ("of a stranger", "UNKNOWN_CA"), ("expired", "CERTIFICATE_EXPIRED")],
)
def test_no_api_is_answered_before_the_certificate_counts(certificates: Certificates, whose: str, alert: str) -> None:
    """In TLS 1.3 a client has its first request under way when its certificate is looked at."""
    context = certificates.context(certificates.clients[whose])
    alerts: list[str] = []
    with Broker(certificates.settings(), users=USERS) as broker:
        host, _, port = broker.listener("MUTUAL").rpartition(":")
        for api in SERVED.values():
            connection = socket.create_connection((host, int(port)), timeout=60)
            with context.wrap_socket(connection, server_hostname=host) as client:
                client.sendall(encode_request_frame(api.key, api.max_version, 1, "nobody", b"\0" * 64))
                with pytest.raises(ssl.SSLError) as refused:
                    client.recv(1)
            alerts.append(refused.value.reason)
        metrics = broker.metrics()
    assert len(alerts) > 60
    assert [reason for reason in alerts if alert not in reason] == []
    assert not metrics.requests


def test_one_cause_is_told_once_in_a_while(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(certificates.settings(), users=USERS) as broker:
        for _ in range(20):
            with contextlib.suppress(*GONE):
                ask(broker.listener("MUTUAL"), certificates.context())
        broker.settle()
        assert broker.metrics().counters["failed_handshakes"] == 20
    assert caplog.text.count("is refused") == 1


def test_rights_are_those_of_the_mapped_name(certificates: Certificates) -> None:
    settings = {
        **certificates.settings(),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    shouting = certificates.authority.issue("SHOUTING")
    with Broker(settings, users=USERS) as broker:
        with RawClient(broker.listener("SASL_SSL"), tls=certificates.context(), login=("admin", "a")) as admin:
            admin.create_topic("orders")
            creations = [
                AclCreation(
                    resource_type=2,
                    resource_name="orders",
                    principal=principal,
                    host="*",
                    operation=8,
                    permission_type=3,
                    resource_pattern_type=3,
                )
                for principal in ("User:alice", "User:CN=SHOUTING")
            ]
            assert [result.error_code for result in admin.call(CreateAclsRequest(creations=creations), 3).results] == [
                0,
                0,
            ]

        def topics(identity: str | None) -> list[str]:
            own = {"alice": certificates.alice, "shouting": shouting, "other": certificates.broker}.get(identity or "")
            with RawClient(broker.listener("ASKED"), tls=certificates.context(own)) as client:
                return [topic.name for topic in client.call(TOPICS, 9).topics]

        assert topics("alice") == topics("shouting") == ["orders"]
        assert topics("other") == topics(None) == []


def test_who_is_named_by_no_rule_is_not_let_in(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    settings = {**certificates.settings(), "ssl.principal.mapping.rules": "RULE:^CN=broker$/node/"}
    with Broker(settings, users=USERS) as broker:
        ask(broker.listener("MUTUAL"), certificates.context(certificates.broker))
        with pytest.raises(GONE):
            ask(broker.listener("MUTUAL"), certificates.context(certificates.alice))
    assert "no rule of ssl.principal.mapping.rules applies to 'CN=alice'" in caplog.text


def test_a_broker_wide_client_auth_is_not_for_sasl(certificates: Certificates) -> None:
    """As in Kafka (KIP-684); a listener's own is."""
    settings = {**certificates.settings(), "ssl.client.auth": "required"}
    with Broker(settings, users=USERS) as broker:
        ask(broker.listener("SASL_SSL"), certificates.context(), ("admin", "a"))
        with pytest.raises(GONE):
            ask(broker.listener("SSL"), certificates.context())
    with Broker({**settings, "listener.name.sasl_ssl.ssl.client.auth": "required"}, users=USERS) as broker:
        with pytest.raises(GONE):
            ask(broker.listener("SASL_SSL"), certificates.context(), ("admin", "a"))
        ask(broker.listener("SASL_SSL"), certificates.context(certificates.alice), ("admin", "a"))


# --- files that change ---


def replace(path: Path, text: str) -> None:
    """As whoever renews certificates does it: at once."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    os.replace(beside, path)


def test_certificates_are_read_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificates = Certificates(tmp_path)
    keystore = certificates.broker.keystore
    with Broker(certificates.settings(), users=USERS) as broker:
        address = broker.listener("SSL")

        def shown() -> bytes | None:
            with RawClient(address, tls=certificates.context()) as client:
                assert isinstance(client._socket, ssl.SSLSocket)
                return client._socket.getpeercert(binary_form=True)

        before, first = RawClient(address, tls=certificates.context()), shown()
        renewed = certificates.authority.issue("renewed")
        replace(keystore, "no certificate")
        assert shown() == first
        assert shown() == first
        assert caplog.text.count("have changed and cannot be used, the previous ones remain in use") == 1
        keystore.unlink()
        os.mkfifo(keystore)  # OpenSSL would wait for its writer, and the broker with it
        assert shown() == first
        assert f"{keystore}: this is not a regular file" in caplog.text
        replace(keystore, renewed.key + renewed.certificate)
        assert shown() == ssl.PEM_cert_to_DER_cert(renewed.certificate) != first
        assert before.call(TOPICS, 9).brokers
        before._socket.close()


@pytest.mark.parametrize(
    ("valid_days", "messages"),
    [(-2, ["expired at"]), (10, ["expires at"]), (200, [])],
)
def test_the_end_of_the_brokers_certificate_is_told_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, valid_days: int, messages: list[str]
) -> None:
    certificates = Certificates(tmp_path)
    fresh = certificates.authority.issue("fresh", valid_days=300)
    issued = certificates.authority.issue("ends", valid_days=valid_days)
    replace(certificates.broker.keystore, fresh.key + fresh.certificate)
    listener = {"listeners": "SSL://127.0.0.1:0"}
    with Broker({**certificates.settings(), **listener}) as broker, caplog.at_level(logging.INFO):
        assert "a certificate in" not in caplog.text
        first = broker.metrics().gauges["certificate_end_timestamp_seconds"]
        replace(certificates.broker.keystore, issued.key + issued.certificate)
        with contextlib.suppress(*GONE, ssl.SSLError):
            ask(broker.listener("SSL"), certificates.context())
        lines = [record.getMessage() for record in caplog.records if "a certificate in" in record.getMessage()]
        assert len(lines) == len(messages)
        assert all(words in line for words, line in zip(messages, lines, strict=True))
        assert all(str(certificates.broker.keystore) in line for line in lines)
        second = broker.metrics().gauges["certificate_end_timestamp_seconds"]
        assert second == end_s_of(ssl.PEM_cert_to_DER_cert(issued.certificate))
        assert round((first - second) / 86_400) == 300 - valid_days


def test_an_authority_that_was_replaced_lets_nobody_in(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with Broker(certificates.settings(), users=USERS) as broker:
        address, mallory = broker.listener("MUTUAL"), certificates.clients["of a stranger"]
        alice = certificates.context(certificates.alice)
        before = RawClient(address, tls=alice)
        with pytest.raises(GONE):
            ask(address, certificates.context(mallory))
        replace(certificates.authority.path, certificates.foreign_authority.certificate)
        with pytest.raises(GONE):
            ask(address, alice)  # the same context: no session of it is resumed
        context = ssl.create_default_context(cadata=certificates.authority.certificate)
        assert mallory is not None
        context.load_cert_chain(mallory.keystore)
        ask(address, context)
        assert before.call(TOPICS, 9).brokers
        before._socket.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ssl.keystore.location": "nowhere.pem"}, "ssl.keystore: nowhere.pem: "),
        ({"ssl.truststore.location": "nowhere.pem"}, "ssl.truststore: nowhere.pem: "),
        ({"ssl.cipher.suites": "TLS_NONSENSE"}, "ssl.cipher.suites='TLS_NONSENSE'"),
    ],
)
def test_what_cannot_be_used_is_told_at_the_start(
    certificates: Certificates, change: dict[str, str], message: str
) -> None:
    broker = Broker({**certificates.settings(), **change}, users=USERS)
    with pytest.raises(ValueError, match=message):
        broker.start()


def test_keys_and_passwords_are_never_shown(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    locked = certificates.authority.issue("locked", locked_with="a very good secret")
    settings = certificates.settings()
    del settings["ssl.keystore.location"]
    settings |= {
        "ssl.keystore.key": locked.key,
        "ssl.keystore.certificate.chain": locked.certificate,
        "ssl.key.password": "a very good secret",
    }
    with pytest.raises(ValueError, match=r"ssl\.keystore: the given text") as refused:
        Broker({**settings, "ssl.key.password": "another secret"}, users=USERS).start()
    with Broker(settings, users=USERS) as broker:
        ask(broker.listener("SSL"), certificates.context())
        with RawClient(broker.listener("SASL_SSL"), tls=certificates.context(), login=("admin", "a")) as admin:
            resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
            request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
            (answer,) = admin.call(request, 4).results
        seen = repr(vars(broker)) + repr(broker._listeners) + caplog.text + str(answer) + str(refused.value)
    sensitive = {config.name for config in answer.configs if config.is_sensitive}
    assert {"ssl.keystore.key", "ssl.key.password"} < sensitive
    assert not [line for line in locked.key.splitlines() if line in seen]
    assert "secret" not in seen.replace("sasl.oauthbearer.client.credentials.client.secret", "")


# --- what comes after the handshake ---


def test_bytes_that_are_no_record_cost_only_their_connection(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Also while an answer is still to come on it."""
    fetch = FetchRequest(max_wait_ms=60_000, topics=[FetchTopic("t", None, [FetchPartition(0, 0, 1000)])])
    with Broker({**certificates.settings(), "auto.create.topics.enable": False}, users=USERS) as broker:
        address = broker.listener("SSL")
        with (
            RawClient(address, tls=certificates.context()) as healthy,
            RawClient(address, tls=certificates.context()) as client,
        ):
            healthy.create_topic("t")
            client.send_only(1, 12, b"".join(encode_request(fetch, 12)))
            client.send_only(18, 0, b"")
            os.write(client._socket.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))
            with pytest.raises(GONE):
                client._receive(1)
            assert healthy.produce("t", [b"wakes the fetch"]).error_code == 0
            broker.settle()
            assert healthy.call(TOPICS, 9).brokers
            assert broker.metrics().gauges["connections"] == 1
    assert caplog.text.count("is refused: its TLS failed (") == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("is_open", "expected"),
    [
        (False, "it does not speak TLS (security.protocol of the client)"),
        (True, "its TLS failed (RECORD_LAYER_FAILURE)"),
    ],
)
def test_who_has_done_his_handshake_speaks_tls(is_open: bool, expected: str) -> None:
    """OpenSSL 3.2 and newer have this reason for both."""
    error = ssl.SSLError()
    error.reason = "RECORD_LAYER_FAILURE"
    assert tls_failure(error, is_open=is_open) == expected


def test_a_client_may_end_tls_by_its_rules(broker: Broker, certificates: Certificates) -> None:
    with RawClient(broker.listener("SSL"), tls=certificates.context()) as client:
        assert client.call(TOPICS, 9).brokers
        assert isinstance(client._socket, ssl.SSLSocket)
        client._socket.unwrap()  # returns when the broker has said the same


# --- bounds ---


def test_a_handshake_has_a_deadline(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_sockets, "HANDSHAKE_S", 0.05)
    with Broker(certificates.settings(), users=USERS) as broker:
        with begun(broker.listener("SSL")) as slow, socket.create_connection(slow.getpeername(), timeout=60) as silent:
            assert slow.recv(1) == silent.recv(1) == b""
        ask(broker.listener("SSL"), certificates.context())
        assert broker.metrics().counters["failed_handshakes"] == 2
    assert "its handshake was not done within" in caplog.text


def test_500_unfinished_handshakes_keep_nobody_out(certificates: Certificates) -> None:
    with Broker({**certificates.settings(), "max.connections": 50}, users=USERS) as broker:
        address = broker.listener("SSL")
        with RawClient(address, tls=certificates.context()) as healthy, contextlib.ExitStack() as unfinished:
            assert healthy.call(TOPICS, 9).brokers
            for number in range(500):
                unfinished.enter_context(begun(address))
                if number % 100 == 99:
                    assert healthy.call(TOPICS, 9).brokers
                    ask(address, certificates.context())
            metrics = broker.metrics()
    assert metrics.gauges["connections"] <= 50
    assert metrics.counters["displaced_connections"] >= 450
    assert metrics.counters["refused_connections"] == 0


def test_a_request_may_trickle_in_byte_by_byte(broker: Broker, certificates: Certificates) -> None:
    """Of records and of their encrypted bytes."""
    host, _, port = broker.listener("SSL").rpartition(":")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = certificates.context().wrap_bio(incoming, outgoing, server_hostname=host)
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def shaken() -> bool:
            client.do_handshake()
            return True

        def exchange(step: Callable[[], object]) -> object:
            while True:
                try:
                    done = step()
                except ssl.SSLWantReadError:
                    done = None
                for byte in outgoing.read():
                    plain.sendall(bytes([byte]))
                if done is not None:
                    return done
                incoming.write(plain.recv(7))

        exchange(shaken)
        frame = encode_request_frame(18, 0, 77, "slow", b"")
        for byte in frame:
            client.write(bytes([byte]))
        answer = exchange(lambda: client.read(8))
        assert isinstance(answer, bytes)
        assert struct.unpack(">i", answer[4:8]) == (77,)
