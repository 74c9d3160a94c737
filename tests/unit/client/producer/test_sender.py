"""The producer's sender against a scripted broker: order, sequences, retries, and what is called data loss."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencepost.client.net.cluster import Cluster
from fencepost.client.producer.core import ProducerCore
from fencepost.client.producer.partition_queue import PartitionQueue
from fencepost.client.producer.ready_batches import ReadyBatches
from fencepost.config import ProducerConfig
from fencepost.errors import (
    ClosedError,
    DataLossError,
    FailureType,
    FatalError,
    KafkaError,
    KafkaTimeoutError,
    ProduceFailedError,
    RecordRejectedError,
    UnsupportedVersionError,
)
from fencepost.protocol.records.batch import add_sequence
from tests.unit.client.scripted import ScriptedBroker, World, cut, run

METADATA, NOT_LEADER = 3, 6


def test_batches_go_out_in_order_and_numbered() -> None:
    async def body(world: World) -> None:
        producer = world.producer()
        sent = []
        for number in range(7):
            sent.append(producer.append("t", b"v%d" % number))
            await world.runtime.sleep_ms(1)
        outcomes = [await world.outcome(delivery) for delivery in sent]
        assert [outcome.offset for outcome in outcomes] == list(range(7))
        await producer.close()

    broker = run(body)
    assert sum(count for *_, count in broker.batches) == 7
    expected = 0
    for producer_id, epoch, sequence, count in broker.batches:
        assert (producer_id, epoch, sequence) == (71, 0, expected)
        expected += count


def test_a_flush_right_after_a_record_costs_no_turn_of_the_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Called from another thread, both reach the loop together, and the flush begins as a task."""
    turns: list[int] = []
    expire = ReadyBatches.expire

    def counted(self: ReadyBatches, now_ms: int) -> None:
        turns.append(now_ms)
        expire(self, now_ms)

    async def body(world: World) -> None:
        loop = asyncio.get_running_loop()
        config = ProducerConfig.make({"bootstrap_servers": "broker:9092"})
        producer = ProducerCore(Cluster(world.runtime, config), config, wake=loop.call_soon)
        await world.outcome(producer.append("t", b"first"))
        await world.runtime.sleep_ms(1_000)
        monkeypatch.setattr(ReadyBatches, "expire", counted)
        producer.append("t", b"second")
        flushes: list[asyncio.Task[None]] = []
        loop.call_soon(lambda: flushes.append(loop.create_task(producer.flush())))
        await asyncio.sleep(0)
        await flushes[0]
        assert len(turns) == 2, "one that sends the batch, and one after its answer"
        await producer.close()

    run(body)


def test_a_lost_answer_sends_the_same_sequence_again() -> None:
    async def body(world: World) -> None:
        world.broker.scripts[0].append(cut)
        producer = world.producer()
        assert (await world.outcome(producer.append("t", b"v"))).offset == 0
        await producer.close()

    broker = run(body)
    assert broker.batches == [(71, 0, 0, 1), (71, 0, 0, 1)]
    assert broker.connections >= 2


def test_the_first_broker_of_a_cluster_may_be_number_0() -> None:
    """As in Kafka's own documentation: ids count from 0."""

    async def body(world: World) -> None:
        producer = world.producer()
        assert (await world.outcome(producer.append("t", b"v"))).offset == 0
        await producer.close()

    run(body, ScriptedBroker(node_id=0))


@pytest.mark.parametrize("code", [31, 35])
def test_who_may_not_produce_at_all_is_not_asked_for_more(code: int) -> None:
    """As in Java, a ClusterAuthorizationException or UnsupportedVersionException ends the producer."""

    async def body(world: World) -> None:
        producer = world.producer()
        world.broker.refuse_produce(code)
        failed = await world.outcome(producer.append("t", b"v"))
        with pytest.raises(KafkaError) as raised:
            producer.append("t", b"w")
        assert raised.value.code == failed.__cause__.code == code
        await producer.close()

    run(body)


