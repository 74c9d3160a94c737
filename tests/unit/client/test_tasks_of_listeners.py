"""A listener or callback of an asyncio client may call the client from a task that it creates.

`asyncio.wait_for` creates one in Python 3.11, so that a listener with a time limit of its own does this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

import fencepost
from fencepost.errors import UsageError

WAIT_S = 20
Call = Callable[[fencepost.AsyncConsumer], Awaitable[object]]


class Listener(fencepost.RebalanceListener):
    """Calls the consumer when partitions are revoked."""

    def __init__(self, consumer: fencepost.AsyncConsumer, call: Call) -> None:
        self._consumer = consumer
        self._call = call
        self.done: list[object] = []

    async def on_partitions_revoked(self, partitions: list[fencepost.TopicPartition]) -> None:
        try:
            self.done.append(await asyncio.wait_for(asyncio.create_task(self._run()), WAIT_S))
        except UsageError as error:
            self.done.append(error)

    async def _run(self) -> object:
        return await self._call(self._consumer)


@pytest.fixture
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        with fencepost.Producer(running.bootstrap_servers) as producer:
            producer.send("t", b"v")
        yield running


async def consumer_of(broker: fencepost.Broker, call: Call) -> tuple[fencepost.AsyncConsumer, Listener]:
    consumer = fencepost.AsyncConsumer(
        broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
    )
    listener = Listener(consumer, call)
    await consumer.subscribe(["t"], listener)
    while not await consumer.poll(timeout_ms=500):
        pass
    return consumer, listener


@pytest.mark.asyncio
async def test_a_task_of_the_listener_commits(broker: fencepost.Broker) -> None:
    consumer, listener = await consumer_of(broker, lambda consumer: consumer.commit())
    await consumer.close()
    assert listener.done == [None]
    partition = fencepost.TopicPartition("t", 0)
    async with fencepost.AsyncConsumer(broker.bootstrap_servers, group_id="g") as other:
        found = (await other.committed([partition]))[partition]
    assert found is not None
    assert found.offset == 1


@pytest.mark.asyncio
async def test_a_task_of_the_listener_closes_during_close(broker: fencepost.Broker) -> None:
    consumer, listener = await consumer_of(broker, lambda consumer: consumer.close())
    await asyncio.wait_for(consumer.close(), WAIT_S)
    assert listener.done == [None]
    assert consumer.closed


@pytest.mark.asyncio
async def test_a_task_of_the_listener_does_not_poll_inside_of_poll(broker: fencepost.Broker) -> None:
    consumer, listener = await consumer_of(broker, lambda consumer: consumer.poll(timeout_ms=100))
    await consumer.unsubscribe()
    [polled] = listener.done
    assert not isinstance(polled, UsageError)  # unsubscribe() is no poll
    listener.done.clear()
    await consumer.subscribe(["t"], listener)
    while not consumer.assignment():
        await consumer.poll(timeout_ms=500)
    other = fencepost.AsyncConsumer(broker.bootstrap_servers, group_id="g")
    await other.subscribe(["t"])
    joining = asyncio.create_task(other.poll(timeout_ms=WAIT_S * 1000))
    while not listener.done:
        await consumer.poll(timeout_ms=500)
    joining.cancel()
    await consumer.close()
    await other.close()
    assert [type(error) for error in listener.done[:1]] == [UsageError]
    assert "poll() inside of poll()" in str(listener.done[0])


@pytest.mark.asyncio
async def test_another_task_is_still_refused(broker: fencepost.Broker) -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    async def call(consumer: fencepost.AsyncConsumer) -> None:
        entered.set()
        await left.wait()

    consumer, _ = await consumer_of(broker, call)
    closing = asyncio.create_task(consumer.close())
    await asyncio.wait_for(entered.wait(), WAIT_S)
    second = asyncio.create_task(consumer.close())
    with pytest.raises(UsageError, match="is closing this client"):
        await consumer.commit()
    await asyncio.sleep(0.1)  # the second close would be over by now, if it waited for nothing
    assert not second.done()
    left.set()
    await closing
    await second
    assert consumer.closed


@pytest.mark.asyncio
async def test_a_task_that_a_listener_leaves_behind_is_another_task(broker: fencepost.Broker) -> None:
    go = asyncio.Event()
    tasks: list[asyncio.Task[object]] = []

    async def later(consumer: fencepost.AsyncConsumer) -> object:
        await go.wait()
        return await consumer.position(fencepost.TopicPartition("t", 0))

    async def call(consumer: fencepost.AsyncConsumer) -> None:
        if not tasks:
            tasks.append(asyncio.create_task(later(consumer)))

    consumer, _ = await consumer_of(broker, call)
    await consumer.unsubscribe()
    await consumer.subscribe(["t"])
    while not consumer.assignment():
        await consumer.poll(timeout_ms=500)
    polling = asyncio.create_task(consumer.poll(timeout_ms=WAIT_S * 1000))
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(UsageError, match="another task is using this consumer"):
        await tasks[0]
    consumer.wakeup()
    with pytest.raises(fencepost.errors.WakeupError):
        await polling
    await consumer.close()
