"""The protocol's steps with the real client, without Spark: our broker and Apache Kafka, each with its abilities."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from fencepost.broker.embedded import Broker
from fencepost.client.net.connection import BrokerConnection
from fencepost.errors import ConfigurationError, PreparedTransactionLostError
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from fencepost.spark.errors import BatchTimedOutError, GuaranteeUnavailableError, SupersededError
from fencepost.spark.sink import plan, plan_steps
from fencepost.spark.sink.abilities import BrokerAbilities, Guarantee
from fencepost.spark.sink.decision import Content, Pair
from fencepost.spark.sink.plan_steps import AbortOutcome
from fencepost.spark.sink.repair import settle_lost_batch
from fencepost.spark.sink.runner import resolve_sink
from tests.spark.plan_by_hand import Bench
from tests.support.apache_kafka import ApacheKafka
from tests.support.older_kafka import OlderKafka
from tests.support.sink_abilities import KEEPING, ONE_PHASE, TWO_PHASE, VERSION_0


@pytest.fixture(scope="module")
def kafka_3() -> Iterator[ApacheKafka]:
    with OlderKafka("3.9.1") as kafka:
        yield kafka


def _kafka(abilities: BrokerAbilities, fixture: str, *more: pytest.MarkDecorator) -> ParameterSet:
    return pytest.param((abilities, fixture), marks=[pytest.mark.kafka, *more], id=fixture)


ARMS = [
    pytest.param((KEEPING, "own_broker"), id="fencepost"),
    pytest.param((VERSION_0, "own_broker_of_version_0"), id="fencepost_of_version_0"),
    _kafka(TWO_PHASE, "apache_kafka"),
    _kafka(VERSION_0, "kafka_of_version_0", pytest.mark.slow),
    _kafka(TWO_PHASE, "kafka_of_version_1", pytest.mark.slow),
    _kafka(VERSION_0, "kafka_3", pytest.mark.slow),
]


@pytest.fixture(params=ARMS)
def bench(request: pytest.FixtureRequest) -> Bench:
    abilities, fixture = request.param
    return Bench(request.getfixturevalue(fixture).bootstrap_servers, abilities)


def test_a_batch_is_invisible_until_it_is_committed_and_there_once_afterwards(bench: Bench) -> None:
    opened = bench.open()
    messages = [bench.task(opened, 0), bench.task(opened, 0)]
    assert len(bench.open_ids()) == 2
    assert bench.another_process().run(plan.commit_batch(bench.sink, 0, messages))
    assert bench.committed() == [0, 0]
    assert bench.open_ids() == []


def test_losers_do_not_outlive_their_batch_and_later_tasks_skip_what_is_decided(bench: Bench) -> None:
    opened = bench.open()
    winner, loser = bench.task(opened, 0), bench.task(opened, 0)
    assert isinstance(loser, plan_steps.PreparedTask)
    bench.runner.run(plan.commit_batch(bench.sink, 0, [winner]))
    assert bench.open_ids() == []
    late = bench.task(opened, 0)  # a speculative copy that only now gets to write
    assert isinstance(late, plan_steps.PreparedTask)
    assert bench.open_ids() == [late.transactional_id]
    again = bench.open()
    assert bench.open_ids() == []
    once = Content(1, 0)
    assert again.decided == (plan_steps.DecidedBatch(bench.query, 0, once),)
    assert bench.task(again, 0) == plan_steps.SkippedTask(bench.query, 0, once, once)
    assert bench.committed() == [0]


def test_a_decided_batch_is_completed_by_the_next_open(bench: Bench) -> None:
    opened = bench.open()
    message = bench.task(opened, 0)
    bench.decide(0, [message])
    assert len(bench.open_ids()) == 1
    resolved = resolve_sink(bench.servers, bench.sink)
    assert isinstance(message, plan_steps.PreparedTask)
    assert (resolved.committed, resolved.aborted) == ([message.transactional_id], [])
    assert (resolved.unknown, resolved.guarantee) == ([], bench.abilities.guarantee.value)
    assert bench.committed() == [0]


def test_an_older_run_cannot_decide_and_touches_nothing(bench: Bench) -> None:
    old = bench.open()
    stale = [bench.task(old, 0)]
    new = bench.open()
    fresh = [bench.task(new, 0)]
    with pytest.raises(SupersededError):
        bench.runner.run(plan.commit_batch(bench.sink, 0, stale))
    assert bench.runner.run(plan.abort_batch(bench.sink, stale)) is AbortOutcome.LEFT
    bench.runner.run(plan.commit_batch(bench.sink, 0, fresh))
    assert bench.committed() == [0]


def test_abort_settles_whether_the_batch_was_decided(bench: Bench) -> None:
    undecided = [bench.task(bench.open(), 0)]
    assert bench.runner.run(plan.abort_batch(bench.sink, undecided)) is AbortOutcome.ABORTED
    decided = [bench.task(bench.open(), 0)]
    bench.runner.run(plan.commit_batch(bench.sink, 0, decided))
    assert bench.runner.run(plan.abort_batch(bench.sink, decided)) is AbortOutcome.COMMITTED
    assert bench.committed() == [0]


def test_nothing_is_sent_to_a_broker_that_was_downgraded_below_kafka_3_6(
    own_broker_of_version_0: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(own_broker_of_version_0.bootstrap_servers, VERSION_0)
    runner = bench.another_process()
    opened = runner.open(bench.sink)
    message = bench.task(opened, 0)
    with monkeypatch.context() as taken_back:
        taken_back.setattr(BrokerConnection, "versions", property(_of_kafka_3_5, _set_versions), raising=False)
        for act in (
            lambda: bench.task(opened, 0),
            lambda: bench.runner.run(plan.commit_batch(bench.sink, 0, [message])),
            lambda: runner.open(bench.sink),
        ):
            with pytest.raises(GuaranteeUnavailableError, match="can no longer write exactly once"):
                act()
        with pytest.raises(GuaranteeUnavailableError, match="exactly-once is not possible"):
            runner.open(bench.sink)
    again = [bench.task(runner.open(bench.sink), 0)]
    assert bench.runner.run(plan.commit_batch(bench.sink, 0, again))
    assert (bench.committed(), bench.open_ids()) == ([0], [])


def _set_versions(connection: BrokerConnection, versions: dict[int, tuple[int, int]]) -> None:
    connection.__dict__["versions"] = versions


def _of_kafka_3_5(connection: BrokerConnection) -> dict[int, tuple[int, int]]:
    return {**connection.__dict__["versions"], AddPartitionsToTxnRequest.API_KEY: (0, 3)}


def test_a_claim_is_over_when_it_was_used_or_taken(bench: Bench) -> None:
    """Check the question of a task before and after it writes: it must learn that its batch has ended without it."""
    for end in ("commit", "abort", "newer run"):
        opened = bench.open()
        claim = opened.claim
        assert not bench.runner.is_over(bench.sink, claim)
        messages = [bench.task(opened, {"commit": 0, "abort": 1, "newer run": 2}[end])]
        assert not bench.runner.is_over(bench.sink, claim)
        if end == "commit":
            bench.another_process().run(plan.commit_batch(bench.sink, 0, messages))
        elif end == "abort":
            bench.another_process().run(plan.abort_batch(bench.sink, messages))
        else:
            bench.open()
        assert bench.runner.is_over(bench.sink, claim), end


def test_a_former_coordinator_does_not_end_a_claim(bench: Bench) -> None:
    """After a node has hung, it answers from its memory until it learns that another one has taken over."""
    known = bench.open().claim
    assert not bench.runner.is_over(bench.sink, Pair(known.producer_id, known.epoch + 1))
    assert bench.runner.is_over(bench.sink, Pair(known.producer_id, known.epoch - 1))


def test_a_decision_can_be_made_only_once_with_a_claim(bench: Bench) -> None:
    opened = bench.open()
    first, second = [bench.task(opened, 0)], [bench.task(opened, 0)]
    bench.runner.run(plan.commit_batch(bench.sink, 0, first))
    if bench.abilities == TWO_PHASE:
        # Between EndTxn's answer and the marker, Apache Kafka lets a batch of the old epoch join the finished
        # transaction (36 of 36 were seen to); our broker fences the partition before it answers.
        bench.wait_for_markers()
    with pytest.raises(SupersededError):
        bench.runner.run(plan.commit_batch(bench.sink, 0, second))
    bench.open()  # aborts the second, which holds the last stable offset back
    assert bench.committed() == [0]


WITHOUT_TWO_PHASE: dict[str, str | int | bool] = {
    "transaction.two.phase.commit.enable": False,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}


@pytest.mark.parametrize("broker", [Broker, pytest.param(ApacheKafka, marks=pytest.mark.kafka)])
def test_without_two_phase_commit_the_guarantee_is_timed_and_a_loss_is_loud(
    broker: type[Broker | ApacheKafka],
) -> None:
    with broker(WITHOUT_TWO_PHASE) as running:
        bench = Bench(running.bootstrap_servers, ONE_PHASE, timeout_ms=8000)
        with pytest.raises(GuaranteeUnavailableError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            bench.runner.open(bench.sink, Guarantee.DURABLE)
        good = [bench.task(bench.open(), 0)]
        bench.runner.run(plan.commit_batch(bench.sink, 0, good))
        bench.decide(1, [bench.task(bench.open(), 1)])  # and then nobody comes in time
        wait_until_none_is_open(bench)
        for _ in range(2):  # and for every later run, until a person has looked
            with pytest.raises(PreparedTransactionLostError):
                bench.open()
        assert bench.committed() == [0]


@pytest.mark.parametrize("lost", ["accept", "again"])
@pytest.mark.parametrize("broker", [Broker, pytest.param(ApacheKafka, marks=pytest.mark.kafka)])
def test_a_batch_that_is_lost_in_part_is_settled_by_a_person(broker: type[Broker | ApacheKafka], lost: str) -> None:
    with broker(WITHOUT_TWO_PHASE) as running:
        loses_and_settles(Bench(running.bootstrap_servers, ONE_PHASE, timeout_ms=8000), lost)


def loses_and_settles(bench: Bench, lost: str) -> None:
    opened = bench.open()
    there, gone = bench.task(opened, 0), bench.task(opened, 0)
    bench.decide(0, [there, gone])
    assert isinstance(there, plan_steps.PreparedTask)
    assert isinstance(gone, plan_steps.PreparedTask)
    bench.runner.run(ending(plan_steps.EndTxn(there.transactional_id, there.pair, commit=True)))
    wait_until_none_is_open(bench)
    with pytest.raises(PreparedTransactionLostError, match="1 of 2"):
        bench.open()
    with pytest.raises(ConfigurationError, match=f"no decision of query 'q'; it has: {bench.query}"):
        settle_lost_batch(bench.servers, bench.sink, "q", lost=lost)
    settled = settle_lost_batch(bench.servers, bench.sink, bench.query, lost=lost)
    assert (settled.committed, settled.lost) == ((there.transactional_id,), (gone.transactional_id,))
    opened = bench.open()
    bench.runner = bench.another_process(timeout_ms=900_000)
    replayed = [bench.task(opened, 0), bench.task(opened, 0)]
    assert bench.runner.run(plan.commit_batch(bench.sink, 0, replayed)) is (lost == "again")
    assert bench.committed() == ([0] if lost == "accept" else [0, 0, 0])
    bench.runner.run(plan.commit_batch(bench.sink, 1, [bench.task(bench.open(), 1)]))
    assert bench.committed()[-1] == 1


def ending(end: plan_steps.EndTxn) -> plan.Plan[None]:
    assert (yield plan_steps.EndTransactions((end,))) == (0,)


def wait_until_none_is_open(bench: Bench) -> None:
    until = time.monotonic() + 120
    while bench.open_ids() and time.monotonic() < until:
        time.sleep(0.05)
    assert bench.open_ids() == []


@pytest.mark.parametrize("broker", [Broker, pytest.param(ApacheKafka, marks=pytest.mark.kafka)])
def test_without_two_phase_commit_a_batch_that_took_too_long_is_repeated_and_not_decided(
    broker: type[Broker | ApacheKafka],
) -> None:
    with broker(WITHOUT_TWO_PHASE) as running:
        bench = Bench(running.bootstrap_servers, ONE_PHASE, timeout_ms=2000)
        opened = bench.open()
        messages = [bench.task(opened, 0)]
        wait_until_none_is_open(bench)
        with pytest.raises(BatchTimedOutError, match=r"(Prepare|Complete)Abort.*transaction\.timeout\.ms is 2000"):
            bench.runner.run(plan.commit_batch(bench.sink, 0, messages))
        assert bench.runner.run(plan.abort_batch(bench.sink, messages)) is AbortOutcome.ABORTED
        again = bench.another_process(timeout_ms=900_000)
        bench.runner = again
        assert again.run(plan.commit_batch(bench.sink, 0, [bench.task(bench.open(), 0)]))
        assert bench.committed() == [0]


@pytest.mark.parametrize(
    ("broker", "timeout_s"), [(Broker, 200), pytest.param(ApacheKafka, 8, marks=pytest.mark.kafka)]
)
def test_a_batch_that_is_about_to_be_timed_out_is_not_decided(
    broker: type[Broker | ApacheKafka], timeout_s: int
) -> None:
    """The coordinator's clock counts: ours can be moved, Kafka's cannot, but it times nothing out before it looks."""
    settings = {**WITHOUT_TWO_PHASE, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 60_000}
    with broker(settings) as running:
        bench = Bench(running.bootstrap_servers, ONE_PHASE, timeout_ms=timeout_s * 1000)
        messages = [bench.task(bench.open(), 0)]
        three_quarters_and_a_bit = timeout_s * 0.75 + 0.1
        if isinstance(running, Broker):
            running.clock.advance(three_quarters_and_a_bit)
        else:
            time.sleep(three_quarters_and_a_bit)
        with pytest.raises(BatchTimedOutError, match="Ongoing"):
            bench.runner.run(plan.commit_batch(bench.sink, 0, messages))
        assert bench.open_ids() == []
        assert bench.committed() == []


def test_the_brokers_longest_timeout_is_taken_unless_another_was_asked_for() -> None:
    with Broker({"transaction.two.phase.commit.enable": False, "transaction.max.timeout.ms": 45_000}) as broker:
        bench = Bench(broker.bootstrap_servers, ONE_PHASE)
        message = bench.task(bench.open(), 0)
        assert isinstance(message, plan_steps.PreparedTask)
        (found,) = bench.link.io.run(bench.link.admin.describe_transactions([message.transactional_id]))
        assert found.timeout_ms == 45_000
        strict = Bench(broker.bootstrap_servers, ONE_PHASE, timeout_ms=60_000)
        with pytest.raises(ConfigurationError, match="45000"):
            strict.task(strict.open(), 0)


def test_an_expired_id_of_a_decided_transaction_is_reported_as_unknown(caplog: pytest.LogCaptureFixture) -> None:
    """As after a long stop: the broker cannot tell a committed transaction from one that its timeout has aborted."""
    week_ms, day_s = 604_800_000, 86_400.0
    with Broker({**WITHOUT_TWO_PHASE, "transactional.id.expiration.ms": week_ms}) as broker:
        bench = Bench(broker.bootstrap_servers, ONE_PHASE)
        message = bench.task(bench.open(), 0)
        assert isinstance(message, plan_steps.PreparedTask)
        assert bench.runner.run(plan.commit_batch(bench.sink, 0, [message]))
        for _ in range(8):
            broker.clock.advance(day_s)
            broker.settle()
        with caplog.at_level(logging.WARNING, "fencepost.spark"):
            opened = bench.open()
        assert opened.decided == (plan_steps.DecidedBatch(bench.query, 0, Content(1, 0)),)
        (reported,) = [record.getMessage() for record in caplog.records if "do not know whether" in record.getMessage()]
        words = (bench.sink, f"batch 0 of query {bench.query}", message.transactional_id, str(message.pair))
        for part in (*words, "commits/0", "fencepost transactions complete"):
            assert part in reported
        resolved = resolve_sink(bench.servers, bench.sink)
        assert (resolved.committed, resolved.unknown) == ([], [message.transactional_id])
        settled = settle_lost_batch(bench.servers, bench.sink, bench.query, lost="accept")
        assert (settled.committed, settled.lost, settled.unknown) == ((), (), (message.transactional_id,))


def test_sinks_that_share_a_prefix_do_not_touch_each_other(own_broker: Broker) -> None:
    first = Bench(own_broker.bootstrap_servers, KEEPING)
    second = Bench(own_broker.bootstrap_servers, KEEPING)
    second.sink = f"{first.sink}/eu"
    message = second.task(second.open(), 0)
    first.open()
    assert isinstance(message, plan_steps.PreparedTask)
    assert second.open_ids() == [message.transactional_id]


def test_many_transactions_in_doubt_are_resolved(own_broker: Broker) -> None:
    bench = Bench(own_broker.bootstrap_servers, KEEPING)
    opened = bench.open()
    messages = [bench.task(opened, 0) for _ in range(200)]
    assert len(bench.open_ids()) == len(messages)
    bench.open()
    assert bench.open_ids() == []
    assert bench.committed() == []


@pytest.mark.parametrize("before", [ONE_PHASE, KEEPING])
def test_decided_batches_are_finished_after_the_brokers_abilities_changed(
    tmp_path: Path, before: BrokerAbilities
) -> None:
    """Two-phase commit is turned on (an upgrade) or off between the decision and its completion."""
    after = ONE_PHASE if before == KEEPING else KEEPING

    def settings(abilities: BrokerAbilities) -> dict[str, object]:
        return {"transaction.two.phase.commit.enable": abilities == KEEPING}

    with Broker(settings(before), data_dir=str(tmp_path)) as broker:
        bench = Bench(broker.bootstrap_servers, before)
        bench.runner.run(plan.commit_batch(bench.sink, 0, [bench.task(bench.open(), 0)]))
        opened = bench.open()
        decided, loser = bench.task(opened, 1), bench.task(opened, 1)
        bench.decide(1, [decided])
        port = int(broker.bootstrap_servers.rpartition(":")[2])
    with Broker(settings(after), data_dir=str(tmp_path), port=port):
        bench.abilities = after
        opened = bench.open()
        assert opened.decided == (plan_steps.DecidedBatch(bench.query, 1, Content(1, 1)),)
        assert isinstance(loser, plan_steps.PreparedTask)
        assert bench.open_ids() == []
        bench.runner = bench.another_process()
        assert bench.runner.run(plan.commit_batch(bench.sink, 2, [bench.task(opened, 2)]))
        assert bench.committed() == [0, 1, 2]