def test_what_is_refused_again_and_again_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """While it lasts, and when it is over: nobody looks at futures that do not end."""

    async def body(world: World) -> None:
        world.broker.refuse_produce(19, times=4)
        producer = world.producer(retry_backoff_ms=600)
        with caplog.at_level("INFO", logger="fencepost.client"):
            assert (await world.outcome(producer.append("t", b"v"))).offset == 0
        await producer.close()

    run(body)
    reported = [record.getMessage() for record in caplog.records if "(19)" in record.getMessage()]
    assert reported and "times in" in reported[0]


def test_keys_decide_also_beside_records_without_one() -> None:
    """The hashes are those of Kafka's own UtilsTest.testMurmur2."""
    hashes = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}
    keys = [b"21", None, b"foobar", None, b"abc"]

    async def body(world: World) -> None:
        producer = world.producer()
        sent = [producer.append("t", b"v", key) for key in keys]
        chosen = [(await world.outcome(delivery)).partition for delivery in sent]
        for key, partition in zip(keys, chosen, strict=True):
            assert partition in ([0, 1, 2] if key is None else [(hashes[key] & 0x7FFFFFFF) % 3])
        await producer.close()

    run(body, ScriptedBroker(partitions=3))


@pytest.mark.parametrize("code", [3, 5, 6, 7, 19, 20, 56])
def test_retriable_codes_are_retried_with_new_metadata(code: int) -> None:
    async def body(world: World) -> None:
        world.broker.refuse_produce(code, times=2)
        producer = world.producer()
        before = len(world.broker.asked(3))
        assert (await world.outcome(producer.append("t", b"v"))).offset == 0
        assert len(world.broker.asked(3)) > before
        await producer.close()

    assert run(body).batches == [(71, 0, 0, 1)] * 3


@pytest.mark.parametrize(("code", "may_be_there"), [(6, True), (7, True), (19, False), (20, True), (56, True)])
def test_a_sequence_that_may_be_in_the_log_is_not_given_to_another_batch(code: int, may_be_there: bool) -> None:
    """Given up after refusals that may have come after the append: another batch under its sequence would be taken for
    its duplicate, and acknowledged without being there."""

    async def body(world: World) -> None:
        producer = world.producer(delivery_timeout_ms=1_000, request_timeout_ms=500)
        await world.outcome(producer.append("t", b"first"))
        world.broker.refuse_produce(code, times=10_000)
        assert str(code) in str(await world.outcome(producer.append("t", b"given up")))
        world.broker.scripts[0].clear()
        assert (await world.outcome(producer.append("t", b"next"))).offset >= 0
        await producer.close()

    producer_id, epoch, sequence, _ = run(body).batches[-1]
    taken_over = (producer_id, epoch, sequence) == (71, 0, 1)
    assert taken_over is not may_be_there


@pytest.mark.parametrize("code", [10, 29, 87])
@pytest.mark.parametrize("records", [1, 2])
def test_a_refusal_does_not_undo_what_an_unanswered_attempt_may_have_done(code: int, records: int) -> None:
    """The rights were taken away, or the topic's settings changed, after the append whose answer was lost."""

    async def body(world: World) -> None:
        producer = world.producer(linger_ms=5)
        world.broker.scripts[0].append(cut)
        world.broker.refuse_produce(code)
        for failed in [
            await world.outcome(delivery) for delivery in [producer.append("t", b"lost") for _ in range(records)]
        ]:
            assert isinstance(failed, ProduceFailedError)
            assert (failed.code, failed.outcome_unknown) == (code, True)
        for sent in [producer.append("t", b"next") for _ in range(records)]:
            assert (await world.outcome(sent)).offset >= 0
        await producer.close()

    assert run(body).batches == [(71, 0, 0, records)] * 2 + [(71, 1, 0, records)]


@pytest.mark.parametrize("code", [45, 59])
def test_a_sequence_that_is_always_refused_is_tried_with_pauses_and_told(code: int) -> None:
    """Each attempt takes another epoch."""

    async def body(world: World) -> None:
        world.broker.refuse_produce(code, times=10_000)
        producer = world.producer(delivery_timeout_ms=10_000)
        error = await world.outcome(producer.append("t", b"v"))
        assert f"({code})" in str(error)
        await producer.close()

    assert 3 <= len(run(body).batches) <= 20


