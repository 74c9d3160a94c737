"""After close() a client does nothing more: no call and no task waits."""

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


def test_a_call_of_another_thread_ends_with_the_client(caplog: pytest.LogCaptureFixture) -> None:
    client = fencepost.Admin(NOBODY, default_api_timeout_ms=TWICE_AS_LONG_MS, **PATIENT)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.list_topics)
        until(lambda: "all brokers are down" in caplog.text)
        client.close()
        with pytest.raises(ClosedError):
            waiting.result(60)
