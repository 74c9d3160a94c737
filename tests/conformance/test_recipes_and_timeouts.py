"""The recipes go on when a transaction times out: on each transaction.version, and on Apache Kafka 3.9.

What has to be slow waits until the coordinator has ended the transaction, whenever that is.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import fencepost
from examples import arrow_in_and_out, asyncio_service, consume_transform_produce, recovery_loop
from fencepost import Isolation, OffsetSpec, TopicPartition
from fencepost.errors import FencedOrTimedOutError, ProducerFencedError
from tests.conformance.conftest import SETTINGS
from tests.support.brokers import HasAddress
from tests.support.older_kafka import OlderKafka
from tests.support.readme import ROOT

COUNT = 12
TIMEOUT_MS = 1_000
WAIT_S = 120
VALUES = [b"%d" % number for number in range(COUNT)]


def _arm(name: str, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(name, id=name, marks=marks)


@pytest.fixture(scope="module")
def kafka_of_version_2(apache_kafka: HasAddress) -> HasAddress:
    return apache_kafka


@pytest.fixture(
    scope="module",
    params=[
        *(_arm(f"fencepost-{level}") for level in (0, 1, 2)),
        *(_arm(f"kafka-{level}", pytest.mark.kafka) for level in (0, 1, 2)),
        _arm("kafka-3.9.1", pytest.mark.kafka, pytest.mark.slow),
    ],
)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    arm, level = request.param.split("-")
    if arm == "fencepost":
        with fencepost.Broker({**SETTINGS, "transaction.version": int(level)}) as broker:
            yield broker.bootstrap_servers
    elif "." in level:
        with OlderKafka(level) as kafka:
            yield kafka.bootstrap_servers
    else:
        yield request.getfixturevalue(f"kafka_of_version_{level}").bootstrap_servers


class Job:
    """Topics, a group, and the wait that makes the first transaction of each recipe too long."""

    def __init__(self, servers: str, *, transactional_id: str | None = None) -> None:
        unique = uuid.uuid4().hex[:8]
        self.servers = servers
        self.source, self.target, self.group = f"in-{unique}", f"out-{unique}", f"g-{unique}"
        self.transactional_id = transactional_id
        self._waited = False
        with fencepost.Admin(servers) as admin:
            for topic in (self.source, self.target):
                admin.create_topic(topic, 1)
        with fencepost.Producer(servers) as producer:
            for value in VALUES:
                producer.send(self.source, value)

    def wait_for_the_timeout(self) -> None:
        """Once: until the coordinator has ended the transaction of the recipe's producer."""
        if self._waited:
            return
        self._waited = True
        prefix = self.transactional_id or self.group
        deadline = time.monotonic() + WAIT_S
        with fencepost.Admin(self.servers) as admin:
            while not any(
                listing.state == "CompleteAbort"
                for listing in admin.list_transactions()
                if listing.transactional_id.startswith(prefix)
            ):
                assert time.monotonic() < deadline, admin.list_transactions()
                time.sleep(0.05)

    def committed(self) -> list[bytes | None]:
        partition = TopicPartition(self.target, 0)
        with fencepost.Admin(self.servers) as admin, fencepost.Consumer(self.servers) as consumer:
            end = admin.list_offsets({partition: OffsetSpec.LATEST}, isolation=Isolation.READ_UNCOMMITTED)[
                partition
            ].offset
            pieces = list(consumer.fetch_range(self.target, 0, 0, end, timeout_ms=60_000))
        return [value for piece in pieces for value in piece.columns.values()]

    def is_done(self) -> bool:
        with fencepost.Admin(self.servers) as admin:
            found = admin.group_offsets(self.group).get(TopicPartition(self.source, 0))
        return found is not None and found.offset == COUNT


@pytest.fixture
def job(servers: str) -> Job:
    return Job(servers)


