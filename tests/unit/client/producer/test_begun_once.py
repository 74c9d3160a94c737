"""Two threads begin at once, or a signal handler begins inside of a begin: one transaction begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

import fencepost
from fencepost.client.blocking import producer as blocking_module
from fencepost.client.blocking import transaction as block_module
from fencepost.client.producer import core as core_module
from fencepost.client.producer import transaction_block as shared_block_module
from fencepost.client.producer import transaction_states as states_module
from fencepost.client.producer import transactions as transactions_module
from fencepost.errors import KafkaError, UsageError
from fencepost.testing import read_all
from tests.support import interrupted_calls as calls
from tests.support.bytecodes import Steps

FILES = tuple(
    str(module.__file__)
    for module in (
        blocking_module,
        block_module,
        core_module,
        shared_block_module,
        states_module,
        transactions_module,
    )
)
WAIT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        calls.fill(running.bootstrap_servers, "t", 1)
        yield running


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    with calls.nothing_hangs():
        yield


def outcome_of(call: Callable[[], object]) -> KafkaError | None:
    try:
        call()
    except KafkaError as error:
        return error
    return None


@pytest.mark.parametrize("by", ["another thread", "a signal handler"])
def test_one_of_two_calls_begins(broker: fencepost.Broker, by: str) -> None:
    """The second call comes before each bytecode of the first."""
    refused = 0
    with (
        fencepost.Producer(broker.bootstrap_servers, transactional_id=by) as producer,
        ThreadPoolExecutor(1) as threads,
    ):
        producer.init_transactions()
        for at in count(1):
            inner: list[KafkaError | None] = []

            def begin_too(inner: list[KafkaError | None] = inner) -> None:
                if by == "a signal handler":
                    inner.append(outcome_of(producer.begin_transaction))
                else:
                    inner.append(threads.submit(outcome_of, producer.begin_transaction).result(WAIT_S))

            begun = producer.metrics()["transaction_begin_total"]
            steps = Steps(at, begin_too, FILES, "opcode")
            outer = outcome_of(lambda steps=steps: steps.during(producer.begin_transaction))  # type: ignore[misc]
            assert [outer, *inner].count(None) == 1, at
            assert all(isinstance(each, UsageError) for each in (outer, *inner) if each is not None), at
            assert producer.metrics()["transaction_begin_total"] == begun + 1, at
            refused += outer is not None
            producer.abort_transaction()
            if not steps.struck:
                break
    assert at > 20
    assert refused > 10


def test_a_block_that_another_thread_forestalls_leaves_its_transaction_alone(broker: fencepost.Broker) -> None:
    """The other thread begins before each bytecode of the block's beginning, and commits afterwards."""
    topic, others = "forestalled", 0
    with (
        fencepost.Producer(broker.bootstrap_servers, transactional_id=topic) as producer,
        ThreadPoolExecutor(1) as threads,
    ):
        producer.init_transactions()
        for at in count(1):
            inner: list[KafkaError | None] = []

            def begin_too(inner: list[KafkaError | None] = inner) -> None:
                inner.append(threads.submit(outcome_of, producer.begin_transaction).result(WAIT_S))

            steps = Steps(at, begin_too, FILES, "opcode")
            block = producer.transaction()
            outer = outcome_of(lambda steps=steps, block=block: steps.during(block.__enter__))  # type: ignore[misc]
            assert [outer, *inner].count(None) == 1, at
            producer.send(topic, b"%d" % at)
            if outer is None:
                block.__exit__(None, None, None)
            else:
                others += 1
                producer.commit_transaction()
            if not steps.struck:
                break
    assert others > 10
    assert [int(record.value or b"") for record in read_all(broker, topic)] == list(range(1, at + 1))


CALLS: dict[str, Callable[[fencepost.Producer], object]] = {
    "init_transactions": lambda producer: producer.init_transactions(),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
    "prepare_transaction": lambda producer: producer.prepare_transaction(),
    "complete_transaction": lambda producer: producer.complete_transaction("1:1"),
    "send_offsets_to_transaction": lambda producer: producer.send_offsets_to_transaction(
        {fencepost.TopicPartition("t", 0): 1}, "g"
    ),
    "transaction": lambda producer: producer.transaction().__enter__(),
}
HELD = {
    "init_transactions": "InitProducerId",
    "commit_transaction": "EndTxn",
    "abort_transaction": "EndTxn",
    "send_offsets_to_transaction": "TxnOffsetCommit",
}


@pytest.mark.parametrize("second", CALLS)
@pytest.mark.parametrize("first", HELD)
def test_a_second_thread_is_refused_during_each_call_that_waits_for_brokers(
    broker: fencepost.Broker, first: str, second: str
) -> None:
    name = f"{first}-{second}"
    with (
        fencepost.Producer(broker.bootstrap_servers, transactional_id=name) as producer,
        ThreadPoolExecutor(1) as threads,
    ):
        if first != "init_transactions":
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(name, b"v").result(WAIT_S)
        with broker.faults.delay_reply(HELD[first], 0.3) as late:
            call = threads.submit(CALLS[first], producer)
            late.wait()
            error = outcome_of(lambda: CALLS[second](producer))
            assert not call.done()
            call.result(WAIT_S)
        assert isinstance(error, UsageError)
        if first == "send_offsets_to_transaction":
            producer.commit_transaction()
    assert len(read_all(broker, name) if first != "init_transactions" else []) == (
        first in ("commit_transaction", "send_offsets_to_transaction")
    )
