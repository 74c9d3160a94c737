"""error_cb and stats_cb, with confluent-kafka and with `fencepost.compat.confluent_kafka`, on both brokers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

import fencepost
from fencepost.compat import confluent_kafka as ours
from tests.support.brokers import BrokerUnderTest
from tests.support.confluent_programs import PATIENCE_S, Kit, both

CLIENTS = ["producer", "consumer", "admin"]
INTERVAL_MS = 1_000  # librdkafka's granularity
# Fields whose values both modules know exactly, by level.
EXACT = ("client_id", "type", "txmsgs", "rxmsgs", "msg_cnt", "msg_size", "msg_max", "msg_size_max")
EXACT_OF_BROKERS = ("name", "nodeid", "nodename")
EXACT_OF_PARTITIONS = ("partition", "leader", "leader_epoch")


def statistics_of(kit: Kit, kind: str, topic: str) -> dict[str, Any]:
    """The last statistics of a client that has worked with three records."""
    texts: list[str] = []
    threads: set[threading.Thread] = set()

    def keep(text: str) -> None:
        assert isinstance(text, str)
        threads.add(threading.current_thread())
        texts.append(text)

    settings: dict[str, Any] = {"stats_cb": keep, "statistics_interval_ms": INTERVAL_MS, "client_id": kit.name("id")}
    serve: Callable[[], object]
    if kind == "producer":
        client = kit.producer(**settings)
        for _ in range(3):
            client.produce(topic, b"value", partition=0)
        client.flush(PATIENCE_S)
        serve = lambda: client.poll(0.1)  # noqa: E731
    elif kind == "consumer":
        client = kit.consumer(**settings)
        client.assign([kit.partition("t", 0, 0)])
        messages: list[Any] = []
        while len(messages) < 3:
            messages += client.consume(3, 1)
        serve = lambda: client.poll(0.1)  # noqa: E731
    else:
        module = kit.module.admin if kit.module is ours else confluent_kafka.admin
        client = module.AdminClient(kit.settings(**settings))
        assert kit.name("t") in client.list_topics(timeout=PATIENCE_S).topics
        serve = lambda: client.poll(0.1)  # noqa: E731
    before = len(texts)
    give_up = time.monotonic() + PATIENCE_S
    while len(texts) < before + 2 and time.monotonic() < give_up:
        serve()
    assert threads == {threading.current_thread()}
    found: dict[str, Any] = json.loads(texts[-1])
    return found


def shape(value: Any) -> str:
    return "number" if isinstance(value, int) and not isinstance(value, bool) else type(value).__name__


@pytest.mark.parametrize("kind", CLIENTS)
def test_statistics_have_librdkafka_s_fields(broker: BrokerUnderTest, admin: fencepost.Admin, kind: str) -> None:
    """Each field of ours is one of librdkafka's, of the same type, and means the same."""
    seen: list[dict[str, Any]] = []

    def program(kit: Kit) -> Any:
        topic = kit.topic("t", values=3)
        found = statistics_of(kit, kind, topic)
        seen.append(found)
        brokers = [value for name, value in found["brokers"].items() if value["nodeid"] >= 0]
        found["brokers"] = {value["name"]: value for value in brokers}
        assert all(name == value["name"] for name, value in found["brokers"].items())
        partitions = found["topics"].get(topic, {}).get("partitions", {})
        shown = {
            number: [value[name] for name in EXACT_OF_PARTITIONS]
            for number, value in partitions.items()
            if value["partition"] >= 0
        }
        exact = {name: found.get(name, 0) for name in EXACT}
        if kind != "producer":
            exact = {name: value for name, value in exact.items() if not name.startswith("msg_")}
        return exact, [[value[name] for name in EXACT_OF_BROKERS] for value in brokers], shown

    exact, brokers, partitions = both(broker, admin, program)
    assert exact["type"] == {"producer": "producer", "consumer": "consumer", "admin": "producer"}[kind]
    assert exact["txmsgs"] == (3 if kind == "producer" else 0)
    assert exact["rxmsgs"] == (3 if kind == "consumer" else 0)
    assert len(brokers) == 1
    if kind != "admin":
        assert set(partitions) == {"0"}
    theirs, own = seen
    check_fields(own, theirs)
    (node,) = own["brokers"].values()
    assert node["tx"] >= node["rx"] > 0
    assert node["txbytes"] > 0 < node["rxbytes"]
    assert own["tx"] >= node["tx"]
    assert abs(own["time"] - theirs["time"]) < PATIENCE_S
    assert 2 * INTERVAL_MS * 1000 <= own["age"] < PATIENCE_S * 1e6


