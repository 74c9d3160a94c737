"""An exception that was caught and dropped leaves nothing behind: no variable of the caller, and no longer traceback.

A client that keeps an error for later calls would otherwise keep the frames of every caller that got it, and with them
their records, files and clients. The traceback would grow with each call.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import traceback
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pytest

import fencepost
from fencepost.errors import GroupFencedError, KafkaError, ProducerFencedError
from fencepost.testing import MakeTopic

CALLS = 4
NO_SUCH_USER: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "nobody",
    "sasl_password": "wrong",
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 1,
    "default_api_timeout_ms": 60_000,
}
SMALL = {"max.message.bytes": "100"}


class Variable:
    """Stands for everything that a caller has in its variables."""


class Calls:
    """Makes a failing call again and again, and notes what is left of the callers."""

    def __init__(self) -> None:
        self.variables: list[weakref.ref[Variable]] = []
        self.depths: list[int] = []

    def failed(self, error: KafkaError, variable: Variable) -> None:
        self.variables.append(weakref.ref(variable))
        self.depths.append(len(traceback.extract_tb(error.__traceback__)))

    def make(self, call: Callable[[], object]) -> None:
        for _ in range(CALLS):
            self._make_once(call)
        self.check()

    def _make_once(self, call: Callable[[], object]) -> None:
        variable = Variable()
        try:
            call()
        except KafkaError as error:
            self.failed(error, variable)

    async def make_awaited(self, call: Callable[[], Awaitable[object]]) -> None:
        for _ in range(CALLS):
            await self._await_once(call)
        self.check()

    async def _await_once(self, call: Callable[[], Awaitable[object]]) -> None:
        variable = Variable()
        try:
            await call()
        except KafkaError as error:
            self.failed(error, variable)

    def check(self) -> None:
        assert len(self.depths) == CALLS, "a call did not fail"
        gc.collect()
        assert [number for number, variable in enumerate(self.variables) if variable() is not None] == []
        assert self.depths[-1] <= self.depths[1]


@pytest.fixture
def guarded() -> Iterator[fencepost.Broker]:
    """A broker that wants a login."""
    with fencepost.Broker({"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}, users={"alice": "a"}) as broker:
        yield broker


Case = tuple[Callable[[], object], AbstractContextManager[object]]


def refused_admin(broker: fencepost.Broker) -> Case:
    admin = fencepost.Admin(broker.bootstrap_servers, **NO_SUCH_USER)
    return admin.list_topics, admin


def refused_consumer(broker: fencepost.Broker) -> Case:
    consumer = fencepost.Consumer(broker.bootstrap_servers, group_id="g", **NO_SUCH_USER)
    consumer.subscribe(["t"])
    return lambda: consumer.poll(60_000), consumer


def refused_producer(broker: fencepost.Broker) -> Case:
    settings = {key: value for key, value in NO_SUCH_USER.items() if key != "default_api_timeout_ms"}
    producer = fencepost.Producer(broker.bootstrap_servers, **settings)
    return lambda: producer.send("t", b"v").result(60), producer


@pytest.mark.parametrize("make", [refused_admin, refused_consumer, refused_producer])
def test_a_refused_login(guarded: fencepost.Broker, make: Callable[[fencepost.Broker], Case]) -> None:
    call, client = make(guarded)
    with client:
        Calls().make(call)


@pytest.mark.parametrize("call", ["begin_transaction", "init_transactions", "commit_transaction", "abort_transaction"])
def test_a_fenced_producer(fencepost_broker: fencepost.Broker, call: str) -> None:
    servers = fencepost_broker.bootstrap_servers
    producer = fencepost.Producer(servers, transactional_id="mine")
    try:
        with fencepost.Producer(servers, transactional_id="mine") as other:
            producer.init_transactions()
            producer.begin_transaction()
            other.init_transactions()
        with pytest.raises(KafkaError):
            producer.send("t", b"v").result(60)
        Calls().make(getattr(producer, call))
    finally:
        with contextlib.suppress(ProducerFencedError):  # the end of a transaction that was not ended
            producer.close()


def test_records_that_are_refused(fencepost_broker: fencepost.Broker, fencepost_topics: MakeTopic) -> None:
    topic = fencepost_topics(configs=SMALL)
    with fencepost.Producer(fencepost_broker.bootstrap_servers) as producer:
        delivery, rows = producer.send(topic, b"v" * 200), producer.send_arrow(topic, pa.table({"value": [b"v" * 200]}))
        Calls().make(lambda: delivery.result(60))
        Calls().make(lambda: rows.result(60))

        def reraised() -> None:
            error = delivery.exception(60)
            assert error is not None
            raise error

        Calls().make(reraised)


def test_a_member_that_was_fenced(fencepost_broker: fencepost.Broker, fencepost_topic: str) -> None:
    settings: dict[str, Any] = {"group_id": "g", "group_instance_id": "one", "group_protocol": "classic"}
    with (
        fencepost.Consumer(fencepost_broker.bootstrap_servers, **settings) as older,
        fencepost.Consumer(fencepost_broker.bootstrap_servers, **settings) as newer,
    ):
        older.subscribe([fencepost_topic])
        older.poll(1_000)
        newer.subscribe([fencepost_topic])

        def poll_both() -> None:
            while True:
                newer.poll(200)
                older.poll(200)

        with pytest.raises(GroupFencedError):
            poll_both()
        Calls().make(lambda: older.poll(60_000))


def test_a_position_outside_the_log(fencepost_broker: fencepost.Broker, fencepost_topic: str) -> None:
    with fencepost.Consumer(fencepost_broker.bootstrap_servers, auto_offset_reset="none") as consumer:
        consumer.assign([fencepost.TopicPartition(fencepost_topic, 0)])

        def poll_outside() -> None:
            consumer.seek(fencepost.TopicPartition(fencepost_topic, 0), 1_000)
            consumer.poll(60_000)

        Calls().make(poll_outside)


def test_asyncio_clients(
    fencepost_broker: fencepost.Broker, guarded: fencepost.Broker, fencepost_topics: MakeTopic
) -> None:
    topic = fencepost_topics(configs=SMALL)

    async def run() -> None:
        async with fencepost.AsyncAdmin(guarded.bootstrap_servers, **NO_SUCH_USER) as admin:
            await Calls().make_awaited(admin.list_topics)
        async with fencepost.AsyncProducer(fencepost_broker.bootstrap_servers) as producer:
            delivery = await producer.send(topic, b"v" * 200)
            rows = await producer.send_arrow(topic, pa.table({"value": [b"v" * 200]}))
            await Calls().make_awaited(lambda: delivery)
            await Calls().make_awaited(lambda: rows)
        async with (
            fencepost.AsyncProducer(fencepost_broker.bootstrap_servers, transactional_id="mine") as mine,
            fencepost.AsyncProducer(fencepost_broker.bootstrap_servers, transactional_id="mine") as other,
        ):
            await mine.init_transactions()
            mine.begin_transaction()
            await other.init_transactions()
            with pytest.raises(KafkaError):
                await (await mine.send(topic, b"v"))

            async def begin() -> None:
                mine.begin_transaction()

            await Calls().make_awaited(begin)
            await Calls().make_awaited(mine.commit_transaction)
            await Calls().make_awaited(mine.init_transactions)

    asyncio.run(run())


def test_a_client_that_was_not_closed_is_collected(guarded: fencepost.Broker) -> None:
    """Its first error would otherwise keep it, so that nobody is warned, and its connections stay open."""

    def forget() -> None:
        with pytest.raises(KafkaError):
            fencepost.Admin(guarded.bootstrap_servers, **NO_SUCH_USER).list_topics()

    def forget_and_collect() -> None:
        forget()
        gc.collect()

    with pytest.warns(ResourceWarning, match="Admin was never closed"):
        forget_and_collect()
