"""A signal handler raises at any step of a transaction by hand: the call that follows tells how the transaction ended.

Points are those at which CPython runs signal handlers (`tests.support.strikes`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import fencepost
from fencepost.errors import KafkaTimeoutError, TransactionCommitFailedError, TransactionCommittedError, UsageError
from fencepost.testing import read_all
from tests.support import interrupted_calls as calls

# An exception may also come while Python closes a generator, or runs a finalizer, and is then only printed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

STEPS = ["begin", "send", "flush", "result", "offsets", "prepare", "complete", "commit", "abort"]
NOT_STRUCK = 10_000


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        for step in STEPS:
            by_hand = ByHand(running, step)
            by_hand.run(NOT_STRUCK, by_hand.producer.abort_transaction)  # a first call has more points than others
            with by_hand.producer.transaction():
                pass
            by_hand.producer.close()
        yield running


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    with calls.nothing_hangs():
        yield


class ByHand:
    """Transactions of one record, one of whose steps is struck at a point."""

    def __init__(self, broker: fencepost.Broker, step: str) -> None:
        self.topic = f"by-hand-{uuid.uuid4().hex[:8]}"
        self.partition = fencepost.TopicPartition(self.topic, 0)
        self.committed: list[int] = []
        self.struck = False
        self.note: Any = None
        self._step = step
        two_phase = step in ("prepare", "complete")
        self.producer = fencepost.Producer(
            broker.bootstrap_servers, transactional_id=self.topic, two_phase_commit=two_phase
        )
        self.producer.init_transactions()

    def run(self, at: int, recover: Callable[[], object]) -> None:
        """Run transaction number `at`. `recover` is called after an interruption, and raises if it is committed."""
        self._at, self.struck = at, False
        try:
            self._steps(at)
        except (TimeoutError, KeyboardInterrupt):
            try:
                recover()
            except TransactionCommittedError:
                self.committed.append(at)
        else:
            if self._step != "abort":
                self.committed.append(at)

    def _steps(self, at: int) -> None:
        producer = self.producer
        self._do("begin", producer.begin_transaction)
        delivery = self._do("send", lambda: producer.send(self.topic, b"%d" % at))
        self._do("flush", producer.flush)
        self._do("result", lambda: delivery.result(60))
        self._do("offsets", lambda: producer.send_offsets_to_transaction({self.partition: at + 1}, self.topic))
        if self._step in ("prepare", "complete"):
            self.note = self._do("prepare", producer.prepare_transaction)
            self._do("complete", lambda: producer.complete_transaction(self.note))
        elif self._step == "abort":
            self._do("abort", producer.abort_transaction)
        else:
            self._do("commit", producer.commit_transaction)

    def _do(self, name: str, call: Callable[[], Any]) -> Any:
        if name != self._step:
            return call()
        strikes, outcome = calls.struck(call, self._at, calls.raising((TimeoutError, KeyboardInterrupt)[self._at % 2]))
        self.struck = strikes.struck
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@pytest.mark.parametrize("step", STEPS)
def test_an_abort_that_follows_tells_of_the_commit(broker: fencepost.Broker, step: str) -> None:
    by_hand = ByHand(broker, step)
    with by_hand.producer as producer:
        for at in count():
            by_hand.run(at, producer.abort_transaction)
            producer.abort_transaction()  # what was told once is not told again
            if not by_hand.struck:
                break
    assert at > 5
    assert [int(record.value or b"") for record in read_all(broker, by_hand.topic)] == by_hand.committed
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        positions = [each.offset for each in admin.group_offsets(by_hand.topic).values()]
    assert positions == [number + 1 for number in by_hand.committed[-1:]]


@pytest.mark.parametrize("step", ["commit", "complete"])
def test_the_call_can_be_repeated(broker: fencepost.Broker, step: str) -> None:
    by_hand = ByHand(broker, step)
    with by_hand.producer as producer:

        def again() -> None:
            if step == "commit":
                producer.commit_transaction()
            else:
                assert producer.complete_transaction(by_hand.note)
            by_hand.committed.append(at)

        for at in count():
            by_hand.run(at, again)
            producer.abort_transaction()
            if not by_hand.struck:
                break
    assert [int(record.value or b"") for record in read_all(broker, by_hand.topic)] == list(range(at + 1))
    assert by_hand.committed == list(range(at + 1))


def test_an_interrupted_abort_that_found_a_commit_is_followed_by_one_that_tells(broker: fencepost.Broker) -> None:
    topic = f"by-hand-{uuid.uuid4().hex[:8]}"
    reported: list[bytes] = []
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=topic, max_block_ms=300) as producer:
        producer.init_transactions()
        for at in range(0, 40, 2):
            producer.begin_transaction()
            producer.send(topic, b"%d" % at)
            producer.flush()
            with broker.faults.drop_reply("EndTxn", times=None), pytest.raises(TransactionCommitFailedError):
                producer.commit_transaction()
            strikes, outcome = calls.struck(producer.abort_transaction, at, calls.raising(KeyboardInterrupt))
            if not isinstance(outcome, TransactionCommittedError):
                assert strikes.struck or isinstance(outcome, KafkaTimeoutError), at
                with pytest.raises(TransactionCommittedError, match="unanswered or interrupted commit"):
                    abort_until_answered(producer)
            reported.append(b"%d" % at)
            producer.abort_transaction()
    assert [record.value for record in read_all(broker, topic)] == reported


def abort_until_answered(producer: fencepost.Producer) -> None:
    while True:
        with contextlib.suppress(KafkaTimeoutError):  # not answered in time: abort again
            producer.abort_transaction()
            return


def test_wrong_arguments_are_no_interruption(broker: fencepost.Broker) -> None:
    topic = f"by-hand-{uuid.uuid4().hex[:8]}"
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"a")
        producer.commit_transaction()
        with pytest.raises(TypeError):
            producer.complete_transaction(5)  # type: ignore[arg-type]
        producer.abort_transaction()
        with pytest.raises(UsageError, match="no transaction is open"):
            producer.commit_transaction()


@pytest.mark.parametrize("error", [TimeoutError, KeyboardInterrupt])
def test_a_block_says_that_it_is_committed(broker: fencepost.Broker, error: type[BaseException]) -> None:
    topic = f"by-hand-{uuid.uuid4().hex[:8]}"
    committed: list[int] = []
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for at in count():

            def block(number: int = at) -> None:
                with producer.transaction():
                    producer.send(topic, b"%d" % number)

            strikes, outcome = calls.struck(block, at, calls.raising(error))
            if not isinstance(outcome, BaseException):
                committed.append(at)
                break
            notes = getattr(outcome, "__notes__", [])
            del outcome  # its traceback keeps the block, whose end it may have prevented in its first step
            if notes:
                assert strikes.struck
                committed.append(at)
            try:
                producer.abort_transaction()
                assert not notes
            except TransactionCommittedError:
                assert notes
            except UsageError:  # the block is aborted in the background
                assert not notes
    assert [int(record.value or b"") for record in read_all(broker, topic)] == committed
    assert len(committed) > 1
