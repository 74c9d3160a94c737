"""Memory for requests that are not whole yet, or wait, of all connections together (queued.max.request.bytes)."""

from __future__ import annotations

import fcntl
import logging
import socket
import struct
import termios
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import cast

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.network import backpressure
from fencepost.broker.network.backpressure import PendingRequests
from fencepost.broker.network.memory_watch import MemoryWatch
from fencepost.broker.network.sockets import ClientSocket
from fencepost.broker.settings.table import InvalidSetting
from fencepost.broker.settings.values import BrokerConfig
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.usefixtures("both_sockets")

MB = 1 << 20
FETCH = 1
LIMIT = {"queued.max.request.bytes": str(4 * MB), "socket.request.max.bytes": str(4 * MB)}


def test_the_oldest_is_read_from_while_memory_is_scarce() -> None:
    requests = PendingRequests(100)
    for number in (1, 2, 3):
        requests.note(number, number, 40)
    assert requests.total == 120
    assert [requests.may_read(number) for number in (1, 2, 3, 4)] == [True, False, False, True]
    requests.note(4, 1, 0)  # whole
    assert all(map(requests.may_read, (1, 2, 3)))


def test_the_largest_of_the_old_ones_are_given_up_until_there_is_room() -> None:
    requests = PendingRequests(100)
    for number, size in ((1, 20), (2, 90), (3, 60), (4, 10)):
        requests.note(0, number, size)
    assert requests.given_up(9_999) == []
    assert requests.given_up(10_000) == [2]
    assert (requests.total, requests.holders) == (90, [1, 3, 4])


def test_a_connection_that_finishes_requests_is_never_old() -> None:
    requests = PendingRequests(100)
    for now_ms in range(0, 50_000, 5_000):
        requests.note(now_ms, 1, 200, finished=True)
        assert requests.given_up(now_ms) == []
    requests.note(50_000, 1, 200)
    assert requests.given_up(55_000) == [1]


def test_without_a_bound_nothing_is_scarce() -> None:
    requests = PendingRequests(-1)
    requests.note(0, 1, 1 << 40)
    assert not requests.is_scarce


def test_while_memory_is_scarce_a_part_of_a_request_concerns_two_connections_at_most() -> None:
    """Of 300 connections that hold memory, only the oldest is read from."""
    looks: list[int] = []
    watch = watching(looks, count=300)
    for number in range(1, 301):
        watch.record_held(number, 64 * 1024, finished=False)
    assert watch.requests.is_scarce
    looks.clear()
    watch.record_held(1, 128 * 1024, finished=False)
    watch.record_held(301, 64 * 1024, finished=False)
    assert looks == []
    watch.record_held(1, 0, finished=True)
    assert looks == [2]
    looks.clear()
    for number in range(300, 250, -1):
        watch.record_held(number, 0, finished=True)
    assert looks == []
    for number in range(2, 251):
        watch.record_held(number, 0, finished=True)
    assert watch.requests.oldest is None
    assert 301 in looks


def watching(looks: list[int], *, count: int) -> MemoryWatch:
    """A watch over connections that note when they are asked to look whether they may read."""

    class Noting:
        def __init__(self, number: int) -> None:
            self.number = number

        def listen(self) -> None:
            looks.append(self.number)

    clients = {number: cast("ClientSocket", Noting(number)) for number in range(1, count + 2)}
    return MemoryWatch(BrokerConfig(LIMIT), clients, lambda _, __: threading.Timer(0, int), lambda: 0, Metrics)


def test_the_bound_has_room_for_one_request() -> None:
    assert BrokerConfig({"socket.request.max.bytes": 512 * MB}).most_queued_request_bytes == 512 * MB
    assert BrokerConfig({"queued.max.request.bytes": -1}).most_queued_request_bytes == -1
    with pytest.raises(InvalidSetting, match=r"queued.max.request.bytes .* must be larger or equal to socket.request"):
        BrokerConfig({"queued.max.request.bytes": MB})


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(LIMIT) as running:
        yield running


