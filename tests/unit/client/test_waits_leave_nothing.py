"""A wait with a time limit leaves nothing behind when its time is up, so it can be repeated for ever."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Iterator
from functools import partial

import pytest

import fencepost
from fencepost.errors import KafkaError, ProduceFailedError

ROUNDS = 300  # many more than the objects that other threads of the process keep meanwhile
Once = Callable[[], object]


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def objects_left_by(once: Once, settle: Once) -> int:
    """Objects more, after many calls of `once`, than after a few."""
    for _ in range(10):
        once()
    settle()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(ROUNDS):
        once()
    settle()
    gc.collect()
    return len(gc.get_objects()) - before


def late(call: Callable[[], object]) -> None:
    """Make a call whose time is too short. A poll returns nothing instead of raising."""
    try:
        call()
    except (KafkaError, TimeoutError):
        return


def test_blocking_producer(silent: str) -> None:
    pa = pytest.importorskip("pyarrow")
    producer = fencepost.Producer(silent, max_block_ms=600_000)
    try:
        delivery = producer.send("t", b"v")
        rows = producer.send_arrow("t", pa.table({"value": [b"v"]}))
        calls: dict[str, Once] = {
            "result": lambda: delivery.result(0.001),
            "exception": lambda: delivery.exception(0.001),
            "arrow": lambda: rows.result(0.001),
            "flush": lambda: producer.flush(timeout_ms=1),
        }
        for name, call in calls.items():
            left = objects_left_by(partial(late, call), lambda: late(lambda: producer.flush(timeout_ms=1)))
            assert left < ROUNDS // 2, name
    finally:
        with pytest.raises(ProduceFailedError):
            producer.close(0)


def test_asyncio_producer(silent: str) -> None:
    async def run() -> None:
        producer = fencepost.AsyncProducer(silent, max_block_ms=600_000)
        delivery = await producer.send("t", b"v")
        try:
            for name, wait in (("delivery", lambda: delivery), ("flush", lambda: producer.flush(timeout_ms=60_000))):
                left = []
                for rounds in (10, ROUNDS):
                    for _ in range(rounds):
                        with pytest.raises(TimeoutError):
                            await asyncio.wait_for(wait(), 0.001)
                    gc.collect()
                    left.append(len(gc.get_objects()))
                assert left[1] - left[0] < ROUNDS // 2, name
        finally:
            with pytest.raises(ProduceFailedError):
                await producer.close(0)

    asyncio.run(run())


def test_blocking_readers(silent: str) -> None:
    consumer = fencepost.Consumer(silent, group_id="g", default_api_timeout_ms=600_000)
    consumer.subscribe(["t"])
    shares = fencepost.ShareConsumer(silent, group_id="g")
    shares.subscribe(["t"])
    at = fencepost.TopicPartition("t", 0)
    calls: dict[str, Once] = {
        "poll": lambda: consumer.poll(timeout_ms=1),
        "share poll": lambda: shares.poll(timeout_ms=1),
        "offsets_for": lambda: consumer.offsets_for({at: 0}, timeout_ms=1),
        "committed": lambda: consumer.committed([at], timeout_ms=1),
    }
    try:
        for name, call in calls.items():
            left = objects_left_by(partial(late, call), lambda: late(lambda: consumer.poll(timeout_ms=1)))
            assert left < ROUNDS // 2, name
    finally:
        consumer.close(0)
        shares.close(0)


def test_admin(silent: str) -> None:
    with fencepost.Admin(silent, default_api_timeout_ms=1) as admin:

        def once() -> None:
            late(admin.list_topics)

        assert objects_left_by(once, once) < ROUNDS // 2
