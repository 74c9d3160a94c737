"""The client against an Apache Kafka 4.4 with TLS, mutual TLS and SASL listeners; and what wrong settings say."""

from __future__ import annotations

import asyncio
import io
import json
import time
import urllib.error
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from fencepost import Admin, AsyncAdmin, AsyncProducer, Broker, Consumer, Producer
from fencepost.cli.main import main
from fencepost.client.sasl import OAuthToken
from fencepost.errors import AuthenticationError, KafkaTimeoutError, ProtocolError
from fencepost_lab.check.history.file import operations_of
from fencepost_lab.check.history.model import History
from fencepost_lab.check.report.verdict import judge
from fencepost_lab.torture.clients import CLIENTS, PATIENCE_S
from fencepost_lab.torture.supervisor import FAULTS, Torture, TortureOptions
from tests.support.apache_kafka import ApacheKafka
from tests.support.certificates import Authority
from tests.support.commands import Commands
from tests.support.secure_kafka import PASSWORD, SESSION_MS, USER, secure_kafka, unsecured_token
from tests.support.tls import Certificates
from tests.support.torture_kafka import by_tls_and_scram

SCRAM_WORD = "secret"
PATIENCE_MS = 5_000  # for calls that are expected to fail by running out of time


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def kafka(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with secure_kafka(tmp_path_factory.mktemp("secure"), authority) as running:
        yield running


def token() -> OAuthToken:
    value, expires_at_ms = unsecured_token()
    return OAuthToken(value, expires_at_ms)


def settings_for(mechanism: str) -> dict[str, Any]:
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": token}
    password = PASSWORD if mechanism == "PLAIN" else SCRAM_WORD
    return {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": password}


def roundtrip(address: str, topic: str, **settings: Any) -> None:
    """A record there and back."""
    with Producer(address, **settings) as producer:
        producer.send(topic, b"v", key=b"k").result(120)
    with Consumer(address, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([(topic, 0)])
        deadline = time.monotonic() + 120
        while not (records := consumer.poll(1000)):
            assert time.monotonic() < deadline
        assert [(record.key, record.value) for record in records] == [(b"k", b"v")]


def ask(address: str, **settings: Any) -> list[str]:
    with Admin(address, **settings) as admin:
        return admin.list_topics(api_timeout_ms=settings.get("default_api_timeout_ms"))


def ask_async(address: str, **settings: Any) -> list[str]:
    """The same in asyncio's own loop, whose TLS fails in other ways than uvloop's."""

    async def main() -> list[str]:
        async with AsyncAdmin(address, **settings) as admin:
            return await admin.list_topics(api_timeout_ms=settings.get("default_api_timeout_ms"))

    return asyncio.run(main())


Ask = Callable[..., list[str]]
both_loops = pytest.mark.parametrize("ask", [ask, ask_async], ids=["uvloop", "asyncio"])


# --- what works ---


@pytest.mark.kafka
def test_tls_with_a_truststore_file_and_with_pem_text(kafka: ApacheKafka, authority: Authority) -> None:
    address = kafka.address_of("TLS")
    roundtrip(address, "tls-file", security_protocol="SSL", ssl_truststore_location=str(authority.path))
    roundtrip(address, "tls-text", security_protocol="SSL", ssl_truststore_certificates=authority.certificate)
    with Admin.from_config(
        {"bootstrap.servers": address, "security.protocol": "ssl", "ssl.ca.location": str(authority.path)}
    ) as admin:
        assert admin.describe_cluster().brokers


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_a_storm_behind_tls_and_scram(
    kafka: ApacheKafka, authority: Authority, client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fencepost torture` of a Kafka that has to be logged in to, decided transactions included."""
    # librdkafka's copier often hangs when it is told to end. It is killed then, as others are in the storm.
    monkeypatch.setattr("fencepost_lab.torture.supervisor.END_S", PATIENCE_S)
    access = by_tls_and_scram(kafka, authority)
    faults = tuple(fault for fault in FAULTS if fault != "pause-client")
    prefix = f"{client}-{uuid4().hex[:8]}-"  # a second try meets the topics of the first
    options = TortureOptions(access, 0.1, 5, client, prefix, False, tmp_path, faults=faults, two_phase="two-phase")
    Torture(options, lambda line: None).run(tmp_path / "history.jsonl")
    with (tmp_path / "history.jsonl").open() as lines:
        history = History(operations_of(lines))
    verdict = judge(history, 3)
    assert verdict.listed == []
    assert verdict.clean
    assert any(transaction.decisions for transaction in history.transactions.values())


@pytest.mark.kafka
@pytest.mark.parametrize("suite", ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"])
def test_tls_1_2_with_a_cipher_suite(kafka: ApacheKafka, authority: Authority, suite: str) -> None:
    settings = {"security_protocol": "SSL", "ssl_truststore_location": str(authority.path)}
    settings |= {"ssl_enabled_protocols": "TLSv1.2"}
    ask(kafka.address_of("TLS"), ssl_cipher_suites=suite, **settings)
    # The broker's key is an elliptic curve's, so they share no suite, unless a setting has no effect.
    with pytest.raises(AuthenticationError, match=r"(?i)handshake"):
        ask(kafka.address_of("TLS"), ssl_cipher_suites="ECDHE-RSA-AES128-GCM-SHA256", **settings)


@pytest.mark.kafka
def test_much_data_through_tls(kafka: ApacheKafka, authority: Authority) -> None:
    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_truststore_location": str(authority.path)}
    rows = [b"%d" % number * 100 for number in range(20_000)]
    with Producer(kafka.address_of("TLS"), **settings) as producer:
        producer.send_arrow("tls-much", pa.table({"value": pa.array(rows, pa.binary())})).result(120)
    with Consumer(kafka.address_of("TLS"), **settings) as consumer:
        pieces = consumer.fetch_range("tls-much", 0, 0, len(rows), timeout_ms=60_000)
        assert [value for piece in pieces for value in piece.columns.values()] == rows


@pytest.mark.kafka
def test_mutual_tls_from_files_text_and_an_encrypted_key(kafka: ApacheKafka, authority: Authority) -> None:
    ours, locked = authority.issue("client"), authority.issue("locked", locked_with="open sesame")
    forms: list[dict[str, str]] = [
        {"ssl_keystore_location": str(ours.keystore)},
        {"ssl_keystore_certificate_chain": ours.certificate, "ssl_keystore_key": ours.key},
        {"ssl_certificate_location": str(ours.certificate_path), "ssl_key_location": str(ours.key_path)},
        {"ssl_keystore_location": str(locked.keystore), "ssl_key_password": "open sesame"},
    ]
    for form in forms:
        address = kafka.address_of("MUTUAL")
        assert isinstance(
            ask(address, security_protocol="SSL", ssl_truststore_location=str(authority.path), **form), list
        )


@pytest.mark.kafka
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_sasl_over_tls(kafka: ApacheKafka, authority: Authority, mechanism: str) -> None:
    roundtrip(
        kafka.address_of("SASLTLS"),
        f"sasl-{mechanism}",
        security_protocol="SASL_SSL",
        ssl_truststore_location=str(authority.path),
        **settings_for(mechanism),
    )


@pytest.mark.kafka
def test_every_command_gets_in_by_a_file_and_the_environment(
    kafka: ApacheKafka,
    authority: Authority,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SASL_SSL\nssl.truststore.location={authority.path}\nsasl.username={USER}\n")
    monkeypatch.setenv("FENCEPOST_SASL_MECHANISM", "SCRAM-SHA-512")
    monkeypatch.setenv("FENCEPOST_SASL_PASSWORD", SCRAM_WORD)
    run = Commands(kafka.address_of("SASLTLS"), capsys, "--command-config", str(file))
    run("topics", "create", "by-command", "-p", "2")
    assert run.json("topics", "describe", "by-command")[0]["partitions"][1]["leader"] == 1
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    run("produce", "by-command", "--transactional-id", "by-command")
    assert sorted(run("consume", "by-command").split()) == ["one", "two"]
    run("groups", "reset-offsets", "by-command", "--to", "end", "--topic", "by-command", "--yes")
    assert {row["lag"] for row in run.json("groups", "describe", "by-command")["partitions"]} == {0}
    run("configs", "alter", "topic", "by-command", "--set", "retention.ms=-1")
    assert "retention.ms" in run("configs", "describe", "topic", "by-command")
    assert {user["user"] for user in run.json("users", "list")} == {USER}
    assert "by-command" in run("transactions", "list", "--all")
    assert run.json("transactions", "find-hanging") == []
    assert run.json("spark", "sinks") == []
    with pytest.raises(SystemExit):
        main(["doctor", "--json", "-b", kafka.address_of("SASLTLS"), "--command-config", str(file)])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {each["code"] for each in found} <= {"FP107", "FP502"}, found
    run("groups", "delete", "by-command", "--yes")
    run("topics", "delete", "by-command", "--yes")
    monkeypatch.setenv("FENCEPOST_SASL_PASSWORD", "another")
    run("topics", "list", status=1)
    assert "credentials" in run.error
    assert "another" not in run.error


@pytest.mark.kafka
def test_javas_configuration_words(kafka: ApacheKafka, authority: Authority) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    with Admin.from_config(
        {
            "bootstrap.servers": kafka.address_of("SASLTLS"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{module} required username="{USER}" password="{SCRAM_WORD}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.path),
        }
    ) as admin:
        assert admin.describe_cluster().brokers


@pytest.mark.kafka
def test_an_async_token_provider(kafka: ApacheKafka) -> None:
    asked = []

    async def provider() -> str:
        await asyncio.sleep(0)
        asked.append(1)
        return token().value

    async def main() -> None:
        async with AsyncAdmin(
            kafka.address_of("SASLTEXT"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=provider,
        ) as admin:
            await admin.describe_cluster()

    asyncio.run(main())
    assert asked


@pytest.mark.kafka
def test_sessions_are_renewed_while_records_flow(kafka: ApacheKafka) -> None:
    """KIP-368: the broker closes a connection that speaks after its session ended; ours never has to."""

    async def flow(mechanism: str) -> None:
        settings = settings_for(mechanism)
        topic = f"renewed-{mechanism}"
        producer = AsyncProducer(
            kafka.address_of("SASLTEXT"), security_protocol="SASL_PLAINTEXT", linger_ms=0, **settings
        )
        async with producer:
            await (await producer.send(topic, b"first"))
            leader = producer._core.cluster.leader(topic, 0)
            connection = producer._core.cluster.live(leader)
            until = time.monotonic() + 2.5 * SESSION_MS / 1000
            sent = 0
            while time.monotonic() < until:
                await asyncio.gather(*[await producer.send(topic, b"%d" % sent) for _ in range(5)])
                sent += 5
                await asyncio.sleep(0.05)
            assert sent > 0
            assert producer._core.cluster.live(leader) is connection, "the first connection serves still"

    async def main() -> None:
        await asyncio.gather(*map(flow, ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]))

    asyncio.run(main())


# --- what does not, and how it says so ---


@pytest.mark.kafka
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_final(kafka: ApacheKafka, mechanism: str) -> None:
    settings = {**settings_for(mechanism), "sasl_password": "wrong"}
    address = kafka.address_of("SASLTEXT")
    with pytest.raises(AuthenticationError, match=f"{mechanism}.*[Ii]nvalid") as raised:
        ask(address, security_protocol="SASL_PLAINTEXT", **settings)
    assert raised.value.code == 58
    with Producer(address, security_protocol="SASL_PLAINTEXT", **settings) as producer:
        with pytest.raises(Exception, match=r"[Ii]nvalid") as failed:
            producer.send("t", b"v").result(120)
        assert isinstance(failed.value, AuthenticationError) or isinstance(failed.value.__cause__, AuthenticationError)


@pytest.mark.kafka
def test_a_refused_token_is_final(kafka: ApacheKafka) -> None:
    with pytest.raises(AuthenticationError, match="invalid_token"):
        ask(
            kafka.address_of("SASLTEXT"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=lambda: unsecured_token(lifetime_s=-60)[0],
        )


@pytest.mark.kafka
def test_a_token_provider_that_fails(kafka: ApacheKafka) -> None:
    """An outage may pass, so the call goes on for as long as it may; a refusal is raised at once."""

    def fails() -> str:
        raise RuntimeError("the issuer is down")

    def refuses() -> str:
        raise urllib.error.HTTPError("https://issuer.example.com", 403, "Forbidden", Message(), None)

    def settings(provider: Callable[[], str]) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": provider,
        }

    with pytest.raises(KafkaTimeoutError, match="the issuer is down"):
        ask(kafka.address_of("SASLTEXT"), default_api_timeout_ms=2000, **settings(fails))
    with pytest.raises(AuthenticationError, match="Forbidden"):
        ask(kafka.address_of("SASLTEXT"), **settings(refuses))


@pytest.mark.kafka
@both_loops
def test_an_untrusted_an_expired_and_a_foreign_certificate(
    kafka: ApacheKafka, authority: Authority, tmp_path: Path, ask: Ask
) -> None:
    trust = {"security_protocol": "SSL", "ssl_truststore_location": str(authority.path)}
    foreign_authority = Authority(tmp_path, "Another Authority")
    with pytest.raises(AuthenticationError, match="certificate is not accepted"):
        ask(kafka.address_of("TLS"), security_protocol="SSL", ssl_truststore_location=str(foreign_authority.path))
    with pytest.raises(AuthenticationError, match="certificate has expired"):
        ask(kafka.address_of("EXPIRED"), **trust)
    with pytest.raises(AuthenticationError, match="IP address mismatch"):
        ask(kafka.address_of("ELSEWHERE"), **trust)
    ask(kafka.address_of("ELSEWHERE"), ssl_endpoint_identification_algorithm="", **trust)
    ask(kafka.address_of("EXPIRED"), security_protocol="SSL", ssl_verify=False)


@pytest.mark.kafka
@both_loops
def test_a_missing_client_certificate(kafka: ApacheKafka, authority: Authority, ask: Ask) -> None:
    with pytest.raises(AuthenticationError, match="certificate"):
        ask(kafka.address_of("MUTUAL"), security_protocol="SSL", ssl_truststore_location=str(authority.path))


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("listener", "settings", "hint"),
    [
        ("TLS", {}, "TLS"),
        ("SASLTEXT", {}, "SASL"),
        ("SASLTLS", {"security_protocol": "SASL_PLAINTEXT", "sasl_username": USER, "sasl_password": "x"}, "TLS"),
        ("SASLTEXT", {"security_protocol": "SSL", "ssl_verify": False}, "plaintext"),
    ],
)
@both_loops
def test_the_wrong_protocol_for_a_listener_names_the_likely_cause(
    kafka: ApacheKafka, listener: str, settings: dict[str, Any], hint: str, ask: Ask
) -> None:
    with pytest.raises((KafkaTimeoutError, ProtocolError), match=f"{hint}.*security_protocol"):
        ask(kafka.address_of(listener), default_api_timeout_ms=PATIENCE_MS, **settings)


# --- our broker: SASL PLAIN without TLS ---


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with Broker(users={USER: PASSWORD}) as broker:
        yield broker.bootstrap_servers


OURS = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": USER, "sasl_password": PASSWORD}


def test_plain_to_our_broker(ours: str) -> None:
    roundtrip(ours, "plain", **OURS)


def test_our_broker_refuses_as_kafka_does(ours: str) -> None:
    with pytest.raises(AuthenticationError, match=r"PLAIN.*[Ii]nvalid") as raised:
        ask(ours, **{**OURS, "sasl_password": "wrong"})
    assert raised.value.code == 58
    with pytest.raises(AuthenticationError, match=r"SCRAM.*[Ii]nvalid") as raised:
        ask(ours, **{**OURS, "sasl_mechanism": "SCRAM-SHA-256", "sasl_password": "wrong"})
    assert raised.value.code == 58
    with pytest.raises(KafkaTimeoutError, match=r"SASL.*security_protocol"):
        ask(ours, default_api_timeout_ms=PATIENCE_MS)
    with pytest.raises(KafkaTimeoutError, match=r"plaintext.*security_protocol"):
        ask(ours, default_api_timeout_ms=PATIENCE_MS, security_protocol="SSL", ssl_verify=False)


def test_behind_tls_a_login_is_missed_and_no_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with (
        Broker(certificates.settings(), users={USER: PASSWORD}) as broker,
        pytest.raises(KafkaTimeoutError, match=r"the listener requires SASL \(security_protocol=SASL_SSL\)"),
    ):
        ask(
            broker.listener("SASL_SSL"),
            default_api_timeout_ms=PATIENCE_MS,
            security_protocol="SSL",
            ssl_truststore_location=str(certificates.authority.path),
        )
