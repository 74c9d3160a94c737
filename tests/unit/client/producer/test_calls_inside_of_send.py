"""A signal handler uses the producer whose `send()` it interrupts: each record is taken once, and nothing hangs.

In the accumulator the handler comes before each bytecode, more often than CPython lets one come; at the public door
before each line of the client. (A real signal comes where a function begins, behind a call of C, or at the end of a
loop's round.)
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import fencepost
from fencepost.client.blocking import producer as blocking_module
from fencepost.client.net import io_thread as io_module
from fencepost.client.producer import accumulator as accumulator_module
from fencepost.client.producer import chunks as chunks_module
from fencepost.client.producer import core as core_module
from fencepost.client.producer import unhandled_failures as unhandled_module
from fencepost.client.producer.accumulator import Accumulator
from fencepost.client.producer.chunks import Chunk
from fencepost.errors import ClosedError, UsageError
from fencepost.protocol.records.decoding import decode_batches
from fencepost.protocol.records.encoding import encode_rows
from fencepost.testing import read_all
from tests.support import interrupted_calls as calls
from tests.support.bytecodes import Steps
from tests.support.engines import ENGINES, engine

Handler = Callable[[], object]
CORE_FILES = (accumulator_module.__file__, chunks_module.__file__)
IO_FILE = io_module.__file__
CLIENT_FILES = (*CORE_FILES, blocking_module.__file__, core_module.__file__)


# --- the accumulator, at each bytecode ---

STRIDE = 3
"""Every third one, another third for each pair of calls: all of them take 15 s."""


class Ended(Exception):
    """The transaction in which a record was to be sent is over."""


class HistoryBuilder:
    """Records through an accumulator, and what was found in its chunks afterwards."""

    def __init__(self, name: str) -> None:
        self.woken = 0
        self.accumulator = Accumulator(
            wake=self._wake,
            now_ms=lambda: 0,
            wall_ms=lambda: 0,
            chunk_bytes=100,
            max_record_bytes=500,
            buffer_bytes=10_000,
            native=name == "native",
        )
        self.accumulator.check = self._check
        self.appended: dict[bytes, tuple[Chunk, int]] = {}
        self.closed: list[Chunk] = []
        self.transaction = 1
        self.is_open = True
        self.ends: list[int] = []  # how many chunks were closed when each transaction ended

    def _wake(self) -> None:
        self.woken += 1

    def _check(self) -> None:
        if not self.is_open:
            raise Ended

    def begin(self, interrupted: str) -> None:
        """A record, in an open chunk unless the record to come is to be the first of its own."""
        self.accumulator.refuse()
        self.add(b"0", partition=0)
        if interrupted == FIRST:
            self.flush()

    def add(self, value: bytes, **extras: Any) -> None:
        names = ("key", "partition", "headers", "timestamp_ms", "on_delivery")
        self.appended[value] = self.accumulator.append("t", value, *(extras.get(name) for name in names))

    def table(self, value: bytes) -> None:
        self.appended[value] = (self.accumulator.append_table("t", value, 10), 0)

    def flush(self) -> None:
        """As the I/O thread does."""
        self.accumulator.close_all()
        self.closed += iter(self.accumulator.take, None)

    def end(self) -> None:
        self.is_open = False
        self.flush()
        self.ends.append(len(self.closed))

    def found(self) -> list[tuple[bytes, tuple[Chunk, int]]]:
        self.flush()
        return [
            (value, (chunk, row))
            for chunk in self.closed
            for row, value in ([(0, chunk.table)] if chunk.is_table else values_of(chunk))
        ]


def values_of(chunk: Chunk) -> list[tuple[int, bytes]]:
    """Row and value of each record."""
    values: Sequence[bytes | None] = chunk.values
    if chunk.native is not None and chunk.count:
        batch = encode_rows(chunk.native, None, chunk.count, 0, None, "none", None)
        values = decode_batches(batch).values()
    return [(row, bytes(values[row] or b"")) for row in chunk.row_numbers]


def several(story: HistoryBuilder) -> None:
    for number in range(4):
        story.add(b"nested-%d" % number, partition=number, on_delivery=print)


def record_and_flush(story: HistoryBuilder) -> None:
    story.add(b"nested-0")
    story.flush()


def flush_and_record(story: HistoryBuilder) -> None:
    story.flush()
    story.add(b"nested-0")


def begin_again(story: HistoryBuilder) -> None:
    story.end()
    story.is_open = True


HANDLERS: dict[str, Callable[[HistoryBuilder], object]] = {
    "a plain record": lambda story: story.add(b"nested-0"),
    "a record with everything": lambda story: story.add(
        b"nested-0", key=b"k", partition=7, headers={"h": b""}, timestamp_ms=7, on_delivery=print
    ),
    "records that fill chunks": several,
    "a table": lambda story: story.table(b"nested-0"),
    "a flush": HistoryBuilder.flush,
    "a record and a flush": record_and_flush,
    "a flush and a record": flush_and_record,
    "a new transaction": begin_again,
}
FIRST = "the first record of a chunk"
INTERRUPTED: dict[str, Callable[[HistoryBuilder], object]] = {
    FIRST: lambda story: story.add(b"x" * 19),
    "a plain record": lambda story: story.add(b"x"),
    "a keyed record": lambda story: story.add(b"x", key=b"key"),
    "a record with everything": lambda story: story.add(
        b"x", key=b"k", partition=5, headers={"i": b""}, timestamp_ms=5, on_delivery=repr
    ),
    "a record that fills its chunk": lambda story: story.add(b"x" * 60),
    "a table": lambda story: story.table(b"x"),
}


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("interrupted", INTERRUPTED)
def test_each_record_is_taken_once_whatever_a_handler_does_at_any_bytecode(
    interrupted: str, handler: str, name: str
) -> None:
    with engine(name):
        assert inside(interrupted, handler, name) > 100


def inside(interrupted: str, handler: str, name: str) -> int:
    for at in count(1 + len(interrupted + handler) % STRIDE, STRIDE):
        story = HistoryBuilder(name)
        story.begin(interrupted)
        steps = Steps(at, lambda story=story: HANDLERS[handler](story), CORE_FILES, "opcode")  # type: ignore[misc]
        steps.during(lambda story=story: INTERRUPTED[interrupted](story))  # type: ignore[misc]
        story.add(b"last", partition=9)
        found = story.found()
        values = [value for value, _ in found]
        assert sorted(values) == sorted(story.appended), at
        assert all(story.appended[value] == at_row for value, at_row in found), at
        assert (values[0], values[-1]) == (b"0", b"last"), at
        for column, wanted_of in (("partitions", {b"0": 0, b"last": 9}), ("timestamps", {})):
            for value, wanted in wanted_of.items():
                chunk, row = story.appended[value]
                assert (getattr(chunk, column) or {}).get(row) == wanted
        for chunk in story.closed:
            story.accumulator.released(chunk)
        assert (story.accumulator.waiting_bytes, story.accumulator.open) == (0, {}), at
        if not steps.struck:
            break
    return at


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("interrupted", INTERRUPTED)
def test_no_record_is_taken_behind_the_end_of_its_transaction(interrupted: str, name: str) -> None:
    with engine(name):
        at, refused = at_the_end(interrupted, name)
    assert at > 100
    assert 0 < refused < at


def at_the_end(interrupted: str, name: str) -> tuple[int, int]:
    refused = 0
    for at in count(1):
        story = HistoryBuilder(name)
        story.begin(interrupted)
        steps = Steps(at, story.end, CORE_FILES, "opcode")
        try:
            steps.during(lambda story=story: INTERRUPTED[interrupted](story))  # type: ignore[misc]
        except Ended:
            refused += 1
        found = story.found()
        assert sorted(value for value, _ in found) == sorted(story.appended), at
        if not steps.struck:
            break
        assert len(story.closed) == story.ends[0], f"{at}: a record of no transaction"
    return at, refused


# --- the public door, at each line ---


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    with calls.nothing_hangs():
        yield


SENDS: dict[str, Callable[[fencepost.Producer, str], Any]] = {
    "a plain record": lambda producer, topic: producer.send(topic, b"x").result,
    "a record with extras": lambda producer, topic: producer.send(topic, b"x", partition=0, headers={"a": b""}).result,
    "a record that fills its chunk": lambda producer, topic: producer.send(topic, b"x" * 2_000).result,
    "Arrow data": lambda producer, topic: producer.send_arrow(topic, pa.table({"value": [b"x"]})).result,
}


def send_and_wait(producer: fencepost.Producer, topic: str) -> None:
    assert producer.send(topic, b"nested").result(60).topic == topic


def arrow(producer: fencepost.Producer, topic: str) -> None:
    producer.send_arrow(topic, pa.table({"value": [b"nested"]})).result(60)


def flush(producer: fencepost.Producer, topic: str) -> None:
    producer.send(topic, b"nested", partition=0)
    producer.flush()


def another_client(producer: fencepost.Producer, topic: str) -> None:
    del producer
    with fencepost.Producer(SERVERS[0]) as another:
        another.send(topic, b"nested").result(60)


SERVERS: list[str] = []
IN_BETWEEN = {
    "sends and waits": send_and_wait,
    "sends Arrow": arrow,
    "flushes": flush,
    "makes a client": another_client,
}


def lines_of(call: Callable[[], Any]) -> int:
    steps = Steps(-1, lambda: None, CLIENT_FILES, "line")
    steps.during(call)
    return steps.steps


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("between", IN_BETWEEN)
@pytest.mark.parametrize("send", SENDS)
def test_a_handler_that_sends_flushes_or_makes_clients(
    broker: fencepost.Broker, send: str, between: str, name: str
) -> None:
    with engine(name):
        at = while_sending(broker, send, between)
    assert at > (5 if name == "native" else 10)


def while_sending(broker: fencepost.Broker, send: str, between: str) -> int:
    SERVERS[:] = [broker.bootstrap_servers]
    topic, at = f"inside-{uuid.uuid4().hex[:8]}", 0
    reported: list[Any] = []
    with fencepost.Producer(broker.bootstrap_servers, batch_size=1_000, linger_ms=0) as producer:
        producer.send(topic, b"first").result(60)
        while True:
            at += 1
            steps = Steps(at, lambda: IN_BETWEEN[between](producer, topic), CLIENT_FILES, "line")
            reported.append(steps.during(lambda: SENDS[send](producer, topic)))
            if not steps.struck:
                break
        reported = [result(60) for result in reported]
    written = [record.value for record in read_all(broker, topic)]
    assert written.count(b"nested") == at - 1
    assert len(written) == 1 + at + at - 1
    offsets = [each[0].base_offset if isinstance(each, list) else each.offset for each in reported]
    assert offsets == sorted(set(offsets))
    assert all((written[at_row] or b"").startswith(b"x") for at_row in offsets)
    return at


@pytest.mark.parametrize("send", SENDS)
def test_a_handler_that_closes_the_producer(broker: fencepost.Broker, send: str) -> None:
    topic, sent, closed = f"inside-{uuid.uuid4().hex[:8]}", 0, 0
    for at in count(1):
        producer = fencepost.Producer(broker.bootstrap_servers, linger_ms=0)
        steps = Steps(at, producer.close, CLIENT_FILES, "line")
        try:
            steps.during(lambda producer=producer: SENDS[send](producer, topic))(60)  # type: ignore[misc]
            sent += 1
        except ClosedError:
            closed += 1
        producer.close()
        assert len(read_all(broker, topic)) == sent, at
        if not steps.struck:
            break
    assert closed > 10
    assert sent >= 1


@pytest.mark.parametrize("send", SENDS)
def test_a_handler_that_ends_the_transaction(broker: fencepost.Broker, send: str) -> None:
    """The record is in the transaction that is over, or refused; with another one begun, in either."""
    topic = f"inside-{uuid.uuid4().hex[:8]}"
    refused = taken = 0
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for at in count(1):
            producer.begin_transaction()
            steps = Steps(at, producer.commit_transaction, CLIENT_FILES, "line")
            try:
                steps.during(lambda: SENDS[send](producer, topic))
                taken += 1
            except UsageError:
                refused += 1
            if not steps.struck:
                producer.commit_transaction()
            assert len(read_all(broker, topic)) == taken, at
            if not steps.struck:
                break
    assert refused > 10


@pytest.mark.parametrize("send", SENDS)
def test_a_handler_that_begins_another_transaction(broker: fencepost.Broker, send: str) -> None:
    topic = f"inside-{uuid.uuid4().hex[:8]}"
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()

        def between() -> None:
            producer.commit_transaction()
            producer.begin_transaction()

        for at in count(1):
            producer.begin_transaction()
            steps = Steps(at, between, CLIENT_FILES, "line")
            steps.during(lambda: SENDS[send](producer, topic))
            producer.commit_transaction()
            assert len(read_all(broker, topic)) == at
            if not steps.struck:
                break
    assert at > 10


# --- and while a thread waits ---

WAITING_FILES = (*CLIENT_FILES, IO_FILE, unhandled_module.__file__, threading.__file__)


@pytest.mark.parametrize("send", SENDS)
def test_a_handler_that_flushes_while_a_result_is_waited_for(broker: fencepost.Broker, send: str) -> None:
    """Also within the standard library's own locks, where the client uses these."""
    topic = f"inside-{uuid.uuid4().hex[:8]}"
    with fencepost.Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        producer.send(topic, b"first").result(60)
        for at in count(1):
            result = SENDS[send](producer, topic)
            steps = Steps(at, producer.flush, WAITING_FILES, "line")
            steps.during(partial(result, 60))
            if not steps.struck:
                break
    assert at > 10


