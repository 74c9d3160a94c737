"""close() of consumers keeps its time when brokers are gone or say nothing, and tells what was left undone."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fencepost
from fencepost import TopicPartition
from fencepost.config import ConsumerConfig

LATE_S = 9
"""Without a limit it takes as long as a request may, which is 30 s, and with an automatic commit longer."""
CASES: dict[str, dict[str, Any]] = {
    "classic": {},
    "auto-commit": {"enable_auto_commit": True},
    "consumer": {"group_protocol": "consumer", "enable_auto_commit": True},
}
SILENT = (
    "LeaveGroup",
    "OffsetCommit",
    "ConsumerGroupHeartbeat",
    "ShareAcknowledge",
    "ShareGroupHeartbeat",
    "ShareFetch",
)

Strike = Callable[[fencepost.Broker], None]


@pytest.fixture
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        with fencepost.Admin(running.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        with fencepost.Producer(running.bootstrap_servers) as producer:
            producer.send("t", b"v")
        yield running


def silence(broker: fencepost.Broker) -> None:
    for api in SILENT:
        broker.faults.drop_request(api, times=None)


def stop(broker: fencepost.Broker) -> None:
    broker.stop()


both = pytest.mark.parametrize("strike", [silence, stop])


@contextlib.contextmanager
def in_time(late_s: float = LATE_S) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < late_s


def reading(broker: fencepost.Broker, listener: fencepost.RebalanceListener | None = None, **more: Any) -> Any:
    """A consumer that has polled the record."""
    consumer = fencepost.Consumer(broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest", **more)
    consumer.subscribe(["t"], listener)
    while not consumer.poll(500):
        pass
    return consumer


@both
@pytest.mark.parametrize("case", CASES)
def test_a_consumer(broker: fencepost.Broker, case: str, strike: Strike, caplog: pytest.LogCaptureFixture) -> None:
    consumer = reading(broker, **CASES[case])
    strike(broker)
    with in_time():
        consumer.close(timeout_ms=300)
    assert consumer.closed
    assert "group 'g': could not leave" in caplog.text


@both
def test_the_default_is_bounded(broker: fencepost.Broker, strike: Strike) -> None:
    consumer = reading(broker, enable_auto_commit=True)
    strike(broker)
    with in_time(ConsumerConfig.make({"bootstrap_servers": "x"}).request_timeout_ms / 1000 - 5):
        consumer.close()


@both
def test_a_commit_of_the_listener_ends_with_the_time_of_close(broker: fencepost.Broker, strike: Strike) -> None:
    failed: list[Exception] = []

    class Listener(fencepost.RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            try:
                consumer.commit()
            except Exception as error:  # noqa: BLE001
                failed.append(error)

    consumer = reading(broker, Listener())
    strike(broker)
    with in_time():
        consumer.close(timeout_ms=300)
    assert len(failed) == 1


@both
def test_a_consumer_without_a_group(broker: fencepost.Broker, strike: Strike) -> None:
    consumer = fencepost.Consumer(
        broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=True
    )
    consumer.assign([("t", 0)])
    while not consumer.poll(500):
        pass
    strike(broker)
    with in_time():
        consumer.close(timeout_ms=300)


@both
def test_a_share_consumer(broker: fencepost.Broker, strike: Strike, caplog: pytest.LogCaptureFixture) -> None:
    consumer = fencepost.ShareConsumer(broker.bootstrap_servers, group_id=f"s-{uuid.uuid4().hex[:8]}")
    consumer.subscribe(["t"])
    while not consumer.assignment():
        consumer.poll(100)
    strike(broker)
    with in_time():
        consumer.close(timeout_ms=300)
    assert consumer.closed
    assert "could not leave" in caplog.text


@both
def test_in_asyncio(broker: fencepost.Broker, strike: Strike) -> None:
    async def main() -> None:
        consumer = fencepost.AsyncConsumer(broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest")
        await consumer.subscribe(["t"])
        while not await consumer.poll(500):
            pass
        await asyncio.to_thread(strike, broker)
        with in_time():
            await consumer.close(timeout_ms=300)
        assert consumer.closed

    asyncio.run(main())


def test_a_close_in_good_order_says_nothing(broker: fencepost.Broker, caplog: pytest.LogCaptureFixture) -> None:
    for name, case in CASES.items():
        with fencepost.Consumer(broker.bootstrap_servers, group_id=name, **case) as consumer:
            consumer.subscribe(["t"])
            while not consumer.assignment():
                consumer.poll(100)
    assert "could not leave" not in caplog.text


@pytest.mark.parametrize(
    "client",
    [
        fencepost.Producer,
        fencepost.AsyncProducer,
        fencepost.Consumer,
        fencepost.AsyncConsumer,
        fencepost.ShareConsumer,
        fencepost.AsyncShareConsumer,
        fencepost.Admin,
        fencepost.AsyncAdmin,
    ],
)
def test_every_client_takes_the_time(client: Any) -> None:
    assert "timeout_ms" in client.close.__annotations__
