"""Delivery reports of the confluent-kafka module: a signal handler raises, or several threads serve them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import pytest

import fencepost
from fencepost.compat.confluent_kafka import Message, Producer
from fencepost.testing import read_all
from tests.support import interrupted_calls as calls

# An exception may also come while Python runs a finalizer, and is then only printed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running, calls.nothing_hangs(300):
        yield running


def _note(offsets: list[int], _error: object, message: Message) -> None:
    offsets.append(message.offset() or 0)


def _count(called: list[int], number: int, _error: object, _message: object) -> None:
    called.append(number)


ACTS: dict[str, Callable[[Producer], object]] = {
    "poll": lambda client: client.poll(0),
    "flush": lambda client: client.flush(10),
    "produce": lambda client: client.produce("t", b"3"),
}


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
@pytest.mark.parametrize("act", ACTS)
def test_each_report_is_served_once(broker: fencepost.Broker, act: str, error: type[BaseException]) -> None:
    longest_s = 0.0
    for at in count():
        client = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        before = len(read_all(broker, "t"))
        arrived: list[int] = []
        for number in range(3):
            client.produce("t", b"%d" % number, on_delivery=partial(_note, arrived))
        if act != "flush":
            while len(client._reports._arrived) < 3:
                time.sleep(0.001)
        strikes, _ = calls.struck(lambda: ACTS[act](client), at, calls.raising(error))  # noqa: B023
        began_s = time.monotonic()
        assert client.flush(60) == 0, at
        longest_s = max(longest_s, time.monotonic() - began_s)
        assert client._reports.statistics()["msg_size"] == 0
        first = len(arrived) < 3  # struck where the callback of one began, which counts as called
        assert sorted(arrived) == sorted(set(arrived)), at
        assert len(arrived) == 3 - (1 if first else 0), at
        assert not first or strikes.struck
        assert before + 3 <= len(read_all(broker, "t")) <= before + 4
        client.close()
        if not strikes.struck:
            break
    assert at > 15
    assert longest_s < 30, "a record that was not accepted is waited for"


def test_several_threads_serve_each_report_once(broker: fencepost.Broker) -> None:
    client = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1})
    called: list[int] = []
    threads = [threading.Thread(target=_serve, args=(client, called)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(8_000):
        client.produce("many", b"x", on_delivery=partial(_count, called, number))
    for thread in threads:
        thread.join()
    assert client.flush(60) == 0
    assert sorted(called) == list(range(8_000))
    assert client._reports.statistics()["msg_size"] == 0
    client.close()


def _serve(client: Producer, called: list[int]) -> None:
    while len(called) < 8_000:
        client.poll(0.01)


def test_signals_during_calls_lose_no_report(broker: fencepost.Broker) -> None:
    """Real signals, which come where the interpreter lets them."""
    client = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1})
    called: list[int] = []
    armed = [False]
    struck = 0

    def strike(*_: object) -> None:
        if armed[0]:
            armed[0] = False
            raise TimeoutError("struck")

    def report(number: int, _error: object, _message: object) -> None:
        called.append(number)

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.0017)
    try:
        number = 0
        while struck < 500:
            number += 1
            try:
                armed[0] = True
                client.produce("signals", b"x", on_delivery=partial(report, number))
                client.poll(0)
                armed[0] = False
            except TimeoutError:
                struck += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert client.flush(60) == 0
    assert len(called) == len(set(called))
    missing = len(read_all(broker, "signals")) - len(called)
    assert 0 <= missing < struck / 5, "only a callback that was struck when it began is missing"
    client.close()