def test_a_broker_that_is_too_old_to_be_sent_to_is_told_as_that() -> None:
    async def body(world: World) -> None:
        world.broker.offered[0] = (0, 2)
        producer = world.producer(enable_idempotence=False)
        sent = [producer.append(topic, b"v") for topic in ("t", "t", "u")]
        errors = [await world.outcome(delivery) for delivery in sent]
        assert [type(error.__cause__) for error in errors] == [UnsupportedVersionError] * 3
        assert "offers Produce in 0-2, needed are 3-13" in str(errors[0])
        with pytest.raises(UnsupportedVersionError):
            producer.append("t", b"v")
        await producer.close()

    assert run(body).batches == []


def test_a_defect_of_the_client_is_told_of_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async def body(world: World) -> None:
        producer = world.producer()
        monkeypatch.setattr("fencepost.client.producer.batching.Router.route", broken)
        sent = [producer.append("t", b"0"), producer.append("u", b"1")]
        for delivery in sent:
            assert "the sender failed: ZeroDivisionError()" in str(await world.outcome(delivery))
        with pytest.raises(FatalError, match="the sender failed"):
            producer.append("t", b"2")
        await producer.close()

    run(body)


def test_what_was_in_flight_behind_a_failure_follows_in_order() -> None:
    """Five in flight, the first fails: 45 for those behind it is no loss, and everything arrives in order."""

    async def body(world: World) -> None:
        producer = world.producer(batch_size=30)
        await world.outcome(producer.append("t", b"v"))
        world.broker.refuse_produce(6)
        world.broker.refuse_produce(45, times=4)
        sent = [producer.append("t", b"x" * 20) for _ in range(5)]
        outcomes = [await world.outcome(delivery) for delivery in sent]
        assert [outcome.offset for outcome in outcomes] == [1, 2, 3, 4, 5]
        await producer.close()

    broker = run(body)
    assert [sequence for *_, sequence, _ in broker.batches[1:6]] == [1, 2, 3, 4, 5]
    assert [sequence for *_, sequence, _ in broker.batches[6:]] == [1, 2, 3, 4, 5]


def test_the_first_batch_of_a_producer_id_goes_alone() -> None:
    """Apache Kafka takes any sequence from an id it does not know: a second batch could pass a refused first one."""

    async def body(world: World) -> None:
        world.broker.refuse_produce(6)
        producer = world.producer(batch_size=30)
        await producer.partitions_for("t")
        sent = [producer.append("t", b"x" * 20) for _ in range(5)]
        outcomes = [await world.outcome(delivery) for delivery in sent]
        assert [outcome.offset for outcome in outcomes] == [0, 1, 2, 3, 4]
        await producer.close()

    assert [sequence for *_, sequence, _ in run(body).batches] == [0, 0, 1, 2, 3, 4]


@pytest.mark.parametrize(("same_id", "introduced"), [(True, True), (False, False)])
def test_a_new_epoch_of_an_id_needs_no_introduction(same_id: bool, introduced: bool) -> None:
    """A broker that knows the id takes nothing but sequence 0 from a new epoch."""
    queue = PartitionQueue("t", 0)
    assert not queue.introduced
    queue.introduced = True
    queue.restart(same_id=same_id)
    assert queue.introduced is introduced


@pytest.mark.parametrize("most", [1, 2])
def test_no_more_requests_are_under_way_than_allowed(most: int) -> None:
    """max.in.flight.requests.per.connection; the answers to these never come."""

    async def body(world: World) -> None:
        producer = world.producer(max_in_flight_requests_per_connection=most)
        for partition in range(4):  # introduces the producer id everywhere
            await world.outcome(producer.append("t", b"v", partition=partition))
        before = len(world.broker.asked(0))
        world.broker.scripts[0] += [lambda version, request: None] * 4
        for partition in range(4):
            producer.append("t", b"w", partition=partition)
            await world.runtime.sleep_ms(10)
        assert len(world.broker.asked(0)) - before == most
        with pytest.raises(ProduceFailedError, match="records not delivered: 4"):
            await producer.close(timeout_ms=0)

    run(body, ScriptedBroker(partitions=4))


