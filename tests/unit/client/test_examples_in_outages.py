"""The loops of examples/ go through an outage of the coordinator that is longer than max_block_ms."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import fencepost
from examples import (
    arrow_in_and_out,
    asyncio_service,
    consume_transform_produce,
    dead_letters,
    recovery_loop,
    two_phase_template,
)
from fencepost.broker.embedded_control import Fault
from fencepost.testing import read_all

COUNT = 12
HITS = 12
IMPATIENT: dict[str, Any] = {"max_block_ms": 400, "request_timeout_ms": 400}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[fencepost.Broker]:
    producer = partial(fencepost.Producer, **IMPATIENT)
    for example in (arrow_in_and_out, consume_transform_produce, dead_letters):
        monkeypatch.setattr(example, "Producer", producer)
    monkeypatch.setattr(asyncio_service, "AsyncProducer", partial(fencepost.AsyncProducer, **IMPATIENT))
    with fencepost.Broker() as running:
        with fencepost.Admin(running.bootstrap_servers) as admin:
            admin.create_topic("in", 1)
            admin.create_topic("out", 1)
            admin.create_topic("dead", 1)
        with fencepost.Producer(running.bootstrap_servers) as source:
            for number in range(COUNT):
                source.send("in", b"%d" % number)
        yield running


@pytest.fixture(params=["drop_request", "drop_reply"])
def outage(request: pytest.FixtureRequest, broker: fencepost.Broker) -> Iterator[Fault]:
    """The coordinator answers no EndTxn, from the first one on, until so many were asked: by a commit and its abort."""
    fault = getattr(broker.faults, request.param)("EndTxn", times=HITS)
    yield fault
    assert fault.hits == HITS


def stop_when_copied(
    broker: fencepost.Broker, outage: Fault, stop: Callable[[], object], results: int = COUNT
) -> threading.Thread:
    def watch() -> None:
        deadline = time.monotonic() + 100
        while (len(read_all(broker, "out")) < results or outage.hits < HITS) and time.monotonic() < deadline:
            time.sleep(0.3)
        stop()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def values(broker: fencepost.Broker) -> list[int]:
    return sorted(int(record.value or b"-1") for record in read_all(broker, "out"))


def test_consume_transform_produce(broker: fencepost.Broker, outage: Fault) -> None:
    stopping = threading.Event()
    watcher = stop_when_copied(broker, outage, stopping.set)
    assert consume_transform_produce.copy(broker.bootstrap_servers, "in", "out", "g", stopping) <= COUNT
    watcher.join()
    assert values(broker) == list(range(COUNT))


def test_asyncio_service(broker: fencepost.Broker, outage: Fault) -> None:
    async def same(question: bytes) -> bytes:
        return question

    async def main() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        watcher = stop_when_copied(broker, outage, lambda: loop.call_soon_threadsafe(stopping.set))
        await asyncio_service.serve(broker.bootstrap_servers, "in", "out", "g", stopping, same)
        await asyncio.to_thread(watcher.join)

    asyncio.run(main())
    assert values(broker) == list(range(COUNT))


def test_dead_letters(broker: fencepost.Broker, outage: Fault) -> None:
    def same(value: bytes | None) -> bytes:
        if value == b"5":
            raise dead_letters.Unprocessable("planted")
        return value or b""

    stopping = threading.Event()
    watcher = stop_when_copied(broker, outage, stopping.set, results=COUNT - 1)
    dead_letters.process(broker.bootstrap_servers, "in", "out", "dead", "billing-0", stopping, same)
    watcher.join()
    assert values(broker) == [number for number in range(COUNT) if number != 5]
    assert [record.value for record in read_all(broker, "dead")] == [b"5"]


def test_arrow_in_and_out(broker: fencepost.Broker, outage: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = threading.Event()
    clock = SimpleNamespace(monotonic=lambda: math.inf if idle.is_set() else 0.0)
    monkeypatch.setattr(arrow_in_and_out, "time", clock)
    watcher = stop_when_copied(broker, outage, idle.set)
    arrow_in_and_out.copy(broker.bootstrap_servers, "in", "out", "g", idle_s=20)
    watcher.join()
    assert values(broker) == sorted(len(str(number)) for number in range(COUNT))


def test_the_two_phase_template(broker: fencepost.Broker, outage: Fault) -> None:
    with (
        fencepost.Consumer(broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest") as consumer,
        fencepost.Producer(broker.bootstrap_servers, transactional_id="x", **IMPATIENT) as producer,
    ):
        consumer.subscribe(["in"])
        producer.init_transactions()
        copied = 0
        while copied < COUNT:
            records = consumer.poll(1000, max_records=5)
            if records and two_phase_template.transfer(consumer, producer, records, "out"):
                copied += len(records)
    assert values(broker) == list(range(COUNT))


def test_the_recovery_loop(broker: fencepost.Broker, outage: Fault) -> None:
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="x", **IMPATIENT) as producer:
        recovery_loop.write_all(producer, "out", [b"%d" % n for n in range(COUNT)], lambda _: None)
    assert values(broker) == list(range(COUNT))
