"""A two-phase transaction has a timeout until it is prepared, and none from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import fencepost
from fencepost.client.producer.id_calls import UNPREPARED_MS
from fencepost.errors import KafkaTimeoutError, TransactionCommitFailedError, TransactionTimedOutError
from fencepost.testing import read_all

LATER_S = UNPREPARED_MS / 1000 + 1


@pytest.fixture
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


def writer(broker: fencepost.Broker, max_block_ms: int = 60_000) -> fencepost.Producer:
    return fencepost.Producer(
        broker.bootstrap_servers,
        transactional_id="x",
        two_phase_commit=True,
        max_block_ms=max_block_ms,
        request_timeout_ms=200 if max_block_ms < 60_000 else 30_000,
    )


def later(broker: fencepost.Broker, seconds: float = LATER_S) -> None:
    broker.clock.advance(seconds)
    broker.settle()


def committed(broker: fencepost.Broker) -> list[bytes | None]:
    return [record.value for record in read_all(broker, "t")]


def test_a_writer_that_dies_before_it_prepares_holds_up_nobody(broker: fencepost.Broker) -> None:
    with writer(broker) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v").result()
        producer.close(0)
    with fencepost.Producer(broker.bootstrap_servers) as other:
        other.send("t", b"w").result()
    later(broker)
    assert committed(broker) == [b"w"]


@pytest.mark.parametrize("is_prepared", [False, True])
def test_each_transaction_of_a_producer_has_a_timeout_until_it_is_prepared(
    broker: fencepost.Broker, is_prepared: bool
) -> None:
    with writer(broker) as producer:
        producer.init_transactions()
        for number in range(2):
            producer.begin_transaction()
            producer.send("t", b"%d" % number)
            note = producer.prepare_transaction()
            later(broker, 2 * 86_400)
            if is_prepared and number:
                break
            assert producer.complete_transaction(note)
    with writer(broker) as producer:
        assert (producer.init_transactions(keep_prepared=True) == note) is is_prepared
        assert producer.complete_transaction(note)
        producer.begin_transaction()
        producer.send("t", b"late").result()
        later(broker)
        with pytest.raises(TransactionCommitFailedError) as raised:
            producer.prepare_transaction()
        assert isinstance(raised.value.__cause__, TransactionTimedOutError)
        assert producer.metrics()["transaction_timed_out_total"] == 1
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("t", b"last")
        assert producer.complete_transaction(producer.prepare_transaction())
    assert committed(broker) == [b"0", b"1", b"last"]


def test_a_lower_limit_of_the_broker_is_kept_to() -> None:
    with fencepost.Broker({"transaction.max.timeout.ms": 120_000}) as broker, writer(broker) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v").result()
        with fencepost.Admin(broker.bootstrap_servers) as admin:
            assert admin.describe_transactions(["x"])[0].timeout_ms == 60_000
            note = producer.prepare_transaction()
            assert admin.describe_transactions(["x"])[0].timeout_ms == 2**31 - 1
        assert producer.complete_transaction(note)


@pytest.mark.parametrize("then", ["abort", "commit", "prepare"])
def test_a_prepare_without_an_answer_can_be_followed_by_everything(broker: fencepost.Broker, then: str) -> None:
    with writer(broker, 1_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v").result()
        with (
            broker.faults.drop_reply("InitProducerId", times=None) as lost,
            pytest.raises(TransactionCommitFailedError),
        ):
            producer.prepare_transaction()
        assert lost.hits > 0
        if then == "abort":
            producer.abort_transaction()
        elif then == "commit":
            producer.commit_transaction()
        else:
            assert producer.complete_transaction(producer.prepare_transaction())
        with producer.transaction():
            producer.send("t", b"w")
    assert committed(broker) == ([b"w"] if then == "abort" else [b"v", b"w"])


def test_an_abort_after_an_unanswered_prepare_may_be_unanswered_too(broker: fencepost.Broker) -> None:
    with writer(broker, 1_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v").result()
        with broker.faults.drop_reply("InitProducerId", times=None):
            with pytest.raises(TransactionCommitFailedError):
                producer.prepare_transaction()
            with pytest.raises(KafkaTimeoutError):
                producer.abort_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"w")
    assert committed(broker) == [b"w"]


def test_a_cancelled_prepare_is_repeated(broker: fencepost.Broker) -> None:
    async def body() -> None:
        producer = fencepost.AsyncProducer(broker.bootstrap_servers, transactional_id="x", two_phase_commit=True)
        async with producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send("t", b"v")
            with broker.faults.swallow("InitProducerId") as swallowed:
                preparing = asyncio.ensure_future(producer.prepare_transaction())
                await asyncio.to_thread(swallowed.wait, 1, 10)
                preparing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await preparing
            broker.faults.disconnect()
            assert await producer.complete_transaction(await producer.prepare_transaction())

    asyncio.run(body())
    assert committed(broker) == [b"v"]