def stop_when(done: Callable[[], bool], stopping: threading.Event) -> threading.Thread:
    def watch() -> None:
        deadline = time.monotonic() + WAIT_S
        while not done() and time.monotonic() < deadline:
            time.sleep(0.1)
        stopping.set()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_consume_transform_produce(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = _flushing(monkeypatch, consume_transform_produce)
    stopping = threading.Event()

    def transform(value: bytes) -> bytes:
        if value == VALUES[-1]:
            opened()
            job.wait_for_the_timeout()
        return value

    watching = stop_when(job.is_done, stopping)
    copied = consume_transform_produce.copy(
        job.servers, job.source, job.target, job.group, stopping, transform, transaction_timeout_ms=TIMEOUT_MS
    )
    watching.join()
    assert copied == COUNT
    assert job.committed() == VALUES


def _flushing(monkeypatch: pytest.MonkeyPatch, module: Any) -> Callable[[], None]:
    """Replace the recipe's Producer. Return a function that flushes the newest one.

    After the flush the coordinator knows the transaction of the producer.
    """
    producers: list[fencepost.Producer] = []

    class Known(fencepost.Producer):
        def init_transactions(self, keep_prepared: bool = False) -> Any:
            producers.append(self)
            return super().init_transactions(keep_prepared)

    monkeypatch.setattr(module, "Producer", Known)

    def flush() -> None:
        producers[-1].flush()

    return flush


def test_arrow_in_and_out(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = _flushing(monkeypatch, arrow_in_and_out)
    calls: list[bool] = []

    def transform(table: pa.Table) -> pa.Table:
        return table.select(["value"])

    class Slow(arrow_in_and_out.Producer):  # type: ignore[name-defined,misc] # the one of the line above
        def send_arrow(self, topic: str | None, data: Any, partition: int | None = None) -> Any:
            sent = super().send_arrow(topic, data, partition)
            if not calls:
                calls.append(True)
                opened()
                job.wait_for_the_timeout()
            return sent

    monkeypatch.setattr(arrow_in_and_out, "Producer", Slow)
    rows = arrow_in_and_out.copy(
        job.servers, job.source, job.target, job.group, 5, transform, transaction_timeout_ms=TIMEOUT_MS
    )
    assert rows == COUNT
    assert job.committed() == VALUES


def test_the_asyncio_service(job: Job) -> None:
    async def scenario() -> int:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        calls: list[int] = []

        async def handler(value: bytes) -> bytes:
            calls.append(1)
            if len(calls) == COUNT:  # its answers have been sent, and linger no more, by the time that this goes on
                await asyncio.to_thread(job.wait_for_the_timeout)
            return value

        watching = asyncio.create_task(asyncio.to_thread(_until, job.is_done))
        watching.add_done_callback(lambda _: loop.call_soon(stopping.set))
        served = await asyncio_service.serve(
            job.servers, job.source, job.target, job.group, stopping, handler, transaction_timeout_ms=TIMEOUT_MS
        )
        await watching
        return served

    assert asyncio.run(scenario()) == COUNT
    assert Counter(job.committed()) == Counter(VALUES)


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done() and time.monotonic() < deadline:
        time.sleep(0.1)


def test_the_recovery_loop(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    topic = f"ticks-{uuid.uuid4().hex[:8]}"
    with fencepost.Admin(servers) as admin:
        admin.create_topic(topic, 1)
    options = ["--bootstrap-servers", servers, "--topic", topic, "--count", "4", "--timeout-ms", str(TIMEOUT_MS)]
    # Longer than Apache Kafka's coordinator takes to look for timeouts (10 s) on top of the timeout itself.
    recovery_loop.main([*options, "--pause-s", "15"])
    assert "beginning again" in capsys.readouterr().out
    assert len(_committed(servers, topic)) == 4


def _committed(servers: str, topic: str) -> list[bytes | None]:
    job = Job.__new__(Job)
    job.servers, job.target = servers, topic
    return job.committed()


def test_the_loop_of_the_page_that_survives_everything(servers: str) -> None:
    """The text itself, with other names and one block that is too long."""
    page = (ROOT / "docs" / "transactions.md").read_text()
    found = re.search(r"## The loop that survives everything.*?```python\n(.*?)\n```", page, re.DOTALL)
    assert found is not None
    text = found[1].partition("if __name__")[0]
    transactional_id = f"billing-{uuid.uuid4().hex[:8]}"
    job = Job(servers, transactional_id=transactional_id)
    names = {
        '"billing-0"': f"{transactional_id!r}, transaction_timeout_ms={TIMEOUT_MS}",
        'group_id="billing"': f"group_id={job.group!r}",
        '"orders"': repr(job.source),
        '"invoices"': repr(job.target),
        "for record in records:": "for number, record in enumerate(records):",
        "producer.send(": "slowly(number == len(records) - 1, producer); producer.send(",
    }
    for old, new in names.items():
        assert old in text, old
        text = text.replace(old, new)

    def slowly(is_last: bool, producer: fencepost.Producer) -> None:
        if is_last:
            producer.flush()
            job.wait_for_the_timeout()

    scope: dict[str, Any] = {"slowly": slowly, "__name__": "page"}
    exec(text, scope)  # noqa: S102 (the page's own code)
    scope["bill"](servers, COUNT)
    assert job.committed() == VALUES


def test_two_owners_do_not_fight(servers: str) -> None:
    """A producer that was replaced in time is told so: it does not take the id back."""
    name = f"x-{uuid.uuid4().hex[:8]}"
    job = Job(servers, transactional_id=name)
    with (
        fencepost.Producer(servers, transactional_id=name) as old,
        fencepost.Producer(servers, transactional_id=name) as new,
    ):
        old.init_transactions()
        old.begin_transaction()
        old.send(job.target, b"old").result(WAIT_S)
        new.init_transactions()
        with pytest.raises(ProducerFencedError):
            old.commit_transaction()
        with new.transaction():
            new.send(job.target, b"new")
        old.close(0)
    assert job.committed() == [b"new"]


def test_a_producer_that_was_too_slow_and_then_replaced_is_fenced(servers: str) -> None:
    """The coordinator shows the new owner, though the old one's time was over."""
    name = f"x-{uuid.uuid4().hex[:8]}"
    job = Job(servers, transactional_id=name)
    with (
        fencepost.Producer(servers, transactional_id=name, transaction_timeout_ms=TIMEOUT_MS) as old,
        fencepost.Producer(servers, transactional_id=name) as new,
    ):
        old.init_transactions()
        old.begin_transaction()
        old.send(job.target, b"old").result(WAIT_S)
        job.wait_for_the_timeout()
        new.init_transactions()
        with pytest.raises((ProducerFencedError, FencedOrTimedOutError)) as raised:
            old.commit_transaction()
        assert isinstance(raised.value, ProducerFencedError)
        with new.transaction():
            new.send(job.target, b"new")
        old.close(0)
    assert job.committed() == [b"new"]
