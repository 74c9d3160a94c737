"""A signal that does not wake the waiting thread, because another thread receives it, ends every blocking call soon.

The same happens to a signal that arrives just before the thread begins to wait, which no test can time.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty
from typing import Any

import pyarrow as pa
import pytest

import fencepost
from fencepost.compat import confluent_kafka
from fencepost.errors import KafkaTimeoutError, ProduceFailedError
from fencepost.process import signal_waits

LATE_S = 10.0
"""Time after which a second signal wakes the main thread itself, so that a failing test ends."""
LONG_MS = 600_000


def strike(stop: threading.Event, late: threading.Event) -> None:
    """Send SIGINT to this thread once the main thread has stood at one instruction for a while."""
    main = threading.main_thread().ident or 0
    stood, at = 0, None
    while stood < 25 and not stop.wait(0.002):
        frame = sys._current_frames()[main]
        now = (id(frame), frame.f_lasti)
        stood, at = (stood + 1 if now == at else 0), now
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    if not stop.wait(LATE_S):
        late.set()
        signal.pthread_kill(main, signal.SIGINT)


def interrupted(call: Callable[[], Any]) -> None:
    """Fail unless a SIGINT that another thread receives ends the call with KeyboardInterrupt."""
    stop, late = threading.Event(), threading.Event()
    striker = threading.Thread(target=strike, args=(stop, late))
    striker.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        stop.set()
        striker.join()
    assert not late.is_set(), f"a signal did not end the call for {LATE_S:g} s"


@pytest.fixture(scope="module")
def silence() -> Iterator[str]:
    """Yield an address at which connections are accepted, and no request is answered."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as bound:
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with fencepost.Broker() as broker:
        yield broker.bootstrap_servers


