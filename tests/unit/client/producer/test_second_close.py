"""A close() of a producer during another one waits for it, and says so if it cannot."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import fencepost
from fencepost.errors import KafkaError, KafkaTimeoutError
from fencepost.testing import read_all
from tests.support.waiting import until

WAIT_S = 20


@pytest.fixture
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


class Gate:
    """A delivery callback that runs until it is released: close() waits for it."""

    def __init__(self) -> None:
        self.entered, self.released = threading.Event(), threading.Event()

    def __call__(self, error: KafkaError | None, metadata: fencepost.RecordMetadata | None) -> None:
        self.entered.set()
        self.released.wait(WAIT_S)


def test_a_second_thread_waits_for_the_first(broker: fencepost.Broker) -> None:
    gate = Gate()
    producer = fencepost.Producer(broker.bootstrap_servers, linger_ms=60_000)
    producer.send("t", b"v", on_delivery=gate)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(producer.close)
        assert gate.entered.wait(WAIT_S)
        with pytest.raises(KafkaTimeoutError, match="another close"):
            producer.close(timeout_ms=50)
        producer.close(timeout_ms=0)
        assert not first.done()
        second = threads.submit(producer.close)
        until(lambda: len(producer._core._ended._waiters) == 1)  # type: ignore[attr-defined]
        assert not second.done()
        gate.released.set()
        second.result(WAIT_S)
        first.result(WAIT_S)
    assert producer.closed
    producer.close()
    assert [record.value for record in read_all(broker, "t")] == [b"v"]


def test_a_signal_handler_inside_of_close_does_not_wait_for_it(broker: fencepost.Broker) -> None:
    gate = Gate()
    producer = fencepost.Producer(broker.bootstrap_servers, linger_ms=60_000)
    producer.send("t", b"v", on_delivery=gate)
    handled: list[bool] = []

    def close_again(number: int, frame: object) -> None:
        producer.close()
        handled.append(producer.closed)
        gate.released.set()

    def interrupt() -> None:
        gate.entered.wait(WAIT_S)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, close_again)
    try:
        sender = threading.Thread(target=interrupt)
        sender.start()
        producer.close()
        sender.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == [False]
    assert producer.closed


def test_a_second_task_waits_for_the_first(broker: fencepost.Broker) -> None:
    async def run() -> None:
        producer = fencepost.AsyncProducer(broker.bootstrap_servers, transactional_id="x")
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("t", b"v")
        await producer.flush()  # an abort of nothing asks nobody
        ended: list[str] = []

        async def close(name: str) -> None:
            await producer.close()
            ended.append(name)

        with broker.faults.delay_reply("EndTxn", 2.0) as late:
            first = asyncio.create_task(close("first"))
            await asyncio.to_thread(late.wait)
            with pytest.raises(KafkaTimeoutError, match="another close"):
                await producer.close(timeout_ms=50)
            await producer.close(timeout_ms=0)
            assert not ended
            await close("second")
            await first
        assert ended == ["first", "second"]
        assert producer.closed

    asyncio.run(run())
