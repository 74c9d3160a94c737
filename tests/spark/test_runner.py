"""The protocol's steps with the real client, without Spark: our broker at levels A and C, Apache Kafka at level B."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from fencepost.broker.embedded import Broker
from fencepost.broker.internal_records import encode_internal_batch
from fencepost.client.types import Isolation, TopicPartition
from fencepost.errors import PreparedTransactionLostError
from fencepost.protocol.batch import set_producer
from fencepost.spark import names, plan, wire
from fencepost.spark.errors import LevelUnavailableError, SupersededError
from fencepost.spark.plan import AbortOutcome, Level
from fencepost.spark.runner import Link, SinkLink, resolve_sink
from fencepost.spark.steps import SinkConfig
from tests.support.apache_kafka import ApacheKafka

QUERY = "8c1f-query"


class Bench:
    """A sink on a fresh topic, played by hand."""

    def __init__(self, servers: str, level: Level, timeout_ms: int = 600_000) -> None:
        self.servers, self.level = servers, level
        self.sink = f"bench/{uuid.uuid4().hex[:8]}"
        self.topic = f"out-{uuid.uuid4().hex[:8]}"
        self.link = Link({"bootstrap.servers": servers})
        self.link.io.run(self.link.admin.create_topic(self.topic, 1))
        self.runner = self.another_process(timeout_ms)

    def another_process(self, timeout_ms: int = 600_000) -> SinkLink:
        """What another process of the sink would have: a client and caches of its own."""
        return SinkLink(Link({"bootstrap.servers": self.servers}), SinkConfig(transaction_timeout_ms=timeout_ms))

    def open(self) -> plan.Opened:
        opened = self.another_process().open(self.sink)
        assert opened.level is self.level
        return opened

    def task(self, opened: plan.Opened, batch_id: int) -> plan.Message:
        def write(step: plan.Step) -> None:
            assert isinstance(step, plan.WriteRows)
            batch = encode_internal_batch([(b"k", b"%d" % batch_id)], int(time.time() * 1000))
            set_producer(batch, step.pair.producer_id, step.pair.epoch, 0, True)
            cluster = self.link.admin.cluster
            deadline_ms = cluster.runtime.now_ms() + 20_000
            code = self.link.io.run(
                wire.produce_batch(cluster, step.transactional_id, self.topic, 0, batch, deadline_ms)
            )
            assert code == 0

        own: dict[type, Callable[[plan.Step], object]] = {plan.HasRows: lambda _: True, plan.WriteRows: write}
        own[plan.Drain] = lambda _: None
        return self.runner.run_task(plan.write_task(opened, QUERY, batch_id), own)

    def committed(self) -> list[int]:
        """The batch number of every committed record."""
        place = TopicPartition(self.topic, 0)
        cluster = self.link.admin.cluster
        uncommitted = Isolation.READ_UNCOMMITTED
        end = self.link.io.run(self.link.admin.list_offsets({place: -1}, isolation=uncommitted))[place].offset

        async def read() -> list[int]:
            from fencepost.broker.internal_records import read_internal_records

            deadline_ms = cluster.runtime.now_ms() + 20_000
            found = []
            async for header, batch in wire.committed_batches(cluster, self.topic, 0, 0, end, deadline_ms):
                found += [int(value or b"-1") for _, _, value in read_internal_records(header, batch)]
            return found

        return self.link.io.run(read())

    def open_ids(self) -> list[str]:
        listed = self.link.io.run(self.link.admin.list_transactions(states=("Ongoing",)))
        return [
            one.transactional_id
            for one in listed
            if (name := names.parse(one.transactional_id)) is not None and name.sink == self.sink
        ]


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        yield broker


ARMS = [Level.KEEP_PREPARED, pytest.param(Level.TWO_PHASE, marks=pytest.mark.kafka)]


@pytest.fixture(params=ARMS, ids=lambda level: level.value)
def bench(request: pytest.FixtureRequest) -> Bench:
    if request.param is Level.KEEP_PREPARED:
        return Bench(request.getfixturevalue("own_broker").bootstrap_servers, request.param)
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return Bench(kafka.bootstrap_servers, request.param)


def test_a_batch_is_invisible_until_it_is_committed_and_there_once_afterwards(bench: Bench) -> None:
    opened = bench.open()
    messages = [bench.task(opened, 0), bench.task(opened, 0)]
    assert len(bench.open_ids()) == 2
    assert bench.another_process().run(plan.commit_batch(bench.sink, 0, messages))
    assert bench.committed() == [0, 0]
    assert bench.open_ids() == []


def test_the_next_open_aborts_losers_and_later_tasks_skip_what_is_decided(bench: Bench) -> None:
    opened = bench.open()
    winner, loser = bench.task(opened, 0), bench.task(opened, 0)
    bench.runner.run(plan.commit_batch(bench.sink, 0, [winner]))
    assert isinstance(loser, plan.Prepared)
    assert bench.open_ids() == [loser.transactional_id]
    again = bench.open()
    assert bench.open_ids() == []
    assert again.decided == ((QUERY, 0),)
    assert bench.task(again, 0) == plan.Skipped(QUERY, 0)
    assert bench.committed() == [0]


def test_a_decided_batch_is_completed_by_the_next_open(bench: Bench) -> None:
    opened = bench.open()
    message = bench.task(opened, 0)
    steps = plan.commit_batch(bench.sink, 0, [message])
    decide = steps.send(None)
    assert isinstance(decide, plan.WriteDecision)
    assert bench.link.io.run(bench.runner._steps.perform(decide)) == 0  # and then the process dies
    assert len(bench.open_ids()) == 1
    resolved = resolve_sink(bench.servers, bench.sink)
    assert isinstance(message, plan.Prepared)
    assert (resolved.committed, resolved.aborted) == ([message.transactional_id], [])
    assert resolved.level == bench.level.value
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


def test_a_decision_can_be_made_only_once_with_a_claim(bench: Bench) -> None:
    opened = bench.open()
    first, second = [bench.task(opened, 0)], [bench.task(opened, 0)]
    bench.runner.run(plan.commit_batch(bench.sink, 0, first))
    with pytest.raises(SupersededError):
        bench.runner.run(plan.commit_batch(bench.sink, 0, second))
    bench.open()  # aborts the second, which holds the last stable offset back
    assert bench.committed() == [0]


def test_without_two_phase_commit_the_level_is_resume_and_a_loss_is_loud() -> None:
    settings = {
        "transaction.two.phase.commit.enable": False,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    }
    with Broker(settings) as broker:
        bench = Bench(broker.bootstrap_servers, Level.RESUME, timeout_ms=1000)
        with pytest.raises(LevelUnavailableError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            bench.runner.open(bench.sink, Level.TWO_PHASE)
        good = [bench.task(bench.open(), 0)]
        bench.runner.run(plan.commit_batch(bench.sink, 0, good))
        late = [bench.task(bench.open(), 1)]
        until = time.monotonic() + 20
        while bench.open_ids() and time.monotonic() < until:
            time.sleep(0.05)
        with pytest.raises(PreparedTransactionLostError):
            bench.runner.run(plan.commit_batch(bench.sink, 1, late))
        with pytest.raises(PreparedTransactionLostError):  # and for every later run, until a person has looked
            bench.open()
        assert bench.committed() == [0]


def test_sinks_that_share_a_prefix_do_not_touch_each_other(own_broker: Broker) -> None:
    one = Bench(own_broker.bootstrap_servers, Level.KEEP_PREPARED)
    other = Bench(own_broker.bootstrap_servers, Level.KEEP_PREPARED)
    other.sink = f"{one.sink}/eu"
    message = other.task(other.open(), 0)
    one.open()
    assert isinstance(message, plan.Prepared)
    assert other.open_ids() == [message.transactional_id]


def test_many_transactions_in_doubt_are_resolved(own_broker: Broker) -> None:
    bench = Bench(own_broker.bootstrap_servers, Level.KEEP_PREPARED)
    opened = bench.open()
    messages = [bench.task(opened, 0) for _ in range(200)]
    assert len(bench.open_ids()) == len(messages)
    bench.open()
    assert bench.open_ids() == []
    assert bench.committed() == []
