"""The client at an Apache Kafka that takes Kerberos (SASL GSSAPI), with a KDC of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import Admin, AsyncAdmin, AsyncProducer, Consumer, Producer
from fencepost.errors import AuthenticationError, KafkaTimeoutError, ProduceFailedError
from tests.support import kerberos
from tests.support.apache_kafka import ApacheKafka
from tests.support.kerberos import REALM, Kdc, kerberos_kafka

pytestmark = [pytest.mark.kafka, pytest.mark.kerberos]
PATIENCE_S = 120
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SETTINGS: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    if (reason := kerberos.unavailable_reason()) is not None:
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch, Kdc(tmp_path_factory.mktemp("kdc")) as running:
        if (folder := kerberos.package()) is not None:
            patch.syspath_prepend(str(folder))
        for name, value in running.environment.items():
            patch.setenv(name, value)
        patch.delenv("KRB5CCNAME", raising=False)
        yield running


@pytest.fixture(scope="module")
def kafka(kdc: Kdc) -> Iterator[ApacheKafka]:
    with kerberos_kafka(kdc) as running:
        yield running


@pytest.fixture(scope="module")
def address(kafka: ApacheKafka) -> str:
    return kafka.address_of("KERBEROS")


@pytest.fixture(scope="module")
def alice(kdc: Kdc) -> Path:
    """A keytab."""
    return kdc.keytab("alice")


def ask(address: str, **settings: Any) -> list[str]:
    with Admin(address, **SETTINGS, **settings) as admin:
        return admin.list_topics()


# --- what works ---


@pytest.mark.parametrize(
    "way", ["keytab", "first of the keytab", "cache", "default cache", "jaas keytab", "jaas cache"]
)
def test_there_and_back(
    kdc: Kdc, address: str, alice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    cache = tmp_path / "cache"
    kdc.ticket("alice", alice, cache)
    words: dict[str, dict[str, str]] = {
        "keytab": {"sasl.kerberos.keytab": str(alice), "sasl.kerberos.principal": f"alice@{REALM}"},
        "first of the keytab": {"sasl.kerberos.keytab": str(alice), "sasl.kerberos.service.name": "kafka"},
        "cache": {"sasl.jaas.config": f'{MODULE} required useTicketCache=true ticketCache="{cache}";'},
        "default cache": {},
        "jaas keytab": {
            "sasl.jaas.config": f'{MODULE} required useKeyTab=true storeKey=true keyTab="{alice}" principal="alice";'
        },
        "jaas cache": {"sasl.jaas.config": f"{MODULE} required useTicketCache=true;"},
    }
    if "cache" in way and way != "cache":
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    settings = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        **words[way],
    }
    topic = way.replace(" ", "-")
    with Producer.from_config(settings) as producer:
        producer.send(topic, b"v").result(PATIENCE_S)
    with Consumer.from_config({**settings, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([(topic, 0)])
        deadline = time.monotonic() + PATIENCE_S
        while not (records := consumer.poll(1000)):
            assert time.monotonic() < deadline
        assert [record.value for record in records] == [b"v"]


def test_sessions_are_renewed_by_tickets_that_are_fetched_anew(kdc: Kdc, address: str) -> None:
    """KIP-368, with tickets of a second: each login finds that its last one is over."""
    keytab = kdc.keytab("brief", "-maxlife", "1 second")

    async def main() -> None:
        producer = AsyncProducer(address, **SETTINGS, sasl_kerberos_keytab=str(keytab), linger_ms=0)
        async with producer:
            await (await producer.send("renewed", b"first"))
            connection = producer._core.cluster.live(producer._core.cluster.leader("renewed", 0))
            before = kdc.tickets("brief")
            assert before > 0
            deadline = time.monotonic() + PATIENCE_S
            while kdc.tickets("brief") < before + 2:
                assert time.monotonic() < deadline
                await (await producer.send("renewed", b"again"))
                await asyncio.sleep(0.05)
            leader = producer._core.cluster.leader("renewed", 0)
            assert producer._core.cluster.live(leader) is connection, "the first connection serves still"

    asyncio.run(main())


# --- what does not, and how it says so ---


def test_a_principal_that_the_keytab_has_not(address: str, alice: Path) -> None:
    with pytest.raises(AuthenticationError, match=f"as bob by the keytab {alice}: No key table entry found for bob@"):
        ask(address, sasl_kerberos_keytab=str(alice), sasl_kerberos_principal="bob")


def test_a_keytab_that_is_not_there(address: str, tmp_path: Path) -> None:
    with pytest.raises(AuthenticationError, match=f"keytab {tmp_path}/none: No such file"):
        ask(address, sasl_kerberos_keytab=f"{tmp_path}/none")


def test_a_principal_that_the_kdc_does_not_know(kdc: Kdc, address: str) -> None:
    keytab = kdc.keytab("former")
    kdc.delete("former")
    with pytest.raises(AuthenticationError, match=f"Client 'former@{REALM}' not found in Kerberos database"):
        ask(address, sasl_kerberos_keytab=str(keytab))
    with Producer(address, **SETTINGS, sasl_kerberos_keytab=str(keytab)) as producer:
        with pytest.raises(ProduceFailedError, match="not found in Kerberos database") as failed:
            producer.send("t", b"v").result(PATIENCE_S)
        assert isinstance(failed.value.__cause__, AuthenticationError)


def test_keys_that_are_no_longer_the_right_ones(kdc: Kdc, address: str) -> None:
    keytab = kdc.keytab("changed")
    kdc.change_key("changed")
    with pytest.raises(AuthenticationError, match=r"by the keytab .*(Decrypt integrity|Preauthentication|Password)"):
        ask(address, sasl_kerberos_keytab=str(keytab))


def test_no_ticket_one_of_another_and_one_that_is_over(
    kdc: Kdc, address: str, alice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    with pytest.raises(AuthenticationError, match=f"No Kerberos credentials available.*{cache}"):
        ask(address)
    kdc.ticket("alice", alice, cache, "-l", "1s")
    with pytest.raises(AuthenticationError, match=r"as bob: .*bob@"):
        ask(address, sasl_kerberos_principal="bob")
    time.sleep(2)  # until the ticket's life is over
    # Whoever renews the cache may be late: that is waited for as long as the call may last.
    with pytest.raises(KafkaTimeoutError, match=r"kafka@127\.0\.0\.1: Ticket expired"):
        ask(address, default_api_timeout_ms=2_000)


def test_a_broker_without_such_a_principal(address: str, alice: Path) -> None:
    keytab = {"sasl_kerberos_keytab": str(alice)}
    with pytest.raises(AuthenticationError, match=f"Server stream/127.0.0.1@{REALM} not found in Kerberos database"):
        ask(address, **keytab, sasl_kerberos_service_name="stream")
    with pytest.raises(AuthenticationError, match=f"Server kafka/elsewhere@{REALM} not found in Kerberos database"):
        ask(address, **keytab, sasl_kerberos_domain_name="elsewhere")


def test_a_ticket_for_another_service_is_refused_by_the_broker(kdc: Kdc, address: str, alice: Path) -> None:
    kdc.keytab(f"other/127.0.0.1@{REALM}")
    with pytest.raises(AuthenticationError, match=r"SASL GSSAPI: .*[Aa]uthentication failed") as raised:
        ask(address, sasl_kerberos_keytab=str(alice), sasl_kerberos_service_name="other")
    assert raised.value.code == 58


def test_a_kdc_that_does_not_answer_stops_nothing_else(
    kdc: Kdc, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for in a thread, and as long as for a broker; what runs out of time names it."""
    keytab = kdc.keytab("patient")

    async def main(silent: socket.socket) -> None:
        admin = AsyncAdmin(
            address,
            **SETTINGS,
            sasl_kerberos_keytab=str(keytab),
            request_timeout_ms=300,
            default_api_timeout_ms=1_000,
        )
        async with admin:
            asked = asyncio.create_task(admin.list_topics())
            turns = 0
            while not asked.done():
                await asyncio.sleep(0.01)
                turns += 1
            silent.close()  # which ends the threads, too
            with pytest.raises(KafkaTimeoutError, match="Kerberos KDC"):
                await asked
            assert turns > 10

    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = Path(os.environ["KRB5_CONFIG"]).read_text()
        known = next(line for line in text.splitlines() if line.strip().startswith("kdc ="))
        (tmp_path / "krb5.conf").write_text(text.replace(known, f"kdc = 127.0.0.1:{silent.getsockname()[1]}"))
        monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
        asyncio.run(main(silent))
    with pytest.raises(KafkaTimeoutError, match=f"Cannot contact any KDC for realm '{REALM}'"):
        ask(address, sasl_kerberos_keytab=str(keytab), default_api_timeout_ms=300)