def half_requests(broker: Broker, stack: ExitStack, count: int) -> list[socket.socket]:
    """Connections that each announce a request of 4 MB and send a byte less, as far as the broker reads it."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    connections = []
    for _ in range(count):
        connection = stack.enter_context(socket.create_connection((host, int(port))))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * MB)
        connection.setblocking(False)
        connection.send(struct.pack(">i", 4 * MB) + bytes(4 * MB - 1))
        connections.append(connection)
    return connections


def held(broker: Broker) -> float:
    return broker.metrics().gauges["unfinished_request_bytes"]


def test_unfinished_requests_leave_room_for_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backpressure, "_OLD_MS", 3_600_000)
    with ExitStack() as stack, RawClient(broker.bootstrap_servers, timeout_s=120) as client:
        half_requests(broker, stack, 30)
        client.create_topic("t", 1)
        for number in range(20):
            client.produce("t", [b"%d" % number])
        # The bound, the growth that exceeded it, that of the oldest, and the first read of each of the others.
        assert held(broker) <= 4 * MB + 2 * 3 * MB + 30 * 256 * 1024
        monkeypatch.setattr(backpressure, "_OLD_MS", 0)
        with caplog.at_level(logging.WARNING):
            while held(broker) > 4 * MB:
                client.end_offset("t")
    assert "its request was incomplete for 10 s" in caplog.text
    assert broker.metrics().counters["stalled_connections"] > 0


@contextmanager
def stalled(broker: Broker) -> Iterator[None]:
    """Keep the event loop of a broker from handling anything, so that what arrives is handled in one turn."""
    go_on = threading.Event()
    loop = broker._latest().run.loop
    assert loop is not None
    loop.call_soon_threadsafe(go_on.wait)
    try:
        yield
    finally:
        go_on.set()


def sent(connection: socket.socket) -> bool:
    """Return true if the kernel of the other side has everything."""
    return struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4))) == (0,)


def test_requests_that_need_more_memory_in_one_turn_get_it_while_there_is_some(broker: Broker) -> None:
    """Fifteen connections fill the memory of their first read together. There is room for one of them to grow."""
    first = 256 * 1024
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with ExitStack() as stack, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t", 1)
        connections = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(15)]
        for connection in connections:
            connection.sendall(struct.pack(">i", 4 * MB) + bytes(first - 1))
        while held(broker) < 15 * first or not all(map(sent, connections)):
            client.end_offset("t")
        assert held(broker) == 15 * first
        with stalled(broker):
            for connection in connections:
                connection.sendall(b"xx")
            while not all(map(sent, connections)):
                pass
        for _ in range(5):  # turns of the loop
            client.end_offset("t")
        assert held(broker) == 18 * first


def test_many_small_requests_count_with_all_memory_that_they_take(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests of two bytes wait behind a fetch. Each has an object of its own, which is much larger."""
    monkeypatch.setattr(backpressure, "_OLD_MS", 3_600_000)
    host, _, port = broker.bootstrap_servers.rpartition(":")
    small = struct.pack(">ih", 2, FETCH) * 9_000
    with ExitStack() as stack, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t", 1)
        connections = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(10)]
        for connection in connections:
            connection.sendall(waiting_fetch("t"))
        client.end_offset("t")
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        with stalled(broker):
            for connection in connections:
                connection.sendall(small)
            while not all(map(sent, connections)):
                pass
            taken, _ = tracemalloc.get_traced_memory()
        for _ in range(5):  # turns of the loop
            client.end_offset("t")
        assert tracemalloc.get_traced_memory()[0] - taken < held(broker) + MB
        assert held(broker) > 10 * 9_000 * 50  # an object of Python is never smaller


def waiting_fetch(topic: str) -> bytes:
    """A whole request for a megabyte of a topic, for which the client waits an hour."""
    name = topic.encode()
    body = struct.pack(">hhihiiiib", FETCH, 4, 1, -1, -1, 3_600_000, MB, MB, 0)
    body += struct.pack(f">ih{len(name)}siiqi", 1, len(name), name, 1, 0, 0, MB)
    return struct.pack(">i", len(body)) + body


def test_large_requests_of_many_clients_are_all_taken(broker: Broker) -> None:
    """More than the bound altogether: they are read in turn."""
    value = bytes(MB - 10_000)
    with RawClient(broker.bootstrap_servers) as client, ExitStack() as stack:
        client.create_topic("t", 1)
        producers = [stack.enter_context(fencepost.Producer(broker.bootstrap_servers)) for _ in range(12)]
        for sent in [producer.send("t", value) for producer in producers]:
            sent.result(120)
        assert client.end_offset("t") == 12
    assert held(broker) == 0
