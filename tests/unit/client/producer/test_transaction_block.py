"""`with producer.transaction(consumer):` left in every way there is: no record is lost, none comes twice."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

import fencepost
from fencepost import errors
from fencepost.broker.embedded_control import Fault
from fencepost.client.producer.transaction_block import TransactionBlock
from fencepost.client.types import TopicPartition
from fencepost.protocol.codes import ErrorCode as E
from fencepost.testing import read_all

COUNT = 9
PATIENCE_S = 60
IN = TopicPartition("in", 0)
GROUP: dict[str, Any] = {"group_id": "g", "max_poll_records": 3, "fetch_max_wait_ms": 50}
IMPATIENT: dict[str, Any] = {"max_block_ms": 700, "request_timeout_ms": 400}
GOES_ON = (errors.AbortableError, errors.RetriableError, KeyboardInterrupt, ZeroDivisionError, errors.UsageError)
NEW_PRODUCER = (errors.ApplicationRecoverableError, errors.FatalError)


@pytest.fixture
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        with fencepost.Admin(running.bootstrap_servers) as admin:
            admin.create_topic("in", 1)
            admin.create_topic("out", 1)
        yield running


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """As in a program: workers of pytest-xdist ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def fill(broker: fencepost.Broker) -> None:
    with fencepost.Producer(broker.bootstrap_servers) as source:
        for number in range(COUNT):
            source.send("in", b"%d" % number)


def all_committed(consumer: fencepost.Consumer) -> bool:
    """And read: what is to be read again is not before its position, which is unknown for a while after a failure."""
    committed, read = consumer.committed([IN]).get(IN), consumer.positions().get(IN)
    return committed is not None and read is not None and committed.offset == read.offset == COUNT


@dataclass
class Copying:
    """A loop that copies `in` to `out`; `trouble` is called inside its second block, behind the sends."""

    broker: fencepost.Broker
    trouble: Callable[[Copying], object]
    faults: list[Fault] = field(default_factory=list)
    others: list[fencepost.Producer] = field(default_factory=list)
    raised: list[BaseException] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    trouble_in: int = 2

    def new_producer(self) -> fencepost.Producer:
        producer = fencepost.Producer(self.broker.bootstrap_servers, transactional_id="x", **IMPATIENT, **self.settings)
        producer.init_transactions()
        return producer

    def end_outage(self) -> None:
        """When the application has nothing to do any more, or fails again."""
        while self.faults:
            self.faults.pop().remove()

    def run(self, consumer: fencepost.Consumer) -> None:
        """Until all is committed, no trouble is left, and nothing more comes."""
        self.consumer, self.producer = consumer, self.new_producer()
        rounds = empty = 0
        deadline = time.monotonic() + PATIENCE_S
        while empty < 3:
            records = consumer.poll(100)
            if not records:
                self.end_outage()
                empty = empty + 1 if all_committed(consumer) else 0
                assert time.monotonic() < deadline, consumer.state()
                continue
            rounds, empty = rounds + 1, 0
            try:
                with self.producer.transaction(consumer):
                    for record in records:
                        self.producer.send("out", record.value)
                    if rounds == self.trouble_in:
                        self.trouble(self)
            except GOES_ON as error:
                self.raised.append(error)
                if len(self.raised) > 1:
                    self.end_outage()
                if isinstance(error, errors.ClosedError):
                    self.producer = self.new_producer()
            except NEW_PRODUCER as error:
                self.raised.append(error)
                self.producer.close(0)
                self.producer = self.new_producer()
        self.producer.close()
        for other in self.others:
            other.close(0)


def application_error(copying: Copying) -> None:
    raise ZeroDivisionError


def interrupted(copying: Copying) -> None:
    raise KeyboardInterrupt


def interrupted_at_the_commit(copying: Copying) -> None:
    """Ctrl-C while the commit waits for its answer."""
    unanswered = copying.broker.faults.swallow("EndTxn", times=1)

    def strike() -> None:
        unanswered.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=strike, daemon=True).start()


def outage(copying: Copying) -> None:
    copying.faults.append(copying.broker.faults.drop_request("EndTxn", times=None))


def silence(copying: Copying) -> None:
    copying.faults.append(copying.broker.faults.swallow("EndTxn", times=None))


def lost_replies(copying: Copying) -> None:
    copying.faults.append(copying.broker.faults.drop_reply("EndTxn", times=None))


def one_lost_reply(copying: Copying) -> None:
    copying.faults.append(copying.broker.faults.drop_reply("EndTxn", times=1))


