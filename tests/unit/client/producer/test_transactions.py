"""A transactional producer against a scripted broker: both protocols, timeouts and fencing, unanswered commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.client.prepared import PreparedTransaction
from fencepost.client.producer.core import ProducerCore
from fencepost.client.producer.transaction_states import ProducerTxnState
from fencepost.client.types import GroupMetadata, TopicPartition
from fencepost.errors import (
    AbortableError,
    ClosedError,
    DataLossError,
    FailureType,
    GroupFencedError,
    InvalidProducerIdMappingError,
    KafkaError,
    KafkaTimeoutError,
    ProduceFailedError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
    TransactionCommitFailedError,
    TransactionTimedOutError,
    UnsupportedVersionError,
    UsageError,
)
from fencepost.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from fencepost.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from fencepost.protocol.messages.end_txn import EndTxnResponse
from fencepost.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.unit.client.scripted import ScriptedBroker, World, run, topic_id

INIT, ADD_PARTITIONS, ADD_OFFSETS, END, OFFSETS = 22, 24, 25, 26, 28


async def started(world: World, **settings: Any) -> ProducerCore:
    producer = world.producer(transactional_id="x", **settings)
    await producer.init_transactions()
    return producer


def refuse_end(broker: ScriptedBroker, code: int) -> None:
    broker.scripts[END].append(lambda _, __: EndTxnResponse(error_code=code))


def answer_init(broker: ScriptedBroker, code: int, producer_id: int = -1, epoch: int = -1) -> None:
    broker.scripts[INIT].append(
        lambda _, __: InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)
    )


def test_protocol_2_takes_the_epoch_from_each_end() -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        for _ in range(3):
            producer.begin_transaction()
            producer.append("t", b"v")
            await producer.commit_transaction()
        await producer.close()

    broker = run(body)
    assert broker.batches == [(70, 0, 0, 1), (70, 1, 0, 1), (70, 2, 0, 1)]
    assert [(end.producer_epoch, end.committed) for end in broker.asked(END)] == [(0, True), (1, True), (2, True)]
    assert broker.asked(ADD_PARTITIONS) == []
    assert broker.versions(0) == {13}
    assert broker.versions(END) == {5}


def partition_refused(code: int) -> Any:
    result = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[result])
    return lambda version, request: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


@pytest.mark.parametrize("level", [0, 1])
def test_protocol_1_enlists_first_and_keeps_the_epoch(level: int) -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        for number in range(2):
            producer.begin_transaction()
            producer.append("t", b"v")
            await producer.send_offsets_to_transaction({TopicPartition("in", 0): number}, "group")
            await producer.commit_transaction()
        await producer.close()

    broker = run(body, ScriptedBroker(transaction_version=level))
    assert broker.batches == [(70, 0, 0, 1), (70, 0, 1, 1)]
    assert [request.v3_and_below_topics[0].partitions for request in broker.asked(ADD_PARTITIONS)] == [(0,), (0,)]
    assert [request.group_id for request in broker.asked(ADD_OFFSETS)] == ["group", "group"]
    assert max(broker.versions(0)) <= 11
    assert max(broker.versions(END)) <= 4
    assert max(broker.versions(OFFSETS)) <= 4
    order = [key for key, _, _ in broker.requests if key in (0, ADD_PARTITIONS, END)]
    assert order == [ADD_PARTITIONS, 0, END] * 2


def test_protocol_1_aborts_with_a_new_epoch() -> None:
    """Dropped batches left gaps in the sequences of the old one."""

    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        await world.outcome(producer.append("t", b"v"))
        await producer.abort_transaction()
        assert producer.producer_epoch == 1
        producer.begin_transaction()
        producer.append("t", b"w")
        await producer.commit_transaction()
        await producer.close()

    broker = run(body, ScriptedBroker(transaction_version=1))
    assert broker.batches == [(70, 0, 0, 1), (70, 1, 0, 1)]
    assert [(request.producer_id, request.producer_epoch) for request in broker.asked(INIT)] == [(-1, -1), (70, 0)]


@pytest.mark.parametrize("level", [0, 1])
def test_no_partition_is_added_after_the_end_of_its_transaction(level: int) -> None:
    """It would open a transaction that nobody knows of: the next epoch asked for would find it, and be fenced."""

    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        producer.append("t", b"dropped")
        while len(broker.asked(ADD_PARTITIONS)) < 3:
            await world.runtime.sleep_ms(1)
        await producer.abort_transaction()
        asked = len(broker.asked(ADD_PARTITIONS))
        await world.runtime.sleep_ms(60_000)
        assert len(broker.asked(ADD_PARTITIONS)) == asked
        broker.scripts[ADD_PARTITIONS].clear()
        producer.begin_transaction()
        producer.append("t", b"kept")
        await producer.commit_transaction()
        await producer.close()

    broker = ScriptedBroker(transaction_version=level)
    broker.scripts[ADD_PARTITIONS] += [partition_refused(51)] * 1_000
    run(body, broker)
    assert broker.batches == [(70, 1, 0, 1)]
    assert [key for key, _, _ in broker.requests if key in (0, END)] == [END, 0, END]


def test_empty_transactions_ask_nothing() -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        await producer.commit_transaction()
        producer.begin_transaction()
        await producer.abort_transaction()
        await producer.abort_transaction()
        await producer.close()

    assert run(body).asked(END) == []


@pytest.mark.parametrize("code", [47, 48, 59, 90, 120])
def test_a_timed_out_transaction_is_told_from_fencing_on_commit(code: int) -> None:
    """R1: InitProducerId(pid, epoch) is answered, so it was a timeout: abort, go on with the same producer."""

    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        producer.append("t", b"v")
        refuse_end(world.broker, code)
        with pytest.raises(TransactionCommitFailedError) as raised:
            await producer.commit_transaction()
        assert isinstance(raised.value.__cause__, TransactionTimedOutError)
        await producer.abort_transaction()
        producer.begin_transaction()
        producer.append("t", b"w")
        await producer.commit_transaction()
        await producer.close()

    broker = run(body)
    asked = broker.asked(INIT)[-1]
    assert (asked.producer_id, asked.producer_epoch) == (70, 0)
    assert broker.batches == [(70, 0, 0, 1), (70, 1, 0, 1)]
    # The refused commit and the second transaction's; the answered question already aborted the first.
    assert [(request.producer_epoch, request.committed) for request in broker.asked(END)] == [(0, True), (1, True)]


@pytest.mark.parametrize("code", [47, 90])
@pytest.mark.parametrize("level", [1, 2])
def test_a_fenced_producer_is_done(code: int, level: int) -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        producer.append("t", b"v")
        refuse_end(world.broker, code)
        answer_init(world.broker, 90)
        with pytest.raises(ProducerFencedError) as raised:
            await producer.commit_transaction()
        assert "timed out" not in str(raised.value), "it was not open for long enough"
        for call in (producer.commit_transaction, producer.abort_transaction, producer.init_transactions):
            with pytest.raises(ProducerFencedError):
                await call()
        with pytest.raises(ProducerFencedError):
            producer.append("t", b"w")
        assert producer.metrics()["producer_fenced_total"] == 1
        await producer.close()

    run(body, ScriptedBroker(transaction_version=level))


@pytest.mark.parametrize("code", [47, 48, 49, 90, 120])
def test_refused_records_are_told_by_the_next_call(code: int) -> None:
    """Nobody has to look at futures in a transaction (KIP-691); 90 from a partition leader is abortable as well."""

    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        world.broker.refuse_produce(code)
        failed = await world.outcome(producer.append("t", b"v"))
        assert failed.failure_type is FailureType.TRANSACTION_FAILED
        with pytest.raises(TransactionCommitFailedError) as raised:
            await producer.commit_transaction()
        assert isinstance(raised.value.__cause__, TransactionTimedOutError)
        await producer.abort_transaction()
        assert producer.transactions is not None
        assert producer.transactions.state is ProducerTxnState.READY
        await producer.close()

    assert all(not request.committed for request in run(body).asked(END))


def test_abort_right_after_a_timeout_needs_no_end_txn() -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        world.broker.refuse_produce(47)
        await world.outcome(producer.append("t", b"v"))
        await producer.abort_transaction()
        assert producer.producer_epoch == 1
        await producer.close()

    broker = run(body)
    assert broker.asked(END) == []
    assert len(broker.asked(INIT)) == 2


def test_what_comes_back_from_the_wire_is_not_sent_in_the_next_transaction() -> None:
    async def body(world: World) -> None:
        producer = await started(world, request_timeout_ms=1000)
        producer.begin_transaction()
        world.broker.scripts[0].append(lambda _, __: None)
        late = producer.append("other", b"late")
        await world.runtime.sleep_ms(20)
        await producer.abort_transaction()
        assert (await world.outcome(late)).failure_type is FailureType.TRANSACTION_FAILED
        before = len(world.broker.batches)
        producer.begin_transaction()
        producer.append("t", b"next")
        await producer.commit_transaction()
        assert len(world.broker.batches) == before + 1
        assert [partition.topic_id for partition in world.broker.asked(0)[-1].partitions] == [topic_id("t")]
        await producer.close()

    run(body)


@pytest.mark.parametrize(
    ("code", "expected"), [(49, InvalidProducerIdMappingError), (53, TransactionalIdAuthorizationError)]
)
def test_final_answers_to_commit_are_raised_as_they_are(code: int, expected: type[Exception]) -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        producer.append("t", b"v")
        refuse_end(world.broker, code)
        with pytest.raises(expected):
            await producer.commit_transaction()
        with pytest.raises(expected):
            producer.append("t", b"v")
        await producer.close()

    run(body)


@pytest.mark.parametrize("code", [14, 15, 16, 51])
def test_a_coordinator_that_is_not_ready_is_waited_for(code: int) -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        producer.append("t", b"v")
        for _ in range(3):
            refuse_end(world.broker, code)
        await producer.commit_transaction()
        await producer.close()

    assert [request.producer_epoch for request in run(body).asked(END)] == [0, 0, 0, 0]


@pytest.mark.parametrize("code", [22, 25, 82])
def test_a_stale_group_member_cannot_commit_offsets(code: int) -> None:
    """KIP-447."""

    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        world.broker.scripts[OFFSETS].append(lambda _, request: world.broker.offsets_committed(request, code))
        with pytest.raises(GroupFencedError):
            await producer.send_offsets_to_transaction({TopicPartition("in", 0): 5}, GroupMetadata("g", 3, "m"))
        with pytest.raises(TransactionCommitFailedError) as raised:
            await producer.commit_transaction()
        assert isinstance(raised.value.__cause__, GroupFencedError)
        await producer.abort_transaction()
        await producer.close()

    (asked,) = run(body).asked(OFFSETS)
    assert (asked.group_id, asked.generation_id, asked.member_id) == ("g", 3, "m")


@pytest.mark.parametrize(
    ("transaction_version", "api_key", "refusal"),
    [
        (2, OFFSETS, lambda world, request: world.broker.offsets_committed(request, 53)),
        (1, ADD_OFFSETS, lambda world, request: AddOffsetsToTxnResponse(error_code=53)),
        (1, OFFSETS, lambda world, request: world.broker.offsets_committed(request, 53)),
    ],
)
def test_a_fatal_refusal_of_offsets_is_raised_at_once(
    transaction_version: int, api_key: int, refusal: Callable[[World, Any], Any]
) -> None:
    """And nothing is committed without them: what they cover would come again."""

    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        producer.append("t", b"v")
        world.broker.scripts[api_key].append(lambda _, request: refusal(world, request))
        with pytest.raises(TransactionalIdAuthorizationError):
            await producer.send_offsets_to_transaction({TopicPartition("in", 0): 5}, "g")
        with pytest.raises(TransactionalIdAuthorizationError):
            await producer.commit_transaction()
        await producer.close(0)

    broker = run(body, ScriptedBroker(transaction_version=transaction_version))
    assert len(broker.asked(api_key)) == 1
    assert not [end for end in broker.asked(END) if end.committed]


def test_a_member_is_not_hidden_from_a_broker_that_cannot_check_it() -> None:
    """A downgrade raises: below TxnOffsetCommit v3 the generation would not be fenced (KIP-447)."""
    broker = ScriptedBroker(transaction_version=0)
    broker.offered[OFFSETS] = (0, 2)

    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        with pytest.raises(UnsupportedVersionError):
            await producer.send_offsets_to_transaction({TopicPartition("in", 0): 5}, GroupMetadata("g", 3, "m"))
        await producer.close(0)

    run(body, broker)


@pytest.mark.parametrize(("code", "timed_out"), [(59, True), (120, True), (47, True), (29, False)])
def test_enlisting_refused(code: int, timed_out: bool) -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        world.broker.scripts[ADD_PARTITIONS].append(partition_refused(code))
        producer.append("t", b"v")
        await world.runtime.sleep_ms(50)
        with pytest.raises(TransactionCommitFailedError) as raised:
            await producer.commit_transaction()
        assert isinstance(raised.value.__cause__, TransactionTimedOutError) is timed_out
        await producer.abort_transaction()
        await producer.close()

    assert run(body, ScriptedBroker(transaction_version=1)).batches == []


def test_two_phases() -> None:
    async def body(world: World) -> None:
        producer = await started(world, two_phase_commit=True)
        producer.begin_transaction()
        producer.append("t", b"v")
        prepared = await producer.prepare_transaction()
        assert str(prepared) == "70:0"
        with pytest.raises(UsageError):
            producer.append("t", b"w")
        with pytest.raises(UsageError):
            producer.begin_transaction()
        assert await producer.complete_transaction("70:0") is True
        producer.begin_transaction()
        producer.append("t", b"v")
        await producer.prepare_transaction()
        assert await producer.complete_transaction(prepared) is False
        await producer.close()

    broker = run(body)
    (asked,) = broker.asked(INIT)
    assert (asked.enable2_pc, asked.keep_prepared_txn) == (True, False)
    assert broker.versions(INIT) == {6}
    assert [(request.producer_epoch, request.committed) for request in broker.asked(END)] == [(0, True), (1, False)]


def test_close_leaves_a_prepared_transaction_alone() -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        producer.append("t", b"v")
        await producer.prepare_transaction()
        await producer.close()

    assert run(body).asked(END) == []


def test_close_aborts_what_is_open() -> None:
    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        await world.outcome(producer.append("t", b"v"))
        await producer.close()

    assert [request.committed for request in run(body).asked(END)] == [False]


@pytest.mark.parametrize("same", [True, False])
def test_a_kept_transaction_is_completed_with_the_next_pair(same: bool) -> None:
    """KIP-939: the ongoing pair is compared, the next pair is what EndTxn carries."""

    def keep(version: int, request: Any) -> Any:
        return InitProducerIdResponse(
            producer_id=70, producer_epoch=9, ongoing_txn_producer_id=70, ongoing_txn_producer_epoch=4
        )

    async def body(world: World) -> None:
        producer = world.producer(transactional_id="x", two_phase_commit=True)
        world.broker.scripts[INIT].append(keep)
        note = await producer.init_transactions(keep_prepared=True)
        assert note == PreparedTransaction(70, 4)
        wanted = note if same else PreparedTransaction(70, 3)
        assert await producer.complete_transaction(wanted) is same
        await producer.close()

    (asked,) = run(body).asked(END)
    assert (asked.producer_id, asked.producer_epoch, asked.committed) == (70, 9, same)


def test_calls_out_of_turn_are_refused_in_words() -> None:
    async def body(world: World) -> None:
        producer = world.producer(transactional_id="x")
        with pytest.raises(UsageError, match="init_transactions"):
            producer.begin_transaction()
        with pytest.raises(UsageError):
            producer.append("t", b"v")
        await producer.init_transactions()
        with pytest.raises(UsageError, match="no transaction is open"):
            await producer.commit_transaction()
        producer.begin_transaction()
        with pytest.raises(UsageError, match="a transaction is open"):
            producer.begin_transaction()
        await producer.close()
        plain = world.producer()
        with pytest.raises(UsageError, match="transactional_id"):
            plain.begin_transaction()
        await plain.close()

    run(body)


def test_close_waits_no_longer_than_it_was_told() -> None:
    async def body(world: World) -> None:
        world.broker.scripts[26] += [lambda _, __: None] * 10
        producer = world.producer(transactional_id="x")
        await producer.init_transactions()
        producer.begin_transaction()
        assert (await world.outcome(producer.append("t", b"v"))).offset == 0
        begun_ms = world.runtime.now_ms()
        with pytest.raises(KafkaTimeoutError, match="abort of the open transaction"):
            await producer.close(1500)
        assert 1500 <= world.runtime.now_ms() - begun_ms < 2000
        with pytest.raises(ClosedError):
            producer.append("t", b"late")

    run(body)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("code", [47, 48, 59, 90, 120])
def test_an_accepted_new_epoch_proves_no_timeout(code: int, level: int) -> None:
    """Only a coordinator that has ended the transaction by itself does; otherwise what was met with first stands."""

    async def body(world: World) -> None:
        world.broker.ended_by_time = False
        producer = await started(world)
        producer.begin_transaction()
        await world.outcome(producer.append("t", b"v"))
        refuse_end(world.broker, code)
        with pytest.raises(TransactionCommitFailedError) as raised:
            await producer.commit_transaction()
        assert isinstance(raised.value.__cause__, AbortableError)
        assert not isinstance(raised.value.__cause__, TransactionTimedOutError)
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.close(0)

    run(body, ScriptedBroker(transaction_version=level))


@pytest.mark.parametrize("ended_by_time", [False, True])
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("code", [45, 59])
def test_a_loss_within_a_transaction_is_told_from_its_timeout(code: int, level: int, ended_by_time: bool) -> None:
    async def body(world: World) -> None:
        world.broker.ended_by_time = ended_by_time
        producer = await started(world)
        producer.begin_transaction()
        await world.outcome(producer.append("t", b"v"))
        world.broker.refuse_produce(code, log_start=-1, times=2)
        await world.outcome(producer.append("t", b"w"))
        with pytest.raises(KafkaError) as raised:
            await producer.commit_transaction()
        counted = producer.metrics()
        assert counted["data_loss_total"] == 1
        assert counted["transaction_timed_out_total"] == ended_by_time
        if ended_by_time:
            assert isinstance(raised.value.__cause__, TransactionTimedOutError)
        elif level == 2:  # sequences begin anew with each transaction: only records that are aborted can be missing
            assert isinstance(raised.value, TransactionCommitFailedError)
            assert isinstance(raised.value.__cause__, TransactionAbortableError)
            assert isinstance(raised.value.__cause__.__cause__, DataLossError)
        else:
            assert isinstance(raised.value, DataLossError)
        await producer.close(0)

    run(body, ScriptedBroker(transaction_version=level))


def test_a_coordinator_that_does_not_tell_why_fails_the_commit() -> None:
    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=2_000)
        producer.begin_transaction()
        world.broker.refuse_produce(47)
        await world.outcome(producer.append("t", b"v"))
        world.broker.scripts[22] += [lambda version, request: None] * 50
        with pytest.raises(TransactionCommitFailedError) as raised:
            await producer.commit_transaction()
        assert not raised.value.outcome_unknown
        world.broker.scripts[22].clear()
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.close(0)

    run(body)


def test_what_is_told_is_the_last_real_answer() -> None:
    """A coordinator that says 14 for ever has executed nothing, and no request is sent that nobody waits for."""

    async def body(world: World) -> None:
        producer = await started(world, max_block_ms=2_000)
        producer.begin_transaction()
        await world.outcome(producer.append("t", b"v"))
        world.broker.scripts[26] += [lambda version, request: EndTxnResponse(error_code=14)] * 50
        with pytest.raises(TransactionCommitFailedError, match="COORDINATOR_LOAD_IN_PROGRESS") as raised:
            await producer.commit_transaction()
        assert not raised.value.outcome_unknown
        world.broker.scripts[26].clear()
        await producer.close(0)

    run(body)


def test_nobody_waits_for_records_of_a_transaction_that_failed() -> None:
    """One partition's final refusal ends what another partition would wait for until delivery_timeout_ms."""

    class Refusing(ScriptedBroker):
        def answer_0(self, version: int, request: Any) -> Any:
            reply = self.produced(request, code=6)
            for partition in reply.partitions:
                if partition.topic_id == topic_id("refused") or partition.topic == "refused":
                    partition.error_code = 29
            return reply

    async def body(world: World) -> None:
        producer = await started(world)
        producer.begin_transaction()
        producer.append("refused", b"v")
        waiting = producer.append("waits", b"v")
        began_ms = world.runtime.now_ms()
        with pytest.raises(TransactionCommitFailedError, match="TOPIC_AUTHORIZATION_FAILED"):
            await producer.commit_transaction()
        assert isinstance(await world.outcome(waiting), ProduceFailedError)
        assert world.runtime.now_ms() - began_ms < 5_000
        await producer.close()

    run(body, Refusing())