def test_a_handler_that_flushes_in_the_middle_of_a_transactional_call(broker: fencepost.Broker) -> None:
    topic = f"inside-{uuid.uuid4().hex[:8]}"
    with (
        fencepost.Producer(broker.bootstrap_servers, transactional_id=topic) as producer,
        fencepost.Producer(broker.bootstrap_servers) as other,
    ):
        producer.init_transactions()

        def block() -> None:
            with producer.transaction():
                producer.send(topic, b"x")

        for at in count(1):
            steps = Steps(at, lambda: send_and_wait(other, topic), WAITING_FILES, "line")
            steps.during(block)
            if not steps.struck:
                break
    assert at > 30
    written = [record.value for record in read_all(broker, topic)]
    assert (written.count(b"x"), written.count(b"nested")) == (at, at - 1)


def test_a_handler_that_makes_the_first_client_of_the_process_inside_of_the_first(
    broker: fencepost.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> fencepost.Producer:
        return fencepost.Producer(broker.bootstrap_servers)

    threads = io_threads()
    for at in count(1):
        with monkeypatch.context() as patch:
            patch.setattr(io_module, "_by_process", {})
            producers: list[fencepost.Producer] = []
            steps = Steps(at, lambda producers=producers: producers.append(make()), (IO_FILE,), "line")  # type: ignore[misc]
            producers.append(steps.during(make))
            assert len({each._io for each in producers}) == 1, at
            for each in producers:
                each.close()
            producers[0]._io.stop()
        if not steps.struck:
            break
    assert at > 20
    for thread in io_threads() - threads:
        thread.join(60)
    assert io_threads() <= threads


def io_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "fencepost-io"}
