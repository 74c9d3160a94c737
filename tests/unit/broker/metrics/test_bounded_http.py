"""The HTTP server behind the page and the metrics: so many connections, so long, so many threads."""

from __future__ import annotations

import logging
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from typing import NamedTuple

import pytest

from fencepost.broker.metrics import endpoint
from fencepost.broker.metrics.bounded_http import BoundedServer
from fencepost.broker.metrics.counters import GAUGES, Metrics, Snapshot
from fencepost.broker.metrics.endpoint import serve_metrics

PATIENCE_S = 120


class Serving(NamedTuple):
    """`struck`: the limits that did. Answers to /slow wait for `go_on`, and each of them counts in `asked`."""

    port: int
    struck: list[str]
    asked: threading.Semaphore
    go_on: threading.Event


@contextmanager
def serving(most: int, *, most_s: float = PATIENCE_S) -> Iterator[Serving]:
    struck: list[str] = []
    go_on, asked = threading.Event(), threading.Semaphore(0)

    def answer(method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if target == "/slow":
            asked.release()
            go_on.wait(PATIENCE_S)
        return 200, {}, b""

    log = logging.getLogger("test")
    server = BoundedServer(("127.0.0.1", 0), answer, most=most, log=log, struck=struck.append, most_s=most_s)
    server.start("test")
    try:
        yield Serving(server.port, struck, asked, go_on)
    finally:
        go_on.set()
        server.stop()


def status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def opened(port: int, sent: bytes = b"") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    sock.sendall(sent)
    return sock


def test_a_head_has_the_headers_of_a_get_and_no_body() -> None:
    def answer(method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        return 200, {"X-Asked": method}, b"a body"

    server = BoundedServer(("127.0.0.1", 0), answer, most=4, log=logging.getLogger("test"))
    server.start("test")
    try:
        with opened(server.port, b"HEAD / HTTP/1.1\r\n\r\n") as sock, sock.makefile("rb") as file:
            head, _, body = file.read().partition(b"\r\n\r\n")
    finally:
        server.stop()
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"\r\nContent-Length: 6\r\nX-Asked: GET" in head
    assert body == b""


def test_open_connections_that_ask_nothing_give_way() -> None:
    with serving(4) as server, ExitStack() as stack:
        before = threading.active_count()
        held = [stack.enter_context(opened(server.port, b"GET / HTTP/1.1\r\nX: ")) for _ in range(60)]
        assert status(server.port, "/") == 200
        assert threading.active_count() - before <= 4
        assert held[0].recv(1) == b""
    assert server.struck[0] == "4 connections are open, and one that has asked nothing gives way"


def test_who_is_being_answered_stays_and_one_more_is_refused() -> None:
    with serving(2) as server, ThreadPoolExecutor(2) as clients:
        waiting = [clients.submit(status, server.port, "/slow") for _ in range(2)]
        for _ in waiting:
            assert server.asked.acquire(timeout=PATIENCE_S)
        assert status(server.port, "/") == 503
        server.go_on.set()
        assert [each.result(PATIENCE_S) for each in waiting] == [200, 200]
        assert status(server.port, "/") == 200
    assert server.struck == ["2 requests are being answered"]


def test_a_connection_that_sends_a_byte_now_and_then_is_closed() -> None:
    with serving(2, most_s=0.2) as server, opened(server.port, b"GET / HTTP/1.1\r\nX: ") as slow:
        slow.settimeout(0.05)
        for _ in range(20 * PATIENCE_S):
            try:
                slow.sendall(b"x")
                if slow.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            raise AssertionError("the connection is still open")
    assert server.struck[0].startswith("not done after")


def test_the_metrics_are_answered_beside_many_open_connections(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    seen = Snapshot(metrics.values, dict.fromkeys(GAUGES, 0), {}, {}, metrics.syncs, {})
    before = threading.active_count()
    port, end = serve_metrics(lambda: seen, "127.0.0.1", 0)
    try:
        with ExitStack() as stack, caplog.at_level(logging.WARNING):
            for _ in range(200):
                stack.enter_context(opened(port, b"GET /metrics HTTP/1.1\r\nX: "))
            assert status(port, "/metrics") == 200
            assert status(port, "/elsewhere") == 404
            assert threading.active_count() - before <= 1 + endpoint.MOST_SCRAPES
    finally:
        end()
    reported = [record for record in caplog.records if "the metrics port closes a connection" in record.getMessage()]
    assert 1 <= len(reported) <= 3  # 192 were closed


@pytest.mark.parametrize(
    ("listen", "host", "answer"),
    [
        ("127.0.0.1", "rebound.example", 421),
        ("127.0.0.1", "localhost:9404", 200),
        ("127.0.0.1", "127.0.0.1", 200),
        ("::1", "rebound.example", 421),
        ("::1", "[::1]:9404", 200),
        ("localhost", "rebound.example", 421),
        ("0.0.0.0", "broker.internal", 200),  # noqa: S104 - scraped by the name of a service
    ],
)
def test_a_web_site_reads_no_metrics_through_a_browser_of_this_machine(listen: str, host: str, answer: int) -> None:
    metrics = Metrics()
    seen = Snapshot(metrics.values, dict.fromkeys(GAUGES, 0), {}, {}, metrics.syncs, {})
    port, end = serve_metrics(lambda: seen, listen, 0)
    try:
        to = "127.0.0.1" if listen == "0.0.0.0" else listen  # noqa: S104
        connection = HTTPConnection(to, port, timeout=60)
        connection.request("GET", "/metrics", headers={"Host": host})
        assert connection.getresponse().status == answer
        connection.close()
    finally:
        end()


def test_numbers_that_take_long_are_not_taken_for_each_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still after the first one, which took 5 s: the next is due 50 s after it."""
    metrics = Metrics()
    now_s = [100.0]
    taken = []

    def look() -> Snapshot:
        taken.append(now_s[0])
        now_s[0] += 5
        return Snapshot(metrics.values, dict.fromkeys(GAUGES, 0), {}, {}, metrics.syncs, {})

    page = endpoint._Page(look)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    first = page.text("")
    for _ in range(3):
        assert page.text("") == first
    now_s[0] = 155.0
    page.text("")
    assert taken == [100.0, 155.0]


@pytest.mark.parametrize(
    ("size", "status"),
    [
        ("9" * 5000, b"413 Request Entity Too Large"),
        ("-1", b"400 Bad Request"),
        ("\u00b2", b"400 Bad Request"),
        ("1, 1", b"400 Bad Request"),
        ("", b"400 Bad Request"),
    ],
)
def test_a_body_of_unusable_size_is_refused(size: str, status: bytes) -> None:
    """Python refuses to convert a number of more than 4,300 digits: the client is answered even so."""
    request = f"POST / HTTP/1.1\r\nContent-Length: {size}\r\n\r\n".encode()
    with serving(4) as server, opened(server.port, request) as client:
        assert client.makefile("rb").readline() == b"HTTP/1.0 %b\r\n" % status
