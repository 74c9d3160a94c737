"""`purge` against a scripted broker: the results of purged records, and the sequences of those that follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.client.producer.core import ProducerCore
from fencepost.errors import (
    FailureType,
    ProduceFailedError,
    RecordPurgedError,
    TransactionAbortableError,
    TransactionCommitFailedError,
)
from tests.unit.client.scripted import CutConnection, ScriptedBroker, World, run

Answer = Callable[[Any], Any]
LEADER_NOT_AVAILABLE, NOT_LEADER, MESSAGE_TOO_LARGE, OUT_OF_ORDER_SEQUENCE = 5, 6, 10, 45


def cut(_request: Any) -> Any:
    raise CutConnection


def refusing(broker: ScriptedBroker, code: int) -> Answer:
    return lambda request: broker.produced(request, code=code)


def purging(producer: ProducerCore, purged: list[int], answer: Answer, **which: bool) -> Callable[[int, Any], Any]:
    """A script for a Produce request: purge while it is in flight, then answer it."""

    def script(_version: int, request: Any) -> Any:
        purged.append(producer.purge(**which))
        return answer(request)

    return script


def check(failed: Any, *, unknown: bool, kind: FailureType = FailureType.DELIVERY_FAILED) -> None:
    assert isinstance(failed, ProduceFailedError)
    assert isinstance(failed.__cause__, RecordPurgedError)
    assert (failed.failure_type, failed.outcome_unknown) == (kind, unknown)
    assert ("may be in the log" in str(failed)) is unknown


async def deliver_one_by_one(world: World, producer: ProducerCore, *values: bytes) -> None:
    for value in values:
        assert (await world.outcome(producer.append("t", value))).offset >= 0


async def deliver_at_once(world: World, producer: ProducerCore, *values: bytes) -> None:
    sent = [producer.append("t", value) for value in values]
    await producer.flush()
    assert [(await world.outcome(delivery)).offset >= 0 for delivery in sent] == [True] * len(values)


def test_records_that_were_never_sent_leave_no_gap() -> None:
    async def body(world: World) -> None:
        producer = world.producer(linger_ms=10_000)
        await deliver_at_once(world, producer, b"a", b"b")
        waiting = [producer.append("t", b"c") for _ in range(3)]
        assert producer.purge(in_flight=False) == 3
        for delivery in waiting:
            check(await world.outcome(delivery), unknown=False)
        await deliver_at_once(world, producer, b"d")
        await producer.close()

    assert run(body).batches == [(71, 0, 0, 2), (71, 0, 2, 1)]


def test_records_whose_topic_is_unknown_are_in_the_queue() -> None:
    async def body(world: World) -> None:
        producer = world.producer()
        delivery = producer.append("t", b"v")
        while not world.broker.asked(18):
            await world.runtime.sleep_ms(0)
        assert producer.purge() == 1
        check(await world.outcome(delivery), unknown=False)
        await deliver_one_by_one(world, producer, b"w")
        await producer.close()

    assert run(body).batches == [(71, 0, 0, 1)]


def test_an_answer_after_the_purge_counts_for_the_sequence_alone() -> None:
    async def body(world: World) -> None:
        producer, purged = world.producer(), list[int]()
        await deliver_one_by_one(world, producer, b"a")
        world.broker.scripts[0].append(purging(producer, purged, world.broker.produced))
        check(await world.outcome(producer.append("t", b"purged")), unknown=True)
        await deliver_one_by_one(world, producer, b"b", b"c")
        assert purged == [1]
        assert producer.metrics()["record_send_total"] == 3
        assert producer.metrics()["record_error_total"] == 1
        await producer.close()

    assert run(body).batches == [(71, 0, sequence, 1) for sequence in range(4)]


def test_without_an_answer_the_sequences_begin_again() -> None:
    """The batch may be in the log, so the next sequence is unknown (KIP-360)."""

    async def body(world: World) -> None:
        producer, purged = world.producer(), list[int]()
        await deliver_one_by_one(world, producer, b"a")
        world.broker.scripts[0].append(purging(producer, purged, cut))
        check(await world.outcome(producer.append("t", b"purged")), unknown=True)
        await deliver_one_by_one(world, producer, b"b", b"c")
        await producer.close()

    assert run(body).batches == [(71, 0, 0, 1), (71, 0, 1, 1), (71, 1, 0, 1), (71, 1, 1, 1)]


@pytest.mark.parametrize("code", [LEADER_NOT_AVAILABLE, MESSAGE_TOO_LARGE])
def test_a_refused_batch_is_not_sent_again_and_its_sequence_is_free(code: int) -> None:
    async def body(world: World) -> None:
        producer, purged = world.producer(), list[int]()
        await deliver_one_by_one(world, producer, b"a")
        world.broker.scripts[0].append(purging(producer, purged, refusing(world.broker, code)))
        sent = [producer.append("t", b"purged") for _ in range(2)]
        for delivery in sent:
            check(await world.outcome(delivery), unknown=True)
        while producer.metrics()["requests_in_flight"]:
            await world.runtime.sleep_ms(1)
        await deliver_one_by_one(world, producer, b"b")
        assert purged == [2]
        await producer.close()

    assert run(body).batches == [(71, 0, 0, 1), (71, 0, 1, 2), (71, 0, 1, 1)]


def test_a_batch_that_was_sent_behind_a_refused_one_gets_its_sequence() -> None:
    """A broker refuses the later one as out of order (45)."""

    async def body(world: World) -> None:
        producer, purged = world.producer(), list[int]()
        await deliver_one_by_one(world, producer, b"a")
        refuse = refusing(world.broker, LEADER_NOT_AVAILABLE)
        world.broker.scripts[0].append(purging(producer, purged, refuse))
        world.broker.refuse_produce(OUT_OF_ORDER_SEQUENCE)
        check(await world.outcome(producer.append("t", b"purged")), unknown=True)
        await deliver_one_by_one(world, producer, b"b")
        assert producer.metrics()["data_loss_total"] == 0
        await producer.close()

    assert run(body).batches == [(71, 0, 0, 1), (71, 0, 1, 1), (71, 0, 2, 1), (71, 0, 1, 1)]


@pytest.mark.parametrize(("code", "unknown"), [(LEADER_NOT_AVAILABLE, False), (NOT_LEADER, True)])
def test_a_batch_that_waits_for_a_retry_is_in_the_queue(code: int, unknown: bool) -> None:
    """A leader that lost its leadership may have appended it."""

    async def body(world: World) -> None:
        producer = world.producer(retry_backoff_ms=1_000)
        await deliver_one_by_one(world, producer, b"a")
        world.broker.refuse_produce(code)
        delivery = producer.append("t", b"purged")
        while not producer.metrics()["record_retry_total"]:
            await world.runtime.sleep_ms(1)
        assert producer.purge(in_queue=False) == 0
        assert producer.purge(in_flight=False) == 1
        check(await world.outcome(delivery), unknown=unknown)
        await deliver_one_by_one(world, producer, b"b")
        await producer.close()

    assert run(body).batches[-1] == ((71, 1, 0, 1) if unknown else (71, 0, 1, 1))


def test_what_waits_behind_a_purged_request_is_sent_if_only_that_is_purged() -> None:
    async def body(world: World) -> None:
        producer, purged = world.producer(), list[int]()
        script = purging(producer, purged, world.broker.produced, in_queue=False)
        world.broker.scripts[0].append(script)  # the first of a producer id goes alone
        first = producer.append("t", b"purged")
        while not producer.metrics()["requests_in_flight"]:
            await world.runtime.sleep_ms(0)
        second = producer.append("t", b"b")
        check(await world.outcome(first), unknown=True)
        assert (await world.outcome(second)).offset == 1
        assert purged == [1]
        await producer.close()

    assert run(body).batches == [(71, 0, 0, 1), (71, 0, 1, 1)]


def test_the_purge_tells_the_number_and_flush_does_not_tell_it_again() -> None:
    async def body(world: World) -> None:
        producer = world.producer(linger_ms=10_000)
        for _ in range(3):
            producer.append("t", b"v")
        assert producer.purge(in_queue=False, in_flight=False) == 0
        assert producer.purge() == 3
        assert producer.purge() == 0
        await producer.flush()
        await producer.close()

    assert run(body).batches == []


def test_the_callbacks_of_purged_records_run() -> None:
    async def body(world: World) -> None:
        producer, reported = world.producer(linger_ms=10_000), list[Any]()
        producer.append("t", b"v", on_delivery=lambda error, metadata: reported.append((error, metadata)))
        producer.purge()
        [(error, metadata)] = reported
        check(error, unknown=False)
        assert metadata is None
        await producer.close()

    run(body)


def test_a_purge_makes_room() -> None:
    async def body(world: World) -> None:
        world.broker.refuses_connections = True
        producer = world.producer(buffer_memory=1_000, batch_size=1_000)
        while not producer.full:
            producer.append("t", bytes(500))
        waits = world.runtime.spawn(producer.wait_for_room())
        await world.runtime.sleep_ms(1)
        assert not waits.done()
        assert producer.purge() > 0
        await waits
        await producer.close(0)

    run(body)


@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_without_its_purged_records_can_only_be_aborted(version: int, in_flight: bool) -> None:
    async def body(world: World) -> None:
        producer, purged = world.producer(transactional_id="x"), list[int]()
        await producer.init_transactions()
        producer.begin_transaction()
        await deliver_one_by_one(world, producer, b"a")
        world.broker.scripts[0].append(purging(producer, purged, cut, in_queue=not in_flight))
        sent = producer.append("t", b"purged")
        if in_flight:
            check(await world.outcome(sent), unknown=False, kind=FailureType.TRANSACTION_FAILED)
        else:
            world.broker.scripts[0].clear()
            assert producer.purge() == 1
        with pytest.raises(TransactionAbortableError, match="purged"):
            producer.append("t", b"too late")
        with pytest.raises(TransactionCommitFailedError) as raised:
            await producer.commit_transaction()
        assert isinstance(raised.value.__cause__, RecordPurgedError)
        await producer.abort_transaction()
        producer.begin_transaction()
        await deliver_one_by_one(world, producer, b"b", b"c")
        await producer.commit_transaction()
        await producer.close()

    broker = run(body, ScriptedBroker(transaction_version=version))
    assert [request.committed for request in broker.asked(26)] == [False, True]
    [first, second] = broker.batches[-2:]
    assert first[1] > broker.batches[0][1]  # a new epoch, whose sequences begin at 0
    assert (first[2:], second[2:]) == ((0, 1), (1, 1))


def test_a_purge_during_a_commit_fails_it() -> None:
    async def body(world: World) -> None:
        producer, purged = world.producer(transactional_id="x"), list[int]()
        await producer.init_transactions()
        producer.begin_transaction()
        world.broker.scripts[0].append(purging(producer, purged, world.broker.produced))
        producer.append("t", b"purged")
        with pytest.raises(TransactionCommitFailedError) as raised:
            await producer.commit_transaction()
        assert isinstance(raised.value.__cause__, RecordPurgedError)
        await producer.abort_transaction()
        await producer.close()

    assert [request.committed for request in run(body).asked(26)] == [False]