CALLS: dict[str, tuple[Callable[[str], Any], Callable[[Any], Any]]] = {
    "admin": (lambda at: fencepost.Admin(at, request_timeout_ms=60_000), lambda admin: admin.list_topics()),
    "producer": (
        lambda at: fencepost.Producer(at, request_timeout_ms=60_000),
        lambda producer: producer.partitions_for("t"),
    ),
    "transactional producer": (
        lambda at: fencepost.Producer(at, request_timeout_ms=60_000, transactional_id="t"),
        lambda producer: producer.init_transactions(),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_to_a_broker_that_does_not_answer_is_interrupted(name: str, silence: str) -> None:
    make, call = CALLS[name]
    with make(silence) as client:
        interrupted(lambda: call(client))


@pytest.mark.parametrize("wait", ["flush", "result", "exception", "result in time", "result of Arrow data"])
def test_a_wait_for_a_delivery_is_interrupted(wait: str, silence: str) -> None:
    with fencepost.Producer(silence, delivery_timeout_ms=120_000, request_timeout_ms=60_000) as producer:
        delivery = producer.send("t", b"value", partition=0)
        bulk = producer.send_arrow("t", pa.table({"value": [b"value"], "partition": pa.array([0], pa.int32())}))
        waits: dict[str, Callable[[], Any]] = {
            "flush": producer.flush,
            "result": delivery.result,
            "exception": delivery.exception,
            "result of Arrow data": bulk.result,
            "result in time": lambda: delivery.result(600),
        }
        interrupted(waits[wait])
        with pytest.raises(ProduceFailedError, match="closed before this record was delivered"):
            producer.close(timeout_ms=0)


@pytest.mark.parametrize("method", ["poll", "poll_columns", "poll_arrow", "fetch_range", "iterate"])
def test_a_consumer_is_interrupted(method: str, servers: str) -> None:
    with fencepost.Admin(servers) as admin:
        admin.create_topics([f"empty-{method}"])
    with fencepost.Consumer(servers, group_id=f"g-{method}") as consumer:
        partition = fencepost.TopicPartition(f"empty-{method}", 0)
        consumer.assign([partition])
        if method == "fetch_range":
            interrupted(lambda: list(consumer.fetch_range(partition.topic, 0, 0, 1, timeout_ms=LONG_MS)))
        elif method == "iterate":
            interrupted(lambda: next(iter(consumer)))
        else:
            interrupted(lambda: getattr(consumer, method)(LONG_MS))


def test_a_share_consumer_is_interrupted(servers: str) -> None:
    with fencepost.ShareConsumer(servers, group_id="shared") as consumer:
        consumer.subscribe(["empty-poll"])
        interrupted(lambda: consumer.poll(LONG_MS))


@pytest.mark.parametrize("call", ["poll", "consume", "flush"])
def test_a_client_with_the_names_of_confluent_kafka_is_interrupted(call: str, servers: str, silence: str) -> None:
    if call == "flush":
        producer = confluent_kafka.Producer({"bootstrap.servers": silence, "socket.timeout.ms": 60_000})
        producer.produce("t", b"value", partition=0)
        interrupted(producer.flush)
        producer.purge()
        return
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": f"compat-{call}"})
    if call == "poll":
        interrupted(consumer.poll)  # no partition is assigned: it waits without the broker
    else:
        consumer.subscribe(["empty-poll"])
        interrupted(consumer.consume)
    consumer.close()


def test_a_wait_for_the_failure_of_a_broker_is_interrupted() -> None:
    with fencepost.Broker() as broker:
        interrupted(lambda: broker.wait_for_failure(600))


def test_a_program_that_runs_until_a_signal_is_interrupted() -> None:
    interrupted(lambda: signal_waits.Latch().wait())


def test_a_pause_is_interrupted() -> None:
    interrupted(lambda: signal_waits.pause(600))


def test_each_wait_returns_what_comes() -> None:
    items: signal_waits.WaitQueue[int] = signal_waits.WaitQueue()
    future: Future[int] = Future()
    failed: Future[int] = Future()
    latch = signal_waits.Latch()
    failed.set_exception(TimeoutError("its own"))

    def later() -> None:
        time.sleep(signal_waits.LOOK_S * 1.5)
        items.put(1)
        time.sleep(signal_waits.LOOK_S * 1.5)
        future.set_result(2)
        time.sleep(signal_waits.LOOK_S * 1.5)
        latch.set()

    with ThreadPoolExecutor(1) as other:
        other.submit(later)
        with pytest.raises(Empty):
            items.get(0)
        assert not latch.wait(signal_waits.LOOK_S / 2)
        assert items.get(60) == 1
        assert signal_waits.result_of(future) == 2
        assert latch.wait()
        assert latch.is_set
    with pytest.raises(TimeoutError, match="its own"):
        signal_waits.result_of(failed)


@pytest.mark.parametrize("wait", ["result", "exception", "result of Arrow data", "latch", "queue"])
def test_a_time_limit_holds_in_spite_of_a_slow_signal_handler(wait: str, silence: str) -> None:
    """A handler that takes longer than the rest of the limit: CPython's SimpleQueue waits for ever then."""
    handled: list[int] = []

    def slow(*_: object) -> None:
        time.sleep(2 * signal_waits.LOOK_S)
        handled.append(1)

    with fencepost.Producer(silence, delivery_timeout_ms=60_000, request_timeout_ms=50_000) as producer:
        delivery = producer.send("t", b"value", partition=0)
        bulk = producer.send_arrow("t", pa.table({"value": [b"value"], "partition": pa.array([0], pa.int32())}))
        waits: dict[str, Callable[[float], Any]] = {
            "result": delivery.result,
            "exception": delivery.exception,
            "result of Arrow data": bulk.result,
            "latch": signal_waits.Latch().wait,
            "queue": signal_waits.WaitQueue[int]().get,
        }
        before = signal.signal(signal.SIGALRM, slow)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        began_s = time.monotonic()
        try:
            with suppress(KafkaTimeoutError, Empty):
                assert not waits[wait](1.0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        took_s = time.monotonic() - began_s
        assert handled
        assert 0.9 < took_s < LATE_S
        with pytest.raises(ProduceFailedError, match="closed before this record was delivered"):
            producer.close(timeout_ms=0)
