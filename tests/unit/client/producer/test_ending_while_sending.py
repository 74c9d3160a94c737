"""Records that other threads or tasks send while a transaction ends or is prepared: taken as a whole, or refused.

A record that `send` accepts belongs to the transaction, so the call that ends it waits for the record. A later record
is refused at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

import fencepost
from fencepost.errors import KafkaError, UsageError
from fencepost.testing import read_all


@pytest.fixture
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


def committed(broker: fencepost.Broker) -> list[bytes | None]:
    return [record.value for record in read_all(broker, "t")]


@pytest.mark.parametrize("two_phase", [False, True])
def test_a_callback_cannot_send_into_a_transaction_that_is_being_prepared(
    broker: fencepost.Broker, two_phase: bool
) -> None:
    """The flush of prepare_transaction() waits for the callback, and its record would not be part of the flush."""
    met: list[Exception | None] = []

    def send_another(error: KafkaError | None, metadata: fencepost.RecordMetadata | None) -> None:
        try:
            producer.send("t", b"late")
            met.append(None)
        except UsageError as refusal:
            met.append(refusal)

    with fencepost.Producer(
        broker.bootstrap_servers, transactional_id="x", two_phase_commit=two_phase, linger_ms=60_000
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v", on_delivery=send_another)
        prepared = producer.prepare_transaction()
        assert isinstance(met[0], UsageError)
        assert "PREPARING" in str(met[0])
        assert producer.complete_transaction(prepared)
    assert committed(broker) == [b"v"]


@pytest.mark.parametrize("ending", ["prepare_transaction", "commit_transaction", "abort_transaction"])
def test_a_task_cannot_send_into_a_transaction_that_is_being_ended(broker: fencepost.Broker, ending: str) -> None:
    async def run() -> None:
        async with fencepost.AsyncProducer(
            broker.bootstrap_servers, transactional_id="x", linger_ms=60_000
        ) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send("t", b"v")
            end = asyncio.create_task(getattr(producer, ending)())
            await asyncio.sleep(0)  # its flush, or its drain, has begun, and no answer can have come
            with pytest.raises(UsageError, match="send\\(\\) needs an open transaction"):
                await producer.send("t", b"late")
            prepared = await end
            if prepared is not None:
                await producer.complete_transaction(prepared)

    asyncio.run(run())
    assert committed(broker) == ([] if ending == "abort_transaction" else [b"v"])


def test_a_prepare_that_was_cancelled_is_made_again(broker: fencepost.Broker) -> None:
    async def run() -> None:
        async with fencepost.AsyncProducer(
            broker.bootstrap_servers, transactional_id="x", linger_ms=60_000
        ) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send("t", b"v")
            first = asyncio.create_task(producer.prepare_transaction())
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            with pytest.raises(UsageError, match="PREPARING"):
                await producer.send("t", b"late")
            prepared = await producer.prepare_transaction()
            assert prepared == await producer.prepare_transaction()
            assert await producer.complete_transaction(prepared)

    asyncio.run(run())
    assert committed(broker) == [b"v"]


@pytest.mark.parametrize("ending", ["prepare_transaction", "commit_transaction"])
def test_threads_send_while_transactions_end(broker: fencepost.Broker, ending: str) -> None:
    """Each accepted record is committed once, in whichever transaction took it; no other record is there."""
    accepted: list[bytes] = []

    def send(number: int) -> None:
        for count in range(1_000):
            value = b"%d-%d" % (number, count)
            try:
                producer.send("t", value)
            except UsageError:
                continue
            accepted.append(value)

    with fencepost.Producer(broker.bootstrap_servers, transactional_id="x", linger_ms=5, batch_size=200) as producer:
        producer.init_transactions()
        threads = [threading.Thread(target=send, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        is_last = False
        while not is_last:
            is_last = not any(thread.is_alive() for thread in threads)
            producer.begin_transaction()
            producer.flush()
            prepared = getattr(producer, ending)()
            if prepared is not None:
                assert producer.complete_transaction(prepared)
    assert sorted(value for value in committed(broker) if value is not None) == sorted(accepted)
