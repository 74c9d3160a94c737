"""After close() a client does nothing more: no call and no task waits, and no iterator returns a record."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import fencepost
from fencepost.errors import ClosedError, KafkaError
from tests.support.waiting import until

LONG_MS = 500_000
NOBODY = "127.0.0.1:1"  # no broker listens there
PATIENT: dict[str, Any] = {
    "retry_backoff_ms": LONG_MS,
    "retry_backoff_max_ms": LONG_MS,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 1,
}
TWICE_AS_LONG_MS = 2 * LONG_MS

Waiting = tuple[Any, Coroutine[Any, Any, object]]


async def admin() -> Waiting:
    client = fencepost.AsyncAdmin(NOBODY, default_api_timeout_ms=TWICE_AS_LONG_MS, **PATIENT)
    return client, client.list_topics()


async def producer() -> Waiting:
    client = fencepost.AsyncProducer(NOBODY, max_block_ms=TWICE_AS_LONG_MS, **PATIENT)
    return client, client.partitions_for("t")


async def producer_with_a_record() -> Waiting:
    client = fencepost.AsyncProducer(NOBODY, max_block_ms=TWICE_AS_LONG_MS, **PATIENT)
    await client.send("t", b"v")
    return client, client.flush()


async def transactional_producer() -> Waiting:
    client = fencepost.AsyncProducer(NOBODY, transactional_id="id", max_block_ms=TWICE_AS_LONG_MS, **PATIENT)
    return client, client.init_transactions()


async def consumer() -> Waiting:
    client = fencepost.AsyncConsumer(NOBODY, default_api_timeout_ms=TWICE_AS_LONG_MS, **PATIENT)
    await client.assign([("t", 0)])
    return client, client.poll(LONG_MS)


async def steps_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (no event tells of the end of all tasks)
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "make", [admin, producer, producer_with_a_record, transactional_producer, consumer], ids=lambda make: make.__name__
)
def test_no_task_waits_for_another_attempt(
    make: Callable[[], Coroutine[Any, Any, Waiting]], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        client, call = await make()
        waiting = asyncio.ensure_future(call)
        await steps_until(lambda: "all brokers are down" in caplog.text)  # the first attempt has failed
        with contextlib.suppress(KafkaError):  # the record that was not delivered
            await client.close(timeout_ms=100)
        await steps_until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
        assert waiting.done()

    asyncio.run(run())


def test_no_task_waits_for_a_partition_to_appear(fencepost_broker: fencepost.Broker, fencepost_topic: str) -> None:
    async def run() -> None:
        asked = fencepost_broker.metrics().requests["metadata"]
        client = fencepost.AsyncProducer(fencepost_broker.bootstrap_servers, **PATIENT)
        await client.send(fencepost_topic, b"v", partition=7)
        await steps_until(lambda: fencepost_broker.metrics().requests["metadata"] >= asked + 2)  # it asked again
        with contextlib.suppress(KafkaError):  # the record that was not delivered
            await client.close(timeout_ms=100)
        await steps_until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    asyncio.run(run())


def test_a_call_of_another_thread_ends_with_the_client(caplog: pytest.LogCaptureFixture) -> None:
    client = fencepost.Admin(NOBODY, default_api_timeout_ms=TWICE_AS_LONG_MS, **PATIENT)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.list_topics)
        until(lambda: "all brokers are down" in caplog.text)
        client.close()
        with pytest.raises(ClosedError):
            waiting.result(60)


def some_records(broker: fencepost.Broker, topic: str) -> None:
    with fencepost.Producer(broker.bootstrap_servers) as sender:
        for number in range(10):
            sender.send(topic, b"%d" % number)


def test_an_iterator_ends(fencepost_broker: fencepost.Broker, fencepost_topic: str) -> None:
    """Records after the committed position would be read again by the next consumer."""
    some_records(fencepost_broker, fencepost_topic)
    settings: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": True}
    client = fencepost.Consumer(fencepost_broker.bootstrap_servers, **settings)
    client.assign([(fencepost_topic, 0)])
    iterator = iter(client)
    read = [next(iterator).offset, next(client).offset]
    client.close()
    assert [*read, *(record.offset for record in iterator)] == [0, 1]
    assert list(client) == []
    with fencepost.Admin(fencepost_broker.bootstrap_servers) as asked:
        assert asked.group_offsets("g")[fencepost.TopicPartition(fencepost_topic, 0)].offset == 2


def test_an_asyncio_iterator_ends(fencepost_broker: fencepost.Broker, fencepost_topic: str) -> None:
    some_records(fencepost_broker, fencepost_topic)

    async def run() -> list[int]:
        client = fencepost.AsyncConsumer(fencepost_broker.bootstrap_servers, auto_offset_reset="earliest")
        await client.assign([(fencepost_topic, 0)])
        read = []
        async for record in client:
            read.append(record.offset)
            await client.close()
        return read

    assert asyncio.run(run()) == [0]