def outage_and_error(copying: Copying) -> None:
    outage(copying)
    raise ZeroDivisionError


def offsets_unanswered(copying: Copying) -> None:
    copying.faults.append(copying.broker.faults.drop_request("TxnOffsetCommit", times=None))


def replaced(copying: Copying) -> None:
    copying.others.append(copying.new_producer())


def expired(copying: Copying) -> None:
    copying.broker.faults.fail("EndTxn", E.INVALID_PRODUCER_ID_MAPPING)


def timed_out(copying: Copying) -> None:
    copying.producer.flush()
    copying.broker.clock.advance(61)


def closed(copying: Copying) -> None:
    copying.producer.close(0)


def sought_ahead(copying: Copying) -> None:
    copying.consumer.seek(("in", 0), 8)
    raise ZeroDivisionError


def polled_ahead(copying: Copying) -> None:
    copying.consumer.poll(1000)
    raise ZeroDivisionError


TROUBLES = [
    application_error,
    interrupted,
    interrupted_at_the_commit,
    outage,
    silence,
    lost_replies,
    one_lost_reply,
    outage_and_error,
    offsets_unanswered,
    replaced,
    expired,
    timed_out,
    closed,
    sought_ahead,
    polled_ahead,
]


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_whatever_ends_a_block_every_record_is_copied_once(
    broker: fencepost.Broker, trouble: Callable[[Copying], object], first: int
) -> None:
    """In the first block nothing is committed yet, and auto_offset_reset=latest would skip what was read."""
    with fencepost.Consumer(broker.bootstrap_servers, **GROUP) as consumer:
        consumer.subscribe(["in"])
        while not consumer.positions():
            consumer.poll(100)
        fill(broker)
        copying = Copying(broker, trouble, trouble_in=first)
        copying.run(consumer)
    assert [record.value for record in read_all(broker, "out")] == [b"%d" % n for n in range(COUNT)]
    if trouble not in (lost_replies, one_lost_reply):
        assert copying.raised
    if trouble is interrupted_at_the_commit:
        assert [type(error) for error in copying.raised] == [KeyboardInterrupt]


def test_a_cancelled_block_is_read_again(broker: fencepost.Broker) -> None:
    fill(broker)
    cancelled: list[list[fencepost.Record]] = []

    async def main() -> None:
        async with (
            fencepost.AsyncConsumer(broker.bootstrap_servers, auto_offset_reset="earliest", **GROUP) as consumer,
            fencepost.AsyncProducer(broker.bootstrap_servers, transactional_id="x") as producer,
        ):
            await consumer.subscribe(["in"])
            await producer.init_transactions()
            done = 0
            while done < COUNT:
                records = await consumer.poll(500)
                try:
                    async with asyncio.timeout(30 if cancelled or done < 3 else 0.1), producer.transaction(consumer):
                        for record in records:
                            await producer.send("out", record.value)
                        if done == 3 and not cancelled:
                            await asyncio.sleep(20)
                except TimeoutError:
                    cancelled.append(records)
                else:
                    done += len(records)

    asyncio.run(main())
    assert len(cancelled) == 1
    assert [record.value for record in read_all(broker, "out")] == [b"%d" % n for n in range(COUNT)]


def test_iterating_commits_only_what_was_given_out(broker: fencepost.Broker) -> None:
    """Each record in a transaction of its own, of a batch that was polled as a whole; the loop is left in between."""
    fill(broker)
    settings: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest"}
    seen = 0
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        for part in range(3):
            with fencepost.Consumer(broker.bootstrap_servers, **settings) as consumer:
                consumer.subscribe(["in"])
                for record in consumer:
                    with contextlib.suppress(ZeroDivisionError), producer.transaction(consumer):
                        producer.send("out", record.value)
                        seen += 1
                        if seen in (2, 5):
                            raise ZeroDivisionError
                    if record.offset == 3 * part + 2:
                        break
                assert consumer.positions()[IN].offset == 3 * part + 3
    assert seen == COUNT + 2
    assert [record.value for record in read_all(broker, "out")] == [b"%d" % n for n in range(COUNT)]


def test_a_loop_over_records_may_be_left_and_entered_again(broker: fencepost.Broker) -> None:
    fill(broker)
    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([("in", 0)])
        first = [record.offset for record, _ in zip(consumer, range(4), strict=False)][:4]
        consumer.seek(("in", 0), 4)
        for record in consumer:
            first.append(record.offset)
            if record.offset == 5:
                break
        rest = consumer.poll(1000)
    assert first == [0, 1, 2, 3, 4, 5]
    assert [record.offset for record in rest] == [6, 7, 8]


