"""State that a stream leaves at a real coordinator and in the decision topic. It must not grow with the batches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.broker.embedded import Broker
from fencepost.spark.sink import names, plan, plan_steps
from tests.spark.plan_by_hand import Bench
from tests.support.sink_abilities import KEEPING, ONE_PHASE


@pytest.fixture(params=[KEEPING, ONE_PHASE])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with Broker({"transaction.two.phase.commit.enable": request.param is KEEPING}) as broker:
        yield Bench(broker.bootstrap_servers, request.param)


def batch(bench: Bench, number: int, tasks: int = 3) -> plan_steps.OpenedSink:
    opened = bench.open()
    messages = [bench.task(opened, number) for _ in range(tasks)]
    bench.task(opened, number)  # a copy that loses
    assert bench.runner.run(plan.commit_batch(bench.sink, number, messages)) is True
    return opened


def task_ids(bench: Bench) -> set[str]:
    listed = bench.link.io.run(bench.link.admin.list_transactions())
    return {
        listing.transactional_id
        for listing in listed
        if isinstance(names.parse(listing.transactional_id), names.TaskId)
    }


def test_ids_are_used_again(bench: Bench) -> None:
    for number in range(4):
        batch(bench, number)
    known = task_ids(bench)
    assert len(known) == 2 * 4  # this batch's, and those that the last decision may name
    for number in range(4, 12):
        batch(bench, number)
    assert task_ids(bench) == known
    assert sorted(bench.committed()) == sorted(3 * list(range(12)))
    assert bench.open_ids() == []
    # Another process has ids of its own.
    bench.runner = bench.another_process()
    batch(bench, 12)
    assert len(task_ids(bench)) == len(known) + 4


def test_a_healthy_stream_counts_no_trouble() -> None:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        bench = Bench(broker.bootstrap_servers, KEEPING)
        for number in range(4):
            batch(bench, number)
        counters = broker.metrics().counters
        # The copy that loses in each batch is aborted by who decides it.
        reported = [name for name in counters if any(word in name for word in ("fenced", "timed_out", "reclaimed"))]
        assert len(reported) >= 4
        assert [counters[name] for name in reported] == [0] * len(reported)


def test_a_query_that_is_gone_is_not_completed_at_every_open(bench: Bench) -> None:
    first = bench.query
    opened = bench.open()
    bench.decide(0, [bench.task(opened, 0) for _ in range(2)])  # and then it is never heard of again
    bench.query = "another"
    assert batch(bench, 7).queries_with_winners == (first,)
    assert bench.open().queries_with_winners == ("another",)
    gone, mine = sorted(bench.runner.decisions(bench.sink), key=lambda decision: decision.query_id == "another")
    assert (gone.query_id, gone.batch_id, gone.winners) == (first, 0, ())
    assert gone.content is not None and gone.content.rows == 2  # still known, should it come back
    assert (mine.batch_id, len(mine.winners)) == (7, 3)
    assert sorted(bench.committed()) == [0, 0, 7, 7, 7]
    # It does come back: its batch is known as written, and the next one is written.
    bench.query = first
    opened = bench.open()
    assert isinstance(bench.task(opened, 0), plan_steps.SkippedTask)
    assert batch(bench, 1).queries_with_winners == ("another",)


def test_more_decisions_than_fit_are_settled_by_the_next(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        bench.query = f"gone-{number}"
        bench.decide(0, [bench.task(bench.open(), 0)])
        monkeypatch.setattr("fencepost.spark.sink.decision_store.BATCH_BYTES_MOST", 0)
    bench.query = "q"
    monkeypatch.setattr("fencepost.spark.sink.decision_store.BATCH_BYTES_MOST", 800)
    left = [len(batch(bench, number).queries_with_winners) for number in range(5)]
    assert left[0] == 5 and left[-1] == 1
    assert left == sorted(left, reverse=True)
    assert len(bench.runner.decisions(bench.sink)) == 6


@pytest.mark.parametrize("bench", [KEEPING], indirect=True)
def test_a_decided_transaction_that_a_stranger_keeps_is_committed(bench: Bench) -> None:
    opened = bench.open()
    messages = [bench.task(opened, 0) for _ in range(2)]
    bench.decide(0, messages)
    transactional_id = next(
        message.transactional_id for message in messages if isinstance(message, plan_steps.PreparedTask)
    )
    link = bench.another_process()._link
    answer = link.io.run(link.admin.init_producer_id(transactional_id, timeout_ms=60_000, keep_prepared=True))
    assert answer.ongoing_producer_id == answer.producer_id
    assert bench.open().last(bench.query) is not None
    assert (sorted(bench.committed()), bench.open_ids()) == ([0, 0], [])
    assert bench.open().last(bench.query) is not None  # and again: its pair is another one still