def check_fields(own: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Raise AssertionError if a field is not librdkafka's. Keys that are names of brokers and topics are skipped."""
    assert set(own) <= set(theirs) | {"cgrp", "eos"}
    for name, value in own.items():
        if name not in theirs:
            continue
        assert shape(value) == shape(theirs[name]), name
        if name in ("brokers", "topics", "partitions"):
            for key, each in value.items():
                if key in theirs[name]:
                    check_fields(each, theirs[name][key])
        elif isinstance(value, dict):
            check_fields(value, theirs[name])


@pytest.mark.parametrize("settings", [{"statistics_interval_ms": 0}, {}], ids=["zero", "default"])
def test_no_statistics(broker: BrokerUnderTest, admin: fencepost.Admin, settings: dict[str, Any]) -> None:
    def program(kit: Kit) -> Any:
        seen: list[str] = []
        producer = kit.producer(stats_cb=seen.append, **settings)
        producer.produce(kit.topic("t"), b"v")
        return producer.flush(PATIENCE_S), producer.poll(0), seen

    assert both(broker, admin, program) == [0, 0, []]


def test_an_interval_without_a_callback(
    broker: BrokerUnderTest, admin: fencepost.Admin, caplog: pytest.LogCaptureFixture
) -> None:
    def program(kit: Kit) -> Any:
        producer = kit.producer(statistics_interval_ms=INTERVAL_MS)
        producer.produce(kit.topic("t"), b"v")
        return producer.flush(PATIENCE_S)

    assert both(broker, admin, program) == 0
    assert caplog.messages == []


def test_callbacks_that_raise(broker: BrokerUnderTest, admin: fencepost.Admin) -> None:
    """The call that serves them raises it, and later ones are served."""

    def program(kit: Kit) -> Any:
        calls: list[str] = []

        def fail(text: str) -> None:
            calls.append(text)
            raise ValueError("from the callback")

        producer = kit.producer(stats_cb=fail, statistics_interval_ms=INTERVAL_MS)
        outcomes: list[Any] = []
        give_up = time.monotonic() + PATIENCE_S
        while len(calls) < 2 and time.monotonic() < give_up:
            outcomes.append(kit.fails(lambda: producer.poll(0.1)))
        return [outcome for outcome in outcomes if outcome is not None]

    assert both(broker, admin, program) == ["ValueError", "ValueError"]


@pytest.mark.parametrize("kind", CLIENTS)
def test_no_broker(kind: str) -> None:
    """The broker's error comes first, then the one that all brokers are down, in the thread that polls."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
    outcomes: list[list[Any]] = []
    for module in (confluent_kafka, ours):
        errors: list[Any] = []
        threads: set[threading.Thread] = set()

        def keep(error: Any, errors: list[Any] = errors, threads: set[threading.Thread] = threads) -> None:
            threads.add(threading.current_thread())
            errors.append(error)

        settings: dict[str, Any] = {"bootstrap.servers": address, "error_cb": keep}
        if kind == "producer":
            client = module.Producer(settings)
            client.produce("t", b"v")
        elif kind == "consumer":
            client = module.Consumer({**settings, "group.id": "g"})
            client.subscribe(["t"])
        else:
            client = (module.admin if module is ours else confluent_kafka.admin).AdminClient(settings)
            client.list_consumer_groups(request_timeout=1)
        give_up = time.monotonic() + PATIENCE_S
        while len(errors) < 2 and time.monotonic() < give_up:
            client.poll(0.1)
        outcomes.append([(error.name(), error.fatal(), error.retriable()) for error in errors[:2]])
        assert threads == {threading.current_thread()}
        if kind == "producer":
            client.purge()
        if kind == "consumer":
            client.close()
    assert outcomes[0] == outcomes[1]
    assert [name for name, _, _ in outcomes[0]] == ["_TRANSPORT", "_ALL_BROKERS_DOWN"]
