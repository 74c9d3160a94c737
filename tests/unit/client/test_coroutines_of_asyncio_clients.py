"""The asyncio clients' methods are coroutine functions, so that threads, mocks and frameworks treat them as such."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from unittest import mock

import pytest

import fencepost
from fencepost.errors import UsageError
from tests.support.interrupted_calls import FACES, NOT_CALLS, methods_of

CLIENTS = [asyncio_client for _, asyncio_client in FACES.values()]
TOPIC = "t"


@pytest.fixture
def other_thread() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_a_method_that_is_awaited_is_a_coroutine_function(client: type) -> None:
    for name in [*methods_of(client), *NOT_CALLS]:
        method = inspect.getattr_static(client, name)
        core_method = inspect.unwrap(method) if callable(method) else None
        assert inspect.iscoroutinefunction(method) == inspect.iscoroutinefunction(core_method), name


def test_another_thread_makes_calls_for_the_loop(other_thread: asyncio.AbstractEventLoop) -> None:
    def run(call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(call, other_thread).result(60)

    async def called(make: Callable[[], Any]) -> Any:
        return make()

    with fencepost.Broker() as broker:
        admin = run(called(lambda: fencepost.AsyncAdmin(broker.bootstrap_servers)))
        producer = run(called(lambda: fencepost.AsyncProducer(broker.bootstrap_servers, transactional_id="t")))
        consumer = run(called(lambda: fencepost.AsyncConsumer(broker.bootstrap_servers, auto_offset_reset="earliest")))
        run(admin.create_topic(TOPIC, 1))
        run(producer.init_transactions())
        run(called(producer.begin_transaction))
        run(producer.send(TOPIC, b"v"))
        run(producer.flush())
        run(producer.commit_transaction())
        run(consumer.assign([(TOPIC, 0)]))
        assert [record.value for record in run(consumer.poll(60_000))] == [b"v"]
        for client in (consumer, producer, admin):
            run(client.close())


def test_a_call_in_another_loop_is_refused_when_it_is_awaited() -> None:
    async def refused(call: Coroutine[Any, Any, Any]) -> None:
        with pytest.raises(UsageError, match="belongs to the event loop"):
            await call

    async def body() -> None:
        with fencepost.Broker() as broker:
            async with fencepost.AsyncAdmin(broker.bootstrap_servers) as admin:
                await asyncio.to_thread(asyncio.run, refused(admin.list_topics()))

    asyncio.run(body())


def test_a_mock_of_a_client_is_awaited_like_the_client() -> None:
    async def body() -> None:
        producer = mock.create_autospec(fencepost.AsyncProducer, instance=True)
        await producer.flush()
        producer.flush.assert_awaited_once()

    asyncio.run(body())
