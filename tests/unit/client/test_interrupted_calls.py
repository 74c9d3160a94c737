"""Signals, cancellations, other threads and tasks, closes and forks in the middle of every public call.

A record is handed out exactly once, or the position is not advanced; nothing hangs; errors are of Fencepost's classes.
Points of a call are numbers, drawn with a seed, so that a failure comes again.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import fencepost
from fencepost.errors import ClosedError, ForkedError, KafkaError, UsageError, WakeupError
from tests.support import interrupted_calls as calls
from tests.support.interrupted_calls import FACES, Ledger

# An exception of a signal handler may come while Python closes a generator, and is then only printed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

LONG_MS = 600_000
MOST_POINTS = 2_000
SEEDS = [1, 2]
POLLS: dict[str, Callable[[fencepost.Consumer], Any]] = {
    "poll": lambda consumer: consumer.poll(LONG_MS, 3),
    "poll_columns": lambda consumer: consumer.poll_columns(LONG_MS, 3),
    "poll_arrow": lambda consumer: consumer.poll_arrow(LONG_MS, 3),
}


@pytest.fixture(scope="module")
def own_broker() -> Iterator[str]:
    with fencepost.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["own", pytest.param("kafka", marks=pytest.mark.kafka)])
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    if request.param == "own":
        return str(request.getfixturevalue("own_broker"))
    return str(request.getfixturevalue("apache_kafka").bootstrap_servers)


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    with calls.nothing_hangs():
        yield


@pytest.fixture
def tp(bootstrap_servers: str) -> fencepost.TopicPartition:
    topic = f"interrupted-{uuid.uuid4().hex[:8]}"
    calls.fill(bootstrap_servers, topic, 1_500)
    return fencepost.TopicPartition(topic, 0)


@pytest.fixture
def consumer(bootstrap_servers: str, tp: fencepost.TopicPartition) -> Iterator[fencepost.Consumer]:
    with fencepost.Consumer(bootstrap_servers, group_id=tp.topic, auto_offset_reset="earliest") as reader:
        reader.assign([tp])
        yield reader


def read_on(consumer: fencepost.Consumer, ledger: Ledger, records: int) -> None:
    while len(ledger.given) < records:
        ledger.take(consumer.poll(5_000, records - len(ledger.given)))


# --- each public method ---


@pytest.mark.parametrize("face", FACES)
def test_each_public_method_is_driven(face: str, own_broker: str) -> None:
    """Without interruptions first: a parameter that is not in the table, or a programming error, is seen here."""
    client_type = FACES[face][0]
    assert calls.methods_of(client_type) == calls.methods_of(FACES[face][1])
    for name in calls.methods_of(client_type):
        with client_type(own_broker, **calls.settings_of(face)) as client:
            calls.outcome_of(client, name)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("face", FACES)
def test_a_method_that_a_signal_handler_interrupts_leaves_a_client_that_works(
    face: str, own_broker: str, seed: int
) -> None:
    chance = random.Random(seed)
    client_type = FACES[face][0]
    points = 0
    for name in calls.methods_of(client_type):
        with client_type(own_broker, **calls.settings_of(face)) as client:
            for _ in range(3):
                at = chance.randrange(1, 120)
                error = chance.choice([TimeoutError, KeyboardInterrupt, SystemExit])
                strikes, outcome = calls.struck(partial(calls.drive, client, name), at, calls.raising(error))
                points += strikes.struck
                if strikes.struck and isinstance(outcome, BaseException):
                    assert isinstance(outcome, (error, KafkaError)), (name, at, outcome)
            with ThreadPoolExecutor(1) as other:  # no interrupted call keeps other threads out
                other.submit(use, client).result()
    assert points > len(calls.methods_of(client_type))


def use(client: Any) -> object:
    """A call that needs the client: no interrupted call may hold it any more."""
    if isinstance(client, fencepost.Consumer):
        client.assign([])
    elif isinstance(client, fencepost.ShareConsumer):
        client.subscribe([calls.TOPIC])
    elif isinstance(client, fencepost.Producer):
        return client.partitions_for(calls.TOPIC)
    else:
        return client.list_topics()
    return client.metrics()


@pytest.mark.parametrize("face", ["Consumer", "ShareConsumer"])
def test_a_second_thread_is_refused_by_each_method_but_those_that_only_look(face: str, own_broker: str) -> None:
    with FACES[face][0](own_broker, **calls.settings_of(face)) as client:
        first = begin_poll(client)
        for name in calls.methods_of(type(client)):
            if name in calls.FROM_ANYWHERE:
                continue
            with pytest.raises(UsageError, match=rf"{'poll' if 'poll' in name else name}\(\): another thread"):
                calls.drive(client, name)
        for name in sorted(calls.FROM_ANYWHERE & set(calls.methods_of(type(client))) - {"wakeup", "fetch_range"}):
            refusal = refusal_of(client, name)
            assert "another thread" not in str(refusal), name
        client.close()
        assert isinstance(first(), ClosedError)


def refusal_of(client: Any, name: str) -> UsageError | None:
    try:
        calls.drive(client, name)
    except UsageError as error:
        return error
    return None


def begin_poll(client: Any) -> Callable[[], object]:
    """A poll in another thread that finds nothing; how it ended."""
    outcome: list[object] = []
    client.subscribe(["a-topic-without-records"])
    polls = client.metrics()["polls_total"]

    def poll() -> None:
        try:
            outcome.append(client.poll(LONG_MS))
        except KafkaError as error:
            outcome.append(error)

    thread = threading.Thread(target=poll, name="polling")
    thread.start()
    while client.metrics()["polls_total"] == polls:
        pass

    def end() -> object:
        thread.join()
        return outcome[0]

    return end


@pytest.mark.parametrize("face", ["Consumer", "ShareConsumer"])
def test_a_second_task_is_refused_by_each_method_but_those_that_only_look(face: str, own_broker: str) -> None:
    async def main() -> None:
        async with FACES[face][1](own_broker, **calls.settings_of(face)) as client:
            await client.subscribe(["a-topic-without-records"])
            first = asyncio.create_task(client.poll(LONG_MS), name="polling")
            await asyncio.sleep(0)
            for name in calls.methods_of(type(client)):
                if name in calls.FROM_ANYWHERE:
                    continue
                with pytest.raises(
                    UsageError, match=rf"{'poll' if 'poll' in name else name}\(\): another task .*polling"
                ):
                    await calls.drive_async(client, name)
            await client.close()
            with pytest.raises(ClosedError):
                await first

    asyncio.run(main())


@pytest.mark.parametrize("face", FACES)
def test_a_forked_child_is_told_by_each_method(face: str, own_broker: str) -> None:
    """A child that could not exit would hold the test; whoever answers, answers at once."""
    with FACES[face][0](own_broker, **calls.settings_of(face)) as client:
        if face in ("Consumer", "ShareConsumer"):
            client.subscribe(["a-topic-without-records"])
        for name in calls.methods_of(type(client)):
            child = os.fork()
            if not child:
                status = 1
                try:
                    calls.drive(client, name)
                    status = 0 if name in CHEAP else 2
                except ForkedError:
                    status = 0
                finally:
                    os._exit(status)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0, name


CHEAP = {"closed", "core", "metrics", "producer_id", "producer_epoch"}
"""Attributes that are read without any other thread, and so in a forked child too."""


# --- what was handed out ---


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("error", [TimeoutError, KeyboardInterrupt])
@pytest.mark.parametrize("method", POLLS)
def test_a_poll_that_raises_has_handed_out_nothing_and_one_that_returns_everything(
    consumer: fencepost.Consumer, tp: fencepost.TopicPartition, method: str, error: type[BaseException], seed: int
) -> None:
    chance, ledger, at, struck = random.Random(seed), Ledger(), 0, 0
    while at < MOST_POINTS:
        strikes, outcome = calls.struck(lambda: POLLS[method](consumer), at, calls.raising(error))
        struck += strikes.struck
        if not isinstance(outcome, BaseException):
            ledger.take(outcome)
        ledger.check(consumer.positions()[tp].offset if tp in consumer.positions() else 0)
        if not strikes.struck:
            break
        at += chance.randrange(1, 8)
    assert struck > 10
    read_on(consumer, ledger, 1_500)
    ledger.check(1_500)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_iteration_that_raises_gives_what_is_left_later(
    consumer: fencepost.Consumer, tp: fencepost.TopicPartition, seed: int
) -> None:
    chance, ledger, at, struck = random.Random(seed), Ledger(), 0, 0
    while at < MOST_POINTS:

        def take() -> None:
            for record in consumer:
                ledger.given.append(int(record.value or b""))
                if len(ledger.given) % 4 == 0:
                    break

        strikes, _ = calls.struck(take, at, calls.raising(TimeoutError))
        struck += strikes.struck
        ledger.check(consumer.positions()[tp].offset if tp in consumer.positions() else 0)
        if not strikes.struck:
            break
        at += chance.randrange(1, 12)
    assert struck > 4
    read_on(consumer, ledger, 1_500)
    ledger.check(1_500)


def test_a_record_of_next_is_returned_or_comes_again(
    consumer: fencepost.Consumer, tp: fencepost.TopicPartition
) -> None:
    ledger, struck = Ledger(), 0
    for _ in range(60):
        for at in range(40):  # a call that has its record already has few points, one that polls has many
            strikes, outcome = calls.struck(consumer.__next__, at, calls.raising(TimeoutError))
            struck += strikes.struck
            if not isinstance(outcome, BaseException):
                ledger.take([outcome])
            ledger.check(consumer.positions()[tp].offset if tp in consumer.positions() else 0)
            if not strikes.struck:
                break
            ledger.take([consumer.__next__()])
    assert struck > 100
    read_on(consumer, ledger, 1_500)
    ledger.check(1_500)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_commit_in_a_signal_handler_covers_what_polls_have_returned(
    consumer: fencepost.Consumer, tp: fencepost.TopicPartition, seed: int
) -> None:
    chance, ledger, at = random.Random(seed), Ledger(), 0
    committed: list[int] = []

    def commit() -> None:
        consumer.commit()
        found = consumer.committed([tp])
        committed.append(found[tp].offset if tp in found else 0)

    while at < MOST_POINTS:
        before = len(ledger.given)
        strikes, outcome = calls.struck(lambda: consumer.poll(LONG_MS, 3), at, commit)
        if not strikes.struck:
            break
        assert committed[-1] == before, f"point {at}"
        ledger.take(outcome)
        ledger.check(consumer.positions()[tp].offset)
        at += chance.randrange(4, 20)
    assert len(committed) > 5


def test_a_commit_in_a_signal_handler_while_the_poll_gets_its_records(
    consumer: fencepost.Consumer, tp: fencepost.TopicPartition, bootstrap_servers: str
) -> None:
    """The poll's end comes while the handler's own call waits: each has its own."""
    ledger = Ledger()
    read_on(consumer, ledger, 1_500)
    committed: list[int] = []

    def handler(*_: object) -> None:
        if handled.is_set():
            return
        handled.set()
        consumed = consumer.metrics()["records_consumed_total"]
        with fencepost.Producer(bootstrap_servers) as producer:
            producer.send(tp.topic, b"1500", partition=0).result(60)
        while consumer.metrics()["records_consumed_total"] == consumed:
            pass
        consumer.commit()
        committed.append(consumer.committed([tp])[tp].offset)

    polls = consumer.metrics()["polls_total"]
    main = threading.get_ident()

    handled = threading.Event()

    def strike() -> None:
        while consumer.metrics()["polls_total"] == polls:
            pass
        while not handled.wait(0.05):  # one that comes just before the thread begins to wait is not noticed
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        thread = threading.Thread(target=strike)
        thread.start()
        ledger.take(consumer.poll(LONG_MS))
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert committed == [1_500]
    ledger.check(consumer.positions()[tp].offset)


def test_a_poll_inside_of_a_poll_is_refused(consumer: fencepost.Consumer, tp: fencepost.TopicPartition) -> None:
    ledger, refused = Ledger(), 0

    def poll() -> None:
        nonlocal refused
        try:
            ledger.take(consumer.poll(LONG_MS, 3))
        except UsageError as error:
            refused += "poll() inside of poll()" in str(error)

    for at in range(0, 90, 3):
        _, outcome = calls.struck(lambda: consumer.poll(LONG_MS, 3), at, poll)
        ledger.take(outcome)
        ledger.check(consumer.positions()[tp].offset)
    assert refused


def test_a_close_in_a_signal_handler_ends_the_poll(consumer: fencepost.Consumer, tp: fencepost.TopicPartition) -> None:
    ledger = Ledger()
    read_on(consumer, ledger, 1_500)
    strikes, outcome = calls.struck(lambda: consumer.poll(LONG_MS), 12, consumer.close)
    assert strikes.struck
    assert isinstance(outcome, ClosedError)


def test_a_wakeup_in_a_signal_handler_ends_the_poll(consumer: fencepost.Consumer) -> None:
    read_on(consumer, Ledger(), 1_500)
    strikes, outcome = calls.struck(lambda: consumer.poll(LONG_MS), 12, consumer.wakeup)
    assert strikes.struck
    assert isinstance(outcome, WakeupError)


# --- asyncio ---


ASYNC_POLLS: dict[str, Callable[[fencepost.AsyncConsumer], Any]] = {
    "poll": lambda consumer: consumer.poll(LONG_MS, 3),
    "poll_columns": lambda consumer: consumer.poll_columns(LONG_MS, 3),
    "poll_arrow": lambda consumer: consumer.poll_arrow(LONG_MS, 3),
}


async def assigned(bootstrap_servers: str, tp: fencepost.TopicPartition) -> fencepost.AsyncConsumer:
    consumer = fencepost.AsyncConsumer(bootstrap_servers, group_id=tp.topic, auto_offset_reset="earliest")
    await consumer.assign([tp])
    return consumer


@pytest.mark.parametrize("method", ASYNC_POLLS)
def test_a_poll_cancelled_at_any_step_has_handed_out_nothing(
    bootstrap_servers: str, tp: fencepost.TopicPartition, method: str
) -> None:
    async def main() -> None:
        consumer, ledger, cut = await assigned(bootstrap_servers, tp), Ledger(), 0
        ledger.take(await consumer.poll(LONG_MS, 1))
        for steps in [*range(30), *range(30)]:
            task = asyncio.ensure_future(ASYNC_POLLS[method](consumer))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            try:
                ledger.take(await task)
            except asyncio.CancelledError:
                cut += 1
            ledger.check(consumer.positions()[tp].offset)
        assert cut > 1
        while len(ledger.given) < 1_500:
            ledger.take(await consumer.poll(5_000))
        ledger.check(consumer.positions()[tp].offset)
        await consumer.close()

    asyncio.run(main())


def test_a_cancelled_poll_touches_nothing_that_another_has(
    bootstrap_servers: str, tp: fencepost.TopicPartition
) -> None:
    async def main() -> None:
        consumer, ledger = await assigned(bootstrap_servers, tp), Ledger()
        ledger.take(await consumer.poll(LONG_MS, 1))
        first = asyncio.create_task(consumer.poll(5_000, 1))
        second = asyncio.create_task(consumer.poll(5_000, 1))
        await asyncio.sleep(0)
        first.cancel()
        for outcome in await asyncio.gather(first, second, return_exceptions=True):
            if isinstance(outcome, list):
                ledger.take(outcome)
            else:
                assert isinstance(outcome, (asyncio.CancelledError, UsageError))
        while len(ledger.given) < 1_500:
            ledger.take(await consumer.poll(5_000))
        ledger.check(consumer.positions()[tp].offset)
        await consumer.close()

    asyncio.run(main())


@pytest.mark.parametrize("seed", SEEDS)
def test_tasks_with_time_limits_that_share_a_consumer(
    bootstrap_servers: str, tp: fencepost.TopicPartition, seed: int
) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        consumer, ledger = await assigned(bootstrap_servers, tp), Ledger()
        refused = cut = 0

        async def worker() -> None:
            nonlocal refused, cut
            while len(ledger.given) < 1_500:
                task = asyncio.ensure_future(consumer.poll(500, 5))
                for _ in range(chance.randrange(1, 9)):
                    await asyncio.sleep(0)
                if chance.random() < 0.3:
                    task.cancel()
                try:
                    ledger.take(await task)
                except UsageError:
                    refused += 1
                    await asyncio.sleep(0.001)
                except asyncio.CancelledError:
                    cut += 1

        await asyncio.gather(*[worker() for _ in range(4)])
        assert refused
        assert cut
        ledger.given.sort()  # a worker may come to its records after the next worker to its own
        ledger.check(consumer.positions()[tp].offset)
        await consumer.close()

    asyncio.run(main())


def test_a_transaction_block_keeps_other_tasks_out(bootstrap_servers: str, tp: fencepost.TopicPartition) -> None:
    async def main() -> None:
        consumer = await assigned(bootstrap_servers, tp)
        async with consumer, fencepost.AsyncProducer(bootstrap_servers, transactional_id=tp.topic) as producer:
            await producer.init_transactions()

            async def other() -> object:
                return await consumer.poll(1_000, 3)

            async with producer.transaction(consumer):
                first = await consumer.poll(LONG_MS, 1)
                with pytest.raises(UsageError, match="in a transaction\\(\\) block"):
                    await asyncio.create_task(other())
                assert [int(record.value or b"") for record in first] == [0]
            assert (await consumer.committed([tp]))[tp].offset == 1
            assert [int(record.value or b"") for record in await asyncio.create_task(consumer.poll(5_000, 1))] == [1]

    asyncio.run(main())


def test_a_transaction_block_keeps_other_threads_out(
    consumer: fencepost.Consumer, bootstrap_servers: str, tp: fencepost.TopicPartition
) -> None:
    refusals: list[BaseException] = []

    def other() -> None:
        try:
            consumer.poll(0)
        except UsageError as error:
            refusals.append(error)

    with fencepost.Producer(bootstrap_servers, transactional_id=tp.topic) as producer:
        producer.init_transactions()
        with producer.transaction(consumer):
            assert len(consumer.poll(LONG_MS, 1)) == 1
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
    assert "in a transaction() block" in str(refusals[0])
    assert consumer.committed([tp])[tp].offset == 1
    other()
    assert len(refusals) == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_closing_lets_the_listener_commit(bootstrap_servers: str, tp: fencepost.TopicPartition, protocol: str) -> None:
    async def main() -> None:
        consumer = fencepost.AsyncConsumer(
            bootstrap_servers, group_id=tp.topic, auto_offset_reset="earliest", group_protocol=protocol
        )

        class Commit(fencepost.RebalanceListener):
            async def on_partitions_revoked(self, partitions: list[fencepost.TopicPartition]) -> None:
                await consumer.commit()

        await consumer.subscribe([tp.topic], Commit())
        given = 0
        while given < 1_500:
            given += len(await consumer.poll(5_000))
        await consumer.close()
        assert consumer.closed
        with fencepost.Admin(bootstrap_servers) as admin:
            assert admin.group_offsets(tp.topic)[tp].offset == 1_500

    asyncio.run(main())


def test_the_error_of_the_block_is_not_hidden_by_that_of_closing(own_broker: str) -> None:
    class Refuses(fencepost.RebalanceListener):
        def on_partitions_revoked(self, partitions: list[fencepost.TopicPartition]) -> None:
            raise ZeroDivisionError("in the listener")

    topic = f"hidden-{uuid.uuid4().hex[:8]}"
    calls.fill(own_broker, topic, 1)

    async def main() -> None:
        async with fencepost.AsyncConsumer(own_broker, group_id=topic, auto_offset_reset="earliest") as consumer:
            await consumer.subscribe([topic], Refuses())
            while not await consumer.poll(5_000):
                pass
            raise LookupError("of the body")

    with pytest.raises(LookupError) as failed:
        asyncio.run(main())
    assert failed.value.__notes__ == ["close() failed, too: ZeroDivisionError: in the listener"]

    def blocking() -> None:
        with fencepost.Consumer(own_broker, group_id=f"{topic}-2") as consumer:
            consumer.subscribe([topic], Refuses())
            while not consumer.assignment():
                consumer.poll(100)
            raise LookupError("of the body")

    with pytest.raises(LookupError) as failed:
        blocking()
    assert failed.value.__notes__ == ["close() failed, too: ZeroDivisionError: in the listener"]


def test_a_wakeup_from_another_thread_ends_a_poll_for_asyncio(own_broker: str) -> None:
    async def main() -> None:
        async with fencepost.AsyncConsumer(own_broker, group_id="woken") as consumer:
            await consumer.subscribe(["a-topic-without-records"])
            poll = asyncio.create_task(consumer.poll(LONG_MS))
            await asyncio.sleep(0)
            await asyncio.to_thread(consumer.wakeup)
            with pytest.raises(WakeupError):
                await poll

    asyncio.run(main())