def test_46_is_success_without_an_offset() -> None:
    async def body(world: World) -> None:
        world.broker.refuse_produce(46)
        producer = world.producer()
        assert (await world.outcome(producer.append("t", b"v"))).offset == -1
        assert (await world.outcome(producer.append("t", b"w"))).offset == 0
        await producer.close()

    assert [sequence for *_, sequence, _ in run(body).batches] == [0, 1]


def test_45_next_in_line_is_data_loss() -> None:
    async def body(world: World) -> None:
        producer = world.producer()
        await world.outcome(producer.append("t", b"v"))
        world.broker.refuse_produce(45, times=2)
        failed = await world.outcome(producer.append("t", b"w"))
        assert isinstance(failed, ProduceFailedError)
        loss = failed.__cause__
        assert isinstance(loss, DataLossError)
        assert (loss.topic, loss.partition, loss.last_acked_offset) == ("t", 0, 0)
        with pytest.raises(DataLossError):
            producer.append("t", b"x")
        await producer.close()

    run(body)


def test_59_after_retention_begins_a_new_epoch_and_loses_nothing() -> None:
    """Log start offset beyond the last acknowledged one: retention removed it (KIP-185's follow-up, KIP-360)."""

    async def body(world: World) -> None:
        producer = world.producer()
        assert (await world.outcome(producer.append("t", b"v"))).offset == 0
        world.broker.refuse_produce(59, log_start=5)
        assert (await world.outcome(producer.append("t", b"w"))).offset == 1
        await producer.close()

    assert run(body).batches == [(71, 0, 0, 1), (71, 0, 1, 1), (71, 1, 0, 1)]


@pytest.mark.parametrize("log_start", [0, -1])
def test_59_without_retention_is_data_loss(log_start: int) -> None:
    async def body(world: World) -> None:
        producer = world.producer()
        assert (await world.outcome(producer.append("t", b"v"))).offset == 0
        world.broker.refuse_produce(59, log_start=log_start, times=2)
        failed = await world.outcome(producer.append("t", b"w"))
        assert isinstance(failed.__cause__, DataLossError)
        assert failed.__cause__.log_start_offset == log_start
        await producer.close()

    run(body)


def test_a_batch_that_is_too_large_is_halved() -> None:
    async def body(world: World) -> None:
        world.broker.refuse_produce(10)
        producer = world.producer(linger_ms=5)
        sent = [producer.append("t", b"%d" % number) for number in range(4)]
        assert [(await world.outcome(delivery)).offset for delivery in sent] == [0, 1, 2, 3]
        await producer.close()

    assert [(sequence, count) for *_, sequence, count in run(body).batches] == [(0, 4), (0, 2), (2, 2)]


def test_two_batches_in_flight_that_are_too_large_keep_their_order() -> None:
    async def body(world: World) -> None:
        producer = world.producer(linger_ms=5, batch_size=100)
        await world.outcome(producer.append("t", b"first"))
        world.broker.refuse_produce(10, times=2)
        sent = [producer.append("t", b"%d" % number * 20) for number in range(6)]
        assert [(await world.outcome(delivery)).offset for delivery in sent] == [1, 2, 3, 4, 5, 6]
        await producer.close()

    assert [count for *_, count in run(body).batches][:3] == [1, 3, 3]


def test_a_record_that_is_too_large_is_rejected_and_the_next_takes_its_sequence() -> None:
    async def body(world: World) -> None:
        world.broker.refuse_produce(10)
        producer = world.producer()
        failed = await world.outcome(producer.append("t", b"large"))
        assert failed.failure_type is FailureType.MESSAGE_REJECTED
        assert isinstance(failed.__cause__, RecordRejectedError)
        assert (await world.outcome(producer.append("t", b"next"))).offset == 0
        await producer.close()

    assert [sequence for *_, sequence, _ in run(body).batches] == [0, 0]


