"""A failure that nobody has looked at is logged, and raised once by flush() or close()."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pyarrow as pa
import pytest

from fencepost import Broker, Producer
from fencepost.client.aio import AsyncBulkDelivery, AsyncDelivery
from fencepost.client.blocking import Delivery
from fencepost.errors import (
    BufferFullError,
    ClosedError,
    ConfigurationError,
    DataLossError,
    FatalError,
    KafkaError,
    KafkaTimeoutError,
    ProduceFailedError,
    RecordRejectedError,
    TransactionAbortableError,
    TransactionCommitFailedError,
)
from fencepost.testing import read_all
from tests.unit.client.scripted import CutConnection, ScriptedBroker, World, run

TOO_LARGE, INVALID, NOT_LEADER = 10, 87, 6
LOGGER = "fencepost.client.producer"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


def test_flush_raises_what_nobody_looked_at_and_close_does_not_repeat_it(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        world.broker.refuse_produce(INVALID)
        producer = world.producer(linger_ms=1000)
        for _ in range(7):
            producer.append("t", b"v")
        with pytest.raises(ProduceFailedError, match="not delivered: 7") as raised:
            await producer.flush()
        assert raised.value.records == 7
        assert isinstance(raised.value.__cause__, RecordRejectedError)
        assert raised.value.code == INVALID
        await producer.flush()
        await producer.close()

    run(body)
    assert len(lines(caplog)) == 1
    assert "7 for topic 't'" in lines(caplog)[0]


def test_a_report_of_a_loss_comes_when_sending_is_refused() -> None:
    """An application may send the next record in the callback, or in a thread that has waited for this one."""
    refusals: list[str] = []

    async def body(world: World) -> None:
        producer = world.producer()
        await world.outcome(producer.append("t", b"v"))
        world.broker.refuse_produce(45, times=2)

        def send_the_next(*_: object) -> None:
            try:
                producer.append("t", b"x")
            except DataLossError:
                refusals.append("refused")

        await world.outcome(producer.append("t", b"w", on_delivery=send_the_next))
        await producer.close()

    run(body)
    assert refusals == ["refused"]


def test_close_raises_it_when_nobody_flushed() -> None:
    async def body(world: World) -> None:
        world.broker.refuse_produce(INVALID)
        producer = world.producer()
        producer.append("t", b"v")
        with pytest.raises(ProduceFailedError, match="not delivered: 1"):
            await producer.close()
        assert producer.closed
        await producer.close()

    run(body)


def test_what_close_gives_up_is_counted_also_on_the_wire() -> None:
    async def body(world: World) -> None:
        world.broker.scripts[0] += [lambda _, __: None] * 10
        producer = world.producer()
        producer.append("t", b"on the wire")
        await world.runtime.sleep_ms(100)
        producer.append("u", b"behind it")
        with pytest.raises(ProduceFailedError, match="not delivered: 2") as raised:
            await producer.close(500)
        assert isinstance(raised.value.__cause__, KafkaTimeoutError)
        assert "500 ms" in str(raised.value)

    run(body)


def test_a_callback_and_a_result_are_looks() -> None:
    reported: list[KafkaError | None] = []

    def callback(error: KafkaError | None, _: object) -> None:
        reported.append(error)

    async def body(world: World) -> None:
        producer = world.producer()
        world.broker.refuse_produce(INVALID, times=3)
        producer.append("t", b"v", on_delivery=callback)
        await producer.flush()
        late = producer.append("t", b"v")
        await world.runtime.sleep_ms(100)
        with pytest.raises(ProduceFailedError):
            Delivery(late).result(0)
        assert isinstance(Delivery(late).exception(0), ProduceFailedError)
        waiting = asyncio.ensure_future(_caught(AsyncDelivery(producer.append("t", b"v"))))
        await world.runtime.sleep_ms(0)
        await producer.flush()
        assert await waiting
        await producer.close()

    run(body)
    assert len(reported) == 1


async def _caught(delivery: AsyncDelivery) -> bool:
    try:
        await delivery
    except ProduceFailedError:
        return True
    return False


def test_a_callback_that_raises_and_a_wait_that_gave_up_are_none() -> None:
    def callback(error: KafkaError | None, _: object) -> None:
        raise RuntimeError("a bug in the callback")

    async def body(world: World) -> None:
        producer = world.producer(linger_ms=500)
        world.broker.refuse_produce(INVALID)
        producer.append("t", b"v", on_delivery=callback)
        hasty = asyncio.ensure_future(_caught(AsyncDelivery(producer.append("t", b"v"))))
        await world.runtime.sleep_ms(10)
        hasty.cancel()
        await world.runtime.sleep_ms(10)
        with pytest.raises(ProduceFailedError, match="not delivered: 2"):
            await producer.flush()
        await producer.close()

    run(body)


def test_arrow_data_is_looked_at_as_a_whole() -> None:
    table = pa.table({"value": [b"a", b"b", b"c"]})

    async def body(world: World) -> None:
        producer = world.producer()
        world.broker.refuse_produce(INVALID, times=3)
        chunks = producer.append_table("t", table, None)
        with pytest.raises(ProduceFailedError, match="not delivered: 3"):
            await producer.flush()
        with pytest.raises(ProduceFailedError):
            await AsyncBulkDelivery(chunks)
        with pytest.raises(ProduceFailedError):
            await AsyncBulkDelivery(producer.append_table("t", table, None))
        late = producer.append_table("t", table, None)
        await world.runtime.sleep_ms(100)
        with pytest.raises(ProduceFailedError):
            await AsyncBulkDelivery(late)
        await producer.close()

    run(body)


def test_one_line_per_topic_and_cause_each_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        producer = world.producer()
        world.broker.refuse_produce(INVALID, times=100)
        for _ in range(25):
            for topic in ("t", "u"):
                producer.append(topic, b"v")
            await world.runtime.sleep_ms(1000)
        with pytest.raises(ProduceFailedError, match=r"not delivered: 50 .*25 for topic 't'.*25 for topic 'u'"):
            await producer.close()

    run(body)
    found = lines(caplog)
    assert 4 <= len(found) <= 8
    assert sum("topic 't'" in line for line in found) == sum("topic 'u'" in line for line in found)


def test_in_a_transaction_the_next_transactional_call_tells() -> None:
    async def body(world: World) -> None:
        producer = world.producer(transactional_id="x")
        await producer.init_transactions()
        producer.begin_transaction()
        world.broker.refuse_produce(INVALID)
        producer.append("t", b"v")
        await producer.flush()
        with pytest.raises(KafkaError, match="INVALID_RECORD"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await producer.close()

    run(body)


def test_closing_after_an_error_of_the_application_masks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        producer = world.producer()
        world.broker.refuse_produce(INVALID)
        producer.append("t", b"v")
        error = ZeroDivisionError("the application's own")
        await producer.close_after(error)
        assert "records not delivered: 1" in error.__notes__[0]

    run(body)
    assert any("after ZeroDivisionError" in line for line in lines(caplog))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError()], ids=["Ctrl-C", "cancellation"])
def test_closing_after_an_interruption_delivers_and_waits_half_a_second(error: BaseException) -> None:
    async def body(world: World) -> None:
        producer = world.producer(linger_ms=10_000)
        chunk, _ = producer.append("t", b"v")
        await producer.close_after(error)
        assert chunk.done and len(world.broker.batches) == 1

        producer = world.producer()
        world.broker.refuse_produce(NOT_LEADER, times=10_000)
        producer.append("t", b"v")
        await producer.close_after(error)
        assert "records not delivered: 1" in error.__notes__[0]
        assert "not delivered within the 500 ms that close() waited" in error.__notes__[0]

    run(body)


def test_what_is_delivered_after_retries_is_no_failure() -> None:
    def cut(_: int, __: object) -> None:
        raise CutConnection

    async def body(world: World) -> None:
        producer = world.producer()
        world.broker.scripts[0] += [cut, cut]
        producer.append("t", b"v")
        await producer.close()

    assert len(run(body).asked(0)) == 3


def test_a_defect_ends_the_producer_and_leaves_no_record_without_a_fate(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(world: World) -> None:
        producer = world.producer()
        await world.outcome(producer.append("t", b"v"))
        monkeypatch.setattr(producer.sender._answers, "settle", lambda *_: 1 / 0)
        producer.append("t", b"on the wire")
        with pytest.raises(ProduceFailedError, match="ZeroDivisionError"):
            await producer.flush(5000)
        with pytest.raises(FatalError, match="ZeroDivisionError"):
            producer.append("t", b"later")
        await producer.close()

    run(body)


def test_a_cancelled_task_leaves_no_record_without_a_fate() -> None:
    async def body(world: World) -> None:
        world.broker.scripts[0].append(lambda _, __: None)
        producer = world.producer()
        wire = producer.append("t", b"on the wire")
        await world.runtime.sleep_ms(50)
        waiting = producer.append("t", b"behind it")
        for task in list(world.runtime.tasks):
            task.cancel()
        await world.runtime.sleep_ms(0)
        for delivery in (wire, waiting):
            assert isinstance(delivery[0].outcome(delivery[1]), ProduceFailedError)
        with pytest.raises(ClosedError, match="event loop ended"):
            producer.append("t", b"later")
        with pytest.raises(ProduceFailedError, match="not delivered: 2"):
            await producer.close()

    run(body)


def test_a_program_that_ends_tells_why_its_records_were_not_delivered(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        world.broker.refuses_connections = True
        producer = world.producer()
        producer.append("t", b"v")
        await world.runtime.sleep_ms(50)
        for task in list(world.runtime.tasks):
            task.cancel()
        await world.runtime.sleep_ms(0)
        with pytest.raises(ProduceFailedError):
            await producer.close()

    run(body)
    assert "event loop ended, or the task was cancelled, before close() was done; cannot connect" in caplog.text


def test_a_record_without_a_place_does_not_fail_those_beside_it() -> None:
    async def body(world: World) -> None:
        producer = world.producer(linger_ms=100)
        sent = [
            producer.append("t", b"a"),
            producer.append("t", b"b", partition=9),
            producer.append("t", b"c", b"key"),
            producer.append("t", b"d", partition=1),
        ]
        with pytest.raises(ConfigurationError, match="partition is -1"):
            producer.append("t", b"e", partition=-1)
        outcomes = [await world.outcome(delivery) for delivery in sent]
        assert [isinstance(outcome, ProduceFailedError) for outcome in outcomes] == [False, True, False, False]
        assert "partition 9 of 't', which has 2" in str(outcomes[1])
        assert outcomes[3].partition == 1
        await producer.close()

    broker = run(body, ScriptedBroker(partitions=2))
    assert sum(count for *_, count in broker.batches) == 3


def test_a_partitioner_that_fails_fails_its_record_only() -> None:
    def partitioner(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> Any:
        return {b"a": 1, b"b": None, b"c": "1"}[value or b""]

    async def body(world: World) -> None:
        producer = world.producer(linger_ms=100, partitioner=partitioner)
        sent = [producer.append("t", value) for value in (b"a", b"b", b"c", b"d")]
        outcomes = [await world.outcome(delivery) for delivery in sent]
        assert [isinstance(outcome, ProduceFailedError) for outcome in outcomes] == [False, False, True, True]
        assert outcomes[0].partition == 1
        assert "KeyError" in str(outcomes[3])
        await producer.close()

    run(body, ScriptedBroker(partitions=2))


@pytest.mark.parametrize("timeout_ms", [500, 0])
def test_a_record_that_was_sent_and_not_acknowledged_by_the_end_may_be_in_the_log(
    timeout_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker() as broker:
        producer = Producer(broker.bootstrap_servers)
        producer.send("t", b"first").result(120)
        lost = broker.faults.drop_reply("Produce", times=None)
        producer.send("t", b"second")
        lost.wait()
        with pytest.raises(ProduceFailedError, match="may be in the log") as raised:
            producer.close(timeout_ms)
        assert raised.value.outcome_unknown
        lost.remove()
        assert [record.value for record in read_all(broker, "t")] == [b"first", b"second"]
    assert "may be in the log" in "".join(lines(caplog))


def test_a_record_that_was_never_sent_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    producer = Producer("127.0.0.1:1")
    delivery = producer.send("t", b"v")
    with pytest.raises(ProduceFailedError) as raised:
        producer.close(100)
    assert not raised.value.outcome_unknown
    reported = delivery.exception(60)
    assert isinstance(reported, ProduceFailedError)
    assert not reported.outcome_unknown
    assert lines(caplog)
    assert "may be in the log" not in "".join(lines(caplog))


def test_a_record_that_found_no_room_may_be_sent_again_and_is_there_once() -> None:
    async def body(world: World) -> None:
        producer = world.producer(buffer_memory=10, batch_size=1, max_block_ms=500, request_timeout_ms=300)
        world.broker.scripts[0].append(lambda _, __: None)
        world.broker.scripts[0].append(lambda _, __: None)
        producer.append("t", b"fills it")
        with pytest.raises(BufferFullError, match="stayed full for 500 ms"):
            await producer.wait_for_room()
        while producer.full:
            with contextlib.suppress(BufferFullError):
                await producer.wait_for_room()
        producer.append("t", b"again")
        await producer.flush()
        assert producer.metrics()["record_send_total"] == 2
        await producer.close()

    run(body)


def test_a_callback_that_found_no_room_dooms_its_transaction() -> None:
    """The callback's error is only logged, and the transaction lacks the record."""
    with (
        Broker() as broker,
        Producer(
            broker.bootstrap_servers,
            transactional_id="x",
            buffer_memory=20_000,
            batch_size=1_000,
            request_timeout_ms=500,
        ) as producer,
    ):
        producer.init_transactions()
        producer.begin_transaction()

        def fill(*_: object) -> None:
            silence = broker.faults.swallow("Produce", times=None)
            try:
                for _number in range(100):
                    producer.send("t", bytes(1_000))
            finally:
                silence.remove()

        producer.send("t", b"v", on_delivery=fill)
        producer.flush()
        with pytest.raises(TransactionCommitFailedError) as failed:
            producer.commit_transaction()
        assert isinstance(failed.value.__cause__, BufferFullError)
        producer.abort_transaction()
        assert read_all(broker, "t") == []


def test_a_record_that_found_no_room_is_missing_from_its_transaction() -> None:
    async def body(world: World) -> None:
        producer = world.producer(transactional_id="x", buffer_memory=10, batch_size=1, max_block_ms=500)
        await producer.init_transactions()
        producer.begin_transaction()
        world.broker.scripts[0].append(lambda _, __: None)
        producer.append("t", b"fills it")
        began_ms = world.runtime.now_ms()
        with pytest.raises(TransactionAbortableError) as reported:  # retriable would mean that the same call may help
            await producer.wait_for_room()
        assert isinstance(reported.value.__cause__, BufferFullError)
        assert world.runtime.now_ms() - began_ms == 500
        with pytest.raises(TransactionCommitFailedError) as raised:
            await producer.commit_transaction()
        assert isinstance(raised.value.__cause__, BufferFullError)
        await producer.close(0)

    assert not run(body).asked(26)  # EndTxn
