"""Slow functions of the application are named in the log, once, and hold up their own client only."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import fencepost
from fencepost.client.admin.configs import GROUP_RESOURCE
from fencepost.client.calling import SLOW_MS, SLOW_PROVIDER_MS
from fencepost.client.interceptors import ConsumerInterceptor
from fencepost.client.net.sasl_login import ClientLogin
from fencepost.client.sasl import OAuthToken
from fencepost.errors import KafkaTimeoutError
from tests.support import interrupted_calls as calls
from tests.unit.client.scripted import World, run

SLOW_S = SLOW_MS / 1000 * 1.5


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


def named(caplog: pytest.LogCaptureFixture, kind: str) -> list[str]:
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return [message for message in messages if kind in message and " took " in message]


class Slow(fencepost.RebalanceListener):
    """Slow in its first call only: another client works meanwhile."""

    def __init__(self, other: fencepost.Admin) -> None:
        self.other = other
        self.met: list[int] = []

    def on_partitions_assigned(self, partitions: list[fencepost.TopicPartition]) -> None:
        done = threading.Event()

        def work() -> None:
            self.other.list_topics()
            done.set()

        threading.Thread(target=work).start()
        assert done.wait(60)  # a client that this one held up would wait for it
        time.sleep(SLOW_S)
        self.met.append(len(partitions))


def test_a_slow_rebalance_listener(broker: fencepost.Broker, caplog: pytest.LogCaptureFixture) -> None:
    topic = f"slow-{uuid.uuid4().hex[:8]}"
    calls.fill(broker.bootstrap_servers, topic, 1)
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        listener = Slow(admin)
        with fencepost.Consumer(broker.bootstrap_servers, group_id=topic, client_id="orders") as consumer:
            consumer.subscribe([topic], listener)
            while not listener.met:
                consumer.poll(1_000)
    (words,) = named(caplog, "rebalance listener")
    assert words.startswith("consumer 'orders': the rebalance listener ")
    assert "Slow.on_partitions_assigned" in words
    assert __file__ in words


class SlowAssignor(fencepost.PartitionAssignor):
    """Waits for another client's call."""

    name = "slow"

    def __init__(self, other: fencepost.Admin) -> None:
        self.other = other

    def assign(
        self, subscriptions: Mapping[str, fencepost.Subscription], partitions: Mapping[str, int]
    ) -> dict[str, fencepost.Assignment]:
        self.other.list_topics()
        topic_partitions = [
            fencepost.TopicPartition(topic, n) for topic, count in partitions.items() for n in range(count)
        ]
        return {next(iter(subscriptions)): fencepost.Assignment(topic_partitions)}


def test_an_assignor_holds_up_no_other_client(broker: fencepost.Broker) -> None:
    """In the thread of all blocking clients, the other client's call would wait for ever, or be refused."""
    topic = f"slow-{uuid.uuid4().hex[:8]}"
    calls.fill(broker.bootstrap_servers, topic, 1)
    with (
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Consumer(
            broker.bootstrap_servers, group_id=topic, partition_assignment_strategy=[SlowAssignor(admin)]
        ) as consumer,
    ):
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(1_000)
        assert consumer.assignment() == [fencepost.TopicPartition(topic, 0)]


class SlowInterceptor(ConsumerInterceptor):
    def on_consume(self, records: list[fencepost.Record]) -> list[fencepost.Record]:
        time.sleep(SLOW_S)
        return records

    def on_commit(self, positions: Any) -> None:
        time.sleep(SLOW_S)


def test_a_slow_consumer_interceptor(broker: fencepost.Broker, caplog: pytest.LogCaptureFixture) -> None:
    topic = f"slow-{uuid.uuid4().hex[:8]}"
    calls.fill(broker.bootstrap_servers, topic, 3)
    with fencepost.Consumer(
        broker.bootstrap_servers, group_id=topic, auto_offset_reset="earliest", interceptors=[SlowInterceptor()]
    ) as consumer:
        consumer.assign([fencepost.TopicPartition(topic, 0)])
        for _ in range(3):
            assert consumer.poll(10_000, 1)
            consumer.commit()
    reported = named(caplog, "interceptor")
    assert len(reported) == 2
    assert {"on_consume", "on_commit"} == {word for word in ("on_consume", "on_commit") if word in " ".join(reported)}


def slow_callback(*_: object) -> None:
    time.sleep(SLOW_S)


def test_a_slow_commit_callback(broker: fencepost.Broker, caplog: pytest.LogCaptureFixture) -> None:
    topic = f"slow-{uuid.uuid4().hex[:8]}"
    calls.fill(broker.bootstrap_servers, topic, 1)
    at = fencepost.TopicPartition(topic, 0)
    with fencepost.Consumer(broker.bootstrap_servers, group_id=topic, client_id="orders") as consumer:
        consumer.assign([at])
        for _ in range(2):
            consumer.commit_async({at: 1}, slow_callback)
            consumer.commit()  # behind it
    (words,) = named(caplog, "commit callback")
    assert words.startswith("consumer 'orders': the commit callback ")
    assert f"slow_callback ({__file__}:" in words


def test_a_slow_acknowledgement_callback(broker: fencepost.Broker, caplog: pytest.LogCaptureFixture) -> None:
    topic = f"slow-{uuid.uuid4().hex[:8]}"
    calls.fill(broker.bootstrap_servers, topic, 1)
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs(topic, {"share.auto.offset.reset": "earliest"}, resource_type=GROUP_RESOURCE)
    with fencepost.ShareConsumer(broker.bootstrap_servers, group_id=topic, client_id="orders") as consumer:
        consumer.set_acknowledgement_callback(slow_callback)
        consumer.subscribe([topic])
        while not consumer.poll(1_000):
            pass
        consumer.commit()
    (words,) = named(caplog, "acknowledgement callback")
    assert words.startswith("share consumer 'orders': the acknowledgement callback ")
    assert f"slow_callback ({__file__}:" in words


def never() -> str:
    """A token provider that asks a server without an answer."""
    return "token"


def test_a_login_that_waits_names_the_token_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(world: World) -> None:
        async def for_ever(function: Callable[[], Any]) -> Any:
            await world.runtime.sleep_ms(3_600_000)

        monkeypatch.setattr(world.runtime, "run_callback", for_ever)
        with pytest.raises(KafkaTimeoutError) as caught:
            await ClientLogin("OAUTHBEARER", token_provider=never).conversation(world.runtime, "host", 5_000)
        words = str(caught.value)
        assert "no token within request_timeout_ms=5000; the token provider" in words
        assert f"{never.__name__} ({__file__}:" in words
        assert words.endswith("has been running for 5 s")

    run(body)


def test_a_slow_token_provider(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """As time goes in its world: a token that another server has to be asked for may take a moment."""

    async def body(world: World) -> None:
        async def in_a_thread(function: Callable[[], Any]) -> Any:
            await world.runtime.sleep_ms(takes_ms.pop())
            return function()

        monkeypatch.setattr(world.runtime, "run_callback", in_a_thread)
        while takes_ms:
            login._token = None
            await login.conversation(world.runtime, "host", 60_000)
            reported.append(len(named(caplog, "token provider")))

    login, reported = ClientLogin("OAUTHBEARER", token_provider=lambda: OAuthToken("token")), list[int]()
    takes_ms = [SLOW_PROVIDER_MS, SLOW_PROVIDER_MS, SLOW_PROVIDER_MS - 1]
    run(body)
    assert reported == [0, 1, 1]