def test_a_seek_to_read_again_outlives_a_failed_block(broker: fencepost.Broker) -> None:
    """Everything is committed; the application goes back to the beginning, and its first block fails."""
    fill(broker)

    def fail_once(copying: Copying) -> None:
        raise ZeroDivisionError

    with fencepost.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest", **GROUP) as consumer:
        consumer.subscribe(["in"])
        Copying(broker, lambda _: None).run(consumer)
        consumer.seek(("in", 0), 0)
        again = Copying(broker, fail_once, trouble_in=2)
        again.run(consumer)
        assert len(again.raised) == 1
        assert consumer.committed([IN])[IN].offset == COUNT
    assert [record.value for record in read_all(broker, "out")] == [b"%d" % n for n in range(COUNT)] * 2


def test_auto_commit_is_refused(broker: fencepost.Broker) -> None:
    with (
        fencepost.Consumer(broker.bootstrap_servers, enable_auto_commit=True, **GROUP) as consumer,
        fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as producer,
    ):
        producer.init_transactions()
        with pytest.raises(errors.ConfigurationError, match="enable_auto_commit"), producer.transaction(consumer):
            pytest.fail("the block was entered")
        with producer.transaction():
            producer.send("out", b"v")


def test_a_block_without_a_consumer_is_told_that_the_one_before_is_committed(broker: fencepost.Broker) -> None:
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="x", **IMPATIENT) as producer:
        producer.init_transactions()
        fault = broker.faults.drop_reply("EndTxn", times=None)
        with pytest.raises(errors.TransactionCommitFailedError) as raised, producer.transaction():
            producer.send("out", b"v")
        assert raised.value.outcome_unknown
        fault.remove()
        with pytest.raises(errors.TransactionCommittedError), producer.transaction():
            pytest.fail("the block was entered")
        with producer.transaction():
            producer.send("out", b"w")
    assert [record.value for record in read_all(broker, "out")] == [b"v", b"w"]


def test_ctrl_c_while_a_block_is_entered_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right behind the beginning, before the block itself; see test_interrupted_transactions for all other moments."""
    real = TransactionBlock.__aenter__

    async def struck(block: TransactionBlock) -> None:
        await real(block)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with fencepost.Broker() as broker, fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        monkeypatch.setattr(TransactionBlock, "__aenter__", struck)
        with pytest.raises(KeyboardInterrupt), producer.transaction():
            raise AssertionError("the block was entered")
        monkeypatch.undo()
        with producer.transaction():
            producer.send("t", b"v")


def test_a_block_that_may_not_begin_leaves_the_open_transaction_alone() -> None:
    with fencepost.Broker() as broker, fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v")
        with pytest.raises(errors.UsageError, match="a transaction is open"), producer.transaction():
            pass
        producer.commit_transaction()


def test_a_block_that_is_entered_again_inside_itself_commits_once(broker: fencepost.Broker) -> None:
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        block = producer.transaction()

        def enter_again() -> None:
            with block:
                producer.send("out", b"never")

        with block:
            producer.send("out", b"1")
            for call in (enter_again, lambda: in_thread(enter_again)):
                with pytest.raises(errors.UsageError, match="has not ended, so it cannot be entered again"):
                    call()
            producer.send("out", b"2")
        with block:
            producer.send("out", b"3")
    assert [record.value for record in read_all(broker, "out")] == [b"1", b"2", b"3"]


def in_thread(call: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as threads:
        threads.submit(call).result(60)


def test_an_asyncio_block_that_is_entered_again_inside_itself_commits_once(broker: fencepost.Broker) -> None:
    async def run() -> None:
        async with fencepost.AsyncProducer(broker.bootstrap_servers, transactional_id="x") as producer:
            await producer.init_transactions()
            block = producer.transaction()

            async def enter_again() -> None:
                async with block:
                    await producer.send("out", b"never")

            async with block:
                await producer.send("out", b"1")
                for call in (enter_again(), asyncio.ensure_future(enter_again())):
                    with pytest.raises(errors.UsageError, match="has not ended, so it cannot be entered again"):
                        await call
                await producer.send("out", b"2")
            async with block as same:
                assert same is producer
                await producer.send("out", b"3")

            @producer.transaction()
            async def decorated(value: bytes) -> None:
                await producer.send("out", value)

            await decorated(b"4")
            await decorated(b"5")

    asyncio.run(run())
    assert [record.value for record in read_all(broker, "out")] == [b"1", b"2", b"3", b"4", b"5"]