def test_delivery_timeout_without_any_broker() -> None:
    async def body(world: World) -> None:
        producer = world.producer(delivery_timeout_ms=4000, max_block_ms=3000)
        world.broker.refuses_connections = True
        begun_ms = world.runtime.now_ms()
        failed = await world.outcome(producer.append("t", b"v"))
        assert isinstance(failed.__cause__, KafkaTimeoutError)
        assert failed.failure_type is FailureType.DELIVERY_FAILED
        assert 2900 <= world.runtime.now_ms() - begun_ms <= 4500
        await producer.close()

    run(body)


@pytest.mark.parametrize(("epoch", "then"), [(0, (71, 1, 0, 1)), (32_767, (72, 0, 0, 1))])
def test_an_unanswered_batch_ends_and_its_epoch_with_it(epoch: int, then: tuple[int, ...]) -> None:
    """Expect another epoch or producer id after an unanswered batch, because its sequence may be in the log.

    The batches behind it begin again under the same producer id, as long as that has another epoch. The log refuses the
    unanswered batch if it arrives behind them.
    """

    async def body(world: World) -> None:
        producer = world.producer(delivery_timeout_ms=5000, request_timeout_ms=2000)
        assert (await world.outcome(producer.append("t", b"u"))).offset == 0
        producer.sender.take_identity(71, epoch)
        world.broker.scripts[0] += [lambda _, __: None] * 3
        failed = await world.outcome(producer.append("t", b"v"))
        assert isinstance(failed.__cause__, KafkaTimeoutError)
        assert failed.__cause__.outcome_unknown
        world.broker.scripts[0].clear()
        assert (await world.outcome(producer.append("t", b"w"))).offset == 1
        await producer.close()

    assert run(body).batches[-1] == then


@pytest.mark.parametrize(("timeout_ms", "held_ms"), [(30_000, 29_000), (1_000, 500), (1, 1)])
def test_a_silent_leader_holds_up_a_batch_for_the_request_timeout(timeout_ms: int, held_ms: int) -> None:
    """As in Java. A longer wait would hold up the partition after another node has become its leader."""

    async def body(world: World) -> None:
        producer = world.producer(request_timeout_ms=timeout_ms)
        assert (await world.outcome(producer.append("t", b"u"))).offset == 0
        world.broker.scripts[0] += [lambda _, __: None]
        begun_ms = world.runtime.now_ms()
        assert (await world.outcome(producer.append("t", b"v"))).offset == 1
        assert timeout_ms <= world.runtime.now_ms() - begun_ms < timeout_ms + 500
        await producer.close()

    asked = run(body).asked(0)
    assert [request.timeout_ms for request in asked] == [held_ms] * 3


def test_acks_0_does_not_wait_for_answers() -> None:
    broker = ScriptedBroker()
    broker.scripts[0] += [lambda _, __: None]

    async def body(world: World) -> None:
        producer = world.producer(acks=0, enable_idempotence=False)
        assert (await world.outcome(producer.append("t", b"v"))).offset == -1
        await producer.close()

    assert run(body, broker).batches == [(-1, -1, -1, 1)]


def test_sequences_wrap_to_0() -> None:
    """Kafka's DefaultRecordBatch.incrementSequence: after 2**31 - 1 comes 0."""
    assert add_sequence(2**31 - 1, 1) == 0
    queue = PartitionQueue("t", 0)
    queue.next_sequence = 2**31 - 1

    class Numbered:
        sequence = -1
        count = 2

    queue.number(Numbered())  # type: ignore[arg-type]
    assert queue.next_sequence == 1


def test_flush_waits_for_everything_sent_before() -> None:
    async def body(world: World) -> None:
        producer = world.producer(linger_ms=60_000)
        sent = [producer.append(topic, b"v") for topic in ("a", "b", "a")]
        begun_ms = world.runtime.now_ms()
        await producer.flush(5000)
        assert world.runtime.now_ms() - begun_ms < 1000
        assert all(chunk.outcome(index) is not None for chunk, index in sent)
        await producer.close()

    run(body)


