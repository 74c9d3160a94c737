"""The reply to each request of a batch is lost once, at each of its occurrences: every row is there once in the end.

The request took effect; its connection breaks before the reply. What follows is what Spark does: it aborts the batch
whose commit failed, starts again, and replays the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fencepost.broker.embedded import Broker
from fencepost.client.net.connection import BrokerConnection
from fencepost.errors import DisconnectedError, KafkaError
from fencepost.spark.sink import plan, plan_steps
from tests.spark.plan_by_hand import Bench
from tests.support.sink_abilities import KEEPING

REQUESTS = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "FindCoordinator": 10,
    "InitProducerId": 22,
    "EndTxn": 26,
    "DescribeTransactions": 65,
    "ListTransactions": 66,
}
# A batch has a claim, two probes of the abilities, and a begin and a prepare for both tasks; one EndTxn for the
# decision, and one for each task.
SEEN_AT_LEAST = {"Produce": 3, "InitProducerId": 6, "EndTxn": 3}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        yield broker


class LosesReply:
    """Stands in for Connection.exchange."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, api_key: int, nth: int) -> None:
        self._plain = BrokerConnection.exchange
        self._api_key, self._left = api_key, nth
        this = self

        async def exchange(
            self: BrokerConnection, api_key: int, version: int, body: Sequence[Any], **how: Any
        ) -> memoryview:
            return await this._exchange(self, api_key, version, body, **how)

        monkeypatch.setattr(BrokerConnection, "exchange", exchange)

    @property
    def lost(self) -> bool:
        return self._left <= 0

    async def _exchange(
        self, connection: BrokerConnection, api_key: int, version: int, body: Sequence[Any], **how: Any
    ) -> memoryview:
        reply = await self._plain(connection, api_key, version, body, **how)
        if api_key == self._api_key:
            self._left -= 1
            if self._left == 0:
                lost = DisconnectedError("the reply was lost", sent=True)
                connection.close(lost)
                raise lost
        return reply


def run_batch(bench: Bench, batch_id: int) -> None:
    """As Spark would: a failed task is tried again, a failed commit is aborted, and then the query starts again."""
    for _ in range(4):
        messages: list[plan_steps.TaskResult] = []
        try:
            opened = bench.open()
            while len(messages) < 2:
                messages.append(attempt(bench, opened, batch_id))
            bench.another_process().run(plan.commit_batch(bench.sink, batch_id, messages))
        except KafkaError:
            if messages:
                bench.another_process().run(plan.abort_batch(bench.sink, messages))
        else:
            return
    pytest.fail("one lost reply was too much")


def attempt(bench: Bench, opened: plan_steps.OpenedSink, batch_id: int) -> plan_steps.TaskResult:
    try:
        return bench.task(opened, batch_id)
    except KafkaError:
        return bench.task(opened, batch_id)


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_lost_reply_changes_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch, request_name: str) -> None:
    occurrences = 0
    for nth in range(1, 40):
        bench = Bench(broker.bootstrap_servers, KEEPING)
        run_batch(bench, 0)  # so that there is a decision to read
        bench.task(bench.open(), 1)  # and a transaction to abort
        with monkeypatch.context() as patch:
            fault = LosesReply(patch, REQUESTS[request_name], nth)
            run_batch(bench, 1)
        bench.open()  # aborts what a lost reply left behind
        assert bench.committed() == [0, 0, 1, 1], f"reply {nth} to {request_name} was lost"
        assert bench.open_ids() == []
        if not fault.lost:
            break
        occurrences += 1
    else:
        pytest.fail("the batch has no end")
    assert occurrences >= SEEN_AT_LEAST.get(request_name, 1)
