"""The Spark sink on Apache Kafka 2.5.1, the oldest that it takes (K114): level `resume-unlisted`, without Spark.

Its answers differ from Kafka 2.8's (tests/spark/test_runner.py) only in 47 for 90.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.client.types import Isolation, TopicPartition
from fencepost.errors import PreparedTransactionLostError
from fencepost.protocol.codes import ErrorCode
from fencepost.spark.errors import BatchTimedOutError, SupersededError
from fencepost.spark.sink import plan, plan_steps
from fencepost.spark.sink.plan_steps import AbortOutcome, Level
from tests.spark.hand_played import Bench
from tests.support.older_kafka import OlderKafka
from tests.support.raw_client import Producer, RawClient

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with OlderKafka("2.5.1", {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}) as kafka:
        yield kafka.bootstrap_servers


def held_back(bench: Bench) -> int:
    place = TopicPartition(bench.topic, 0)

    def end(isolation: Isolation) -> int:
        return int(bench.link.io.run(bench.link.admin.list_offsets({place: -1}, isolation=isolation))[place].offset)

    return end(Isolation.READ_UNCOMMITTED) - end(Isolation.READ_COMMITTED)


def wait_until_none_is_open(bench: Bench) -> None:
    until = time.monotonic() + 120
    while held_back(bench) and time.monotonic() < until:
        time.sleep(0.05)
    assert held_back(bench) == 0


def test_a_batch_is_decided_or_aborted_by_who_owns_the_sink(servers: str) -> None:
    bench = Bench(servers, Level.RESUME_UNLISTED)
    opened = bench.open()
    winner, _ = bench.task(opened, 0), bench.task(opened, 0)
    assert bench.runner.run(plan.commit_batch(bench.sink, 0, [winner]))
    wait_until_none_is_open(bench)  # the loser is fenced
    bench.task(opened, 0)  # a speculative copy that is late
    bench.decide(1, [bench.task(bench.open(), 1)])
    bench.open()
    wait_until_none_is_open(bench)
    stale, fresh = [bench.task(bench.open(), 2)], [bench.task(bench.open(), 2)]
    with pytest.raises(SupersededError):
        bench.runner.run(plan.commit_batch(bench.sink, 2, stale))
    assert bench.runner.run(plan.abort_batch(bench.sink, stale)) is AbortOutcome.LEFT
    assert bench.runner.run(plan.abort_batch(bench.sink, fresh)) is AbortOutcome.ABORTED
    decided = [bench.task(bench.open(), 2)]
    assert bench.runner.run(plan.commit_batch(bench.sink, 2, decided))
    assert bench.runner.run(plan.abort_batch(bench.sink, decided)) is AbortOutcome.COMMITTED
    wait_until_none_is_open(bench)
    assert bench.committed() == [0, 1, 2]


def test_what_timed_out_is_not_decided_and_a_loss_is_loud(servers: str) -> None:
    bench = Bench(servers, Level.RESUME_UNLISTED, timeout_ms=2000)
    messages = [bench.task(bench.open(), 0)]
    wait_until_none_is_open(bench)
    with pytest.raises(BatchTimedOutError, match="INVALID_PRODUCER_EPOCH"):
        bench.runner.run(plan.commit_batch(bench.sink, 0, messages))
    bench.runner = bench.another_process(timeout_ms=8000)
    bench.decide(0, [bench.task(bench.open(), 0)])
    wait_until_none_is_open(bench)
    with pytest.raises(PreparedTransactionLostError):
        bench.open()
    assert bench.committed() == []


@pytest.mark.parametrize(("fence", "answer"), [(True, ErrorCode.INVALID_PRODUCER_EPOCH), (False, ErrorCode.NONE)])
def test_a_fence_keeps_a_late_batch_out_and_an_end_does_not(servers: str, fence: bool, answer: ErrorCode) -> None:
    """K113."""
    bench = Bench(servers, Level.RESUME_UNLISTED)
    late: Any = bench.task(bench.open(), 0)
    end = plan_steps.End(late.transactional_id, late.pair, commit=False, fence=fence)
    assert bench.runner._perform(plan_steps.EndTransactions((end,))) == (0,)
    wait_until_none_is_open(bench)
    producer = Producer(late.pair.producer_id, late.pair.epoch)
    with RawClient(servers) as raw:
        name = late.transactional_id
        sent = raw.produce(bench.topic, [b"x"], transactional_id=name, producer=producer, sequence=1, version=8)
    assert sent.error_code == answer
    assert held_back(bench) == (0 if fence else 1)