def test_flush_gives_up_in_time() -> None:
    async def body(world: World) -> None:
        world.broker.scripts[0] += [lambda _, __: None] * 50
        producer = world.producer()
        producer.append("t", b"v")
        begun_ms = world.runtime.now_ms()
        with pytest.raises(KafkaTimeoutError):
            await producer.flush(700)
        assert 700 <= world.runtime.now_ms() - begun_ms < 800
        with pytest.raises(ProduceFailedError, match="closed before"):
            await producer.close(0)

    run(body)


def test_the_end_of_a_partition_that_cannot_be_asked_for_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """ListOffsets is not offered; the record itself is delivered."""

    async def body(world: World) -> None:
        world.broker.refuse_produce(46)
        producer = world.producer()
        assert (await world.outcome(producer.append("t", b"v"))).offset == -1
        await world.runtime.sleep_ms(10)
        assert isinstance(producer.cluster.lasting_errors.latest(), UnsupportedVersionError)
        await producer.close()

    run(body)


def test_a_topic_without_a_leader_is_asked_for_with_pauses() -> None:
    """20 ms, then twice as long each time, up to 640."""
    broker = ScriptedBroker(node_id=-1)

    async def body(world: World) -> None:
        producer = world.producer(delivery_timeout_ms=60_000)
        sent = producer.append("t", b"v")
        await world.runtime.sleep_ms(20_000)
        asked = len(world.broker.asked(METADATA))
        assert 20_000 / 640 <= asked <= 20_000 / 640 + 10
        assert sent[0].outcome(sent[1]) is None
        with pytest.raises(ProduceFailedError):
            await producer.close(0)

    run(body, broker)


def test_an_answer_that_comes_after_the_end_of_the_sender_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The record was told to be of unknown fate, and is told so once."""

    async def body(world: World) -> None:
        producer = world.producer()

        def answered_too_late(version: int, request: Any) -> Any:
            producer.sender._task.cancel()  # type: ignore[union-attr]
            return world.broker.produced(request)

        world.broker.scripts[0].append(answered_too_late)
        failed = await world.outcome(producer.append("t", b"v"))
        assert "cancelled" in str(failed)
        await world.runtime.sleep_ms(100)
        counted = producer.metrics()
        assert (counted["record_send_total"], counted["record_error_total"]) == (0, 1)

    run(body)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_producer_whose_sender_is_gone_does_not_claim_an_id() -> None:
    """Nothing that it is given would ever be sent."""

    async def body(world: World) -> None:
        producer = world.producer(transactional_id="x")
        await world.runtime.sleep_ms(1)
        producer.sender._task.cancel()  # type: ignore[union-attr]
        await world.runtime.sleep_ms(1)
        with pytest.raises(ClosedError, match="the task was cancelled"):
            await producer.init_transactions()
        await producer.close(0)

    broker = run(body)
    assert broker.asked(22) == []


def test_the_pause_between_looks_at_metadata_begins_anew_after_a_success() -> None:
    """Leaders move now and then: the tenth time is found out as soon as the first."""
    looks: list[int] = []

    async def body(world: World) -> None:
        broker = world.broker
        producer = world.producer()
        assert (await world.outcome(producer.append("t", b"0"))).offset == 0
        for number in range(1, 6):
            before, moved_ms = len(broker.asked(METADATA)), world.runtime.now_ms() + 300

            def moving(version: int, request: Any, until_ms: float = moved_ms) -> Any:
                return broker.produced(request, code=NOT_LEADER if world.runtime.now_ms() < until_ms else 0)

            broker.answer_0 = moving  # type: ignore[method-assign]
            assert (await world.outcome(producer.append("t", b"v"))).offset == number
            looks.append(len(broker.asked(METADATA)) - before)
            await world.runtime.sleep_ms(2_000)  # the last pause is over
        await producer.close()

    run(body)
    assert min(looks) >= 3, looks
