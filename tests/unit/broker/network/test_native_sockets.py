"""Streams of the native module beside the receiver in plain Python, and their behaviour as transports."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import itertools
import logging
import os
import select
import socket
import struct
import termios
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from fencepost.broker.embedded import Broker
from fencepost.broker.network.listening_sockets import ListeningSockets
from fencepost.broker.network.native_sockets import NativeSocket, NativeSockets
from fencepost.broker.network.sockets import OTHER_PROTOCOLS
from fencepost.broker.security.listeners import Listener
from fencepost.broker.server import BrokerServer
from fencepost.protocol.errors import WireError
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.receiver import Receiver, refused_size
from fencepost.protocol.records import engine as chosen
from tests.support.engines import engine
from tests.support.raw_client import RawClient
from tests.support.waiting import is_ready

if TYPE_CHECKING:
    from fencepost_native import Stream, Streams

HIGH = 1 << 20
LARGEST = 4 << 20


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    with engine("native"):
        yield


def new_streams() -> Streams:
    return chosen.native.Streams(HIGH, list(OTHER_PROTOCOLS))


def connected(streams: Streams, owner: object = "owner", most: int = LARGEST) -> tuple[Stream, socket.socket]:
    """A stream, and the client's end of its connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    accepted.setblocking(False)
    client.settimeout(30)
    return streams.add(accepted.detach(), owner, most), client


def waited(streams: Streams, *, most: int = 1000) -> list[tuple[Any, list[bytes | bytearray], int]]:
    """Return the next list that is not empty."""
    for _ in range(most):
        if found := streams.ready():
            return found
        poll(streams)
    raise AssertionError("nothing came")


def poll(streams: Streams) -> None:
    is_ready(streams.fileno(), select.POLLIN, 0.2)


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def test_frames_are_cut_as_by_the_receiver() -> None:
    """Drawn frames in drawn pieces; the largest take several receives and grow their memory."""
    random = Random(7)
    seen = 0
    for _ in range(40):
        sizes = [random.choice((0, 1, 3, 100, 65_000, 65_532, 65_536, 70_000, 300_000)) for _ in range(8)]
        bodies = [random.randbytes(size) for size in sizes]
        data = framed(*bodies)
        streams, receiver = new_streams(), Receiver(LARGEST, None, OTHER_PROTOCOLS)
        stream, client = connected(streams)
        frames: list[bytes] = []
        expected: list[bytes] = []
        with client:
            position = 0
            while position < len(data):
                piece = data[position : position + random.choice((1, 2, 5, 1000, 64 * 1024, 200_000))]
                client.sendall(piece)
                expected += map(bytes, receiver.feed(piece))
                position += len(piece)
                while len(frames) < len(expected) or stream.held_bytes < min(1, receiver.held_bytes):
                    poll(streams)
                    for owner, some, news in streams.ready():
                        assert owner == "owner" and news in (0, streams.FULL)
                        frames += map(bytes, some)
                        if news:
                            stream.grow()
            assert frames == expected == bodies
            assert stream.held_bytes == 0
            stream.abort()
        seen += len(frames)
    assert seen == 320


@pytest.mark.parametrize(
    ("prefix", "most"),
    [(b"\xff\xff\xff\xff", LARGEST), (struct.pack(">i", LARGEST + 1), LARGEST), (b"\x16\x03\x01\x02", 2**31 - 1)],
    ids=["negative", "too large", "TLS"],
)
def test_a_refused_size_is_told_as_by_the_receiver(prefix: bytes, most: int) -> None:
    streams = new_streams()
    stream, client = connected(streams, most=most)
    with client:
        client.sendall(framed(b"before") + prefix if most == LARGEST else prefix)
        ((_, frames, news),) = waited(streams)
        assert [bytes(frame) for frame in frames] == ([b"before"] if most == LARGEST else [])
        assert news == streams.REFUSED
        with pytest.raises(WireError) as caught:
            Receiver(most, None, OTHER_PROTOCOLS).feed(prefix)
        reported = refused_size(stream.refused_size, stream.max_frame_bytes, OTHER_PROTOCOLS)
        assert (type(reported), str(reported)) == (type(caught.value), str(caught.value))
        stream.abort()


def test_an_announced_size_costs_no_memory_before_its_bytes_come() -> None:
    streams = new_streams()
    stream, client = connected(streams, most=2**31 - 1)
    with client:
        client.sendall(struct.pack(">i", 2**30) + b"x")
        (found,) = waited(streams)
        assert found == ("owner", [], 0)  # its memory is told
        assert stream.held_bytes == 4 * 64 * 1024
        stream.abort()
        assert stream.held_bytes == 0


def test_the_memory_of_a_frame_grows_only_when_asked() -> None:
    """So a limit over all connections holds, however much has arrived on however many of them."""
    streams = new_streams()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    body = Random(3).randbytes(LARGEST)
    with client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        client.setblocking(False)
        sent = client.send(framed(body))
        arrived = struct.unpack("i", fcntl.ioctl(accepted, termios.FIONREAD, bytes(4)))[0]
        assert arrived > 4 * 64 * 1024  # the second growth was possible at once
        accepted.setblocking(False)
        stream = streams.add(accepted.detach(), "owner", LARGEST)
        client.settimeout(30)
        sizes, found = [], waited(streams)
        while found == [("owner", [], streams.FULL)]:
            sizes.append(stream.held_bytes)
            stream.pause_reading()
            stream.resume_reading()
            assert waited(streams) == found  # told again, for a server that had no memory the first time
            assert stream.held_bytes == sizes[-1]
            if len(sizes) == 2:
                client.sendall(framed(body)[sent:])
            stream.grow()
            stream.grow()  # of no effect
            found = waited(streams)
        assert sizes == [4 * 64 * 1024, 16 * 64 * 1024]
        ((_, (frame,), news),) = found
        assert (bytes(frame), news, stream.held_bytes) == (body, 0, 0)
        stream.abort()


def test_many_small_frames_come_in_several_turns() -> None:
    """A frame of two bytes takes much more memory than its bytes."""
    streams = new_streams()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, HIGH)
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    accepted.setblocking(False)
    stream = streams.add(accepted.detach(), "owner", LARGEST)
    with client:
        client.sendall(framed(b"ab") * 40_000)
        seen: list[int] = []
        while sum(seen) < 40_000:
            ((_, frames, _),) = waited(streams)
            assert set(map(bytes, frames)) == {b"ab"}
            seen.append(len(frames))
        assert max(seen) <= 64 * 1024 // len(framed(b"ab")) + 1  # those of one receive
        stream.abort()


def test_a_connection_that_ends_is_told_after_its_frames_and_closed_once() -> None:
    streams = new_streams()
    stream, client = connected(streams)
    with client:
        client.sendall(framed(b"last"))
    found = waited(streams)
    while not found[-1][2]:
        found += waited(streams)
    assert [bytes(frame) for _, frames, _ in found for frame in frames] == [b"last"]
    assert found[-1][2] == streams.ENDED
    stream.close()
    assert waited(streams) == [("owner", [], streams.CLOSED)]
    stream.abort()
    assert streams.ready() == []


def test_responses_that_are_not_read_wait_and_are_sent_before_the_end() -> None:
    streams = new_streams()
    stream, client = connected(streams)
    pieces = [bytes([number]) * 300_000 for number in range(40)]
    with client:
        for piece in pieces:
            stream.writelines([piece[:100], memoryview(piece)[100:]])
        assert stream.get_write_buffer_size() > HIGH
        stream.close()
        assert stream.is_closing()
        stream.write(b"after the close")
        got = bytearray()
        reported: list[int] = []
        client.setblocking(False)
        while not reported or reported[-1] != streams.CLOSED:
            poll(streams)
            reported += [news for _, _, news in streams.ready()]
            while chunk := received(client):
                got += chunk
        assert streams.DRAINED in reported
        assert stream.get_write_buffer_size() == 0
        while chunk := received(client):
            got += chunk
    assert bytes(got) == b"".join(pieces)


def received(client: socket.socket) -> bytes:
    try:
        return client.recv(1 << 20)
    except BlockingIOError:
        return b""


def test_a_paused_connection_is_not_read() -> None:
    streams = new_streams()
    stream, client = connected(streams)
    with client:
        assert stream.is_reading()
        stream.pause_reading()
        assert not stream.is_reading()
        client.sendall(framed(b"one"))
        poll(streams)
        assert streams.ready() == []
        stream.resume_reading()
        ((_, frames, _),) = waited(streams)
        assert [bytes(frame) for frame in frames] == [b"one"]
        stream.abort()


def test_a_failure_of_one_connection_loses_nothing_of_others() -> None:
    """The events of a turn are reported once. One connection has bytes to send that were released meanwhile."""
    streams = new_streams()
    others = [connected(streams, number) for number in range(3)]
    broken, client = connected(streams, "broken")
    released = memoryview(bytes(HIGH))
    while broken.get_write_buffer_size() < 2 * HIGH:
        broken.write(bytes(HIGH))
    broken.write(released)
    assert streams.ready() == []
    released.release()
    for _, peer in others:
        peer.sendall(framed(b"first"))
    with client:
        while not is_ready(broken.fileno(), select.POLLOUT, 0):
            client.recv(HIGH)
        others[2][1].sendall(framed(b"second"))
        found = waited(streams)
        while not found[-1][2] & streams.CLOSED:
            found += waited(streams)
        assert [each for each in found if each[0] == "broken"] == [
            ("broken", [], streams.FAILED),
            ("broken", [], streams.CLOSED),
        ]
        assert isinstance(broken.failure, ValueError)
        assert broken.is_closing()
    frames = {
        number: [bytes(frame) for owner, some, _ in found if owner == number for frame in some] for number in range(3)
    }
    assert frames == {0: [b"first"], 1: [b"first"], 2: [b"first", b"second"]}
    for stream, peer in others:
        assert stream.failure is None
        stream.abort()
        peer.close()


class Owner:
    """The owner of all streams. Its calls return these results in turn, or raise them."""

    def __init__(self, *results: bool | Exception) -> None:
        self._results = iter(results)
        self.times: list[tuple[int, int]] = []
        self.aborts = 0

    def arrived(self, frames: list[bytes], flags: int, now_ms: int, steady_ms: int) -> bool:
        self.times.append((now_ms, steady_ms))
        result = next(self._results)
        if isinstance(result, Exception):
            raise result
        return result

    def abort(self) -> None:
        self.aborts += 1


def test_a_turn_reads_the_clock_again_only_where_time_has_passed() -> None:
    """Otherwise the time of the core would go back."""
    loop, now_ms, steady_ms = asyncio.new_event_loop(), itertools.count(1), itertools.count(100)
    server = SimpleNamespace(
        core=SimpleNamespace(steady_ms=lambda: next(steady_ms)),
        failed=loop.create_future(),
        now_ms=lambda: next(now_ms),
        pump=lambda: None,
    )
    sockets = NativeSockets(cast("BrokerServer", server), loop)
    owner = Owner(False, False, True, False, ValueError("no"), False)
    connections = [connected(sockets._streams, owner) for _ in range(6)]
    for stream, client in connections:
        client.sendall(framed(b"a"))
        is_ready(stream.fileno(), select.POLLIN)
    sockets._turn()
    assert owner.times == [(now, 100) for now in (1, 1, 1, 2, 2, 3)]
    assert owner.aborts == 1
    sockets.close()
    loop.close()
    for _, client in connections:
        client.close()


def test_a_later_connection_never_gets_what_was_meant_for_an_earlier_one() -> None:
    streams = new_streams()
    first, first_client = connected(streams, "first")
    first_client.close()
    assert waited(streams)[-1][:1] == ("first",)
    first.abort()
    _, two = connected(streams, "second")
    with two:
        first.write(b"for the first")  # its descriptor may have the number of the second's
        poll(streams)
        assert [owner for owner, _, news in streams.ready() if news == streams.CLOSED] == ["first"]
        two.setblocking(False)
        with pytest.raises(BlockingIOError):
            two.recv(100)


def test_no_descriptor_is_left() -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir())) if os.path.isdir("/proc/self/fd") else 0

    before = count()
    streams = new_streams()
    for _ in range(50):
        stream, client = connected(streams)
        client.close()
        waited(streams)
        stream.close()
    _, client = connected(streams)
    client.close()
    del streams, stream, _
    assert count() == before


def test_a_number_that_is_no_descriptor_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        new_streams().add(-1, "owner", LARGEST)


def test_a_connection_that_cannot_be_taken_over_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The system has no memory to watch a further socket."""
    add = NativeSockets.add

    def failing(self: NativeSockets, sock: socket.socket, client: NativeSocket, max_frame_bytes: int) -> Stream:
        monkeypatch.setattr(NativeSockets, "add", add)
        sock.close()
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(NativeSockets, "add", failing)
    with caplog.at_level(logging.ERROR), Broker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as refused:
            assert refused.recv(1) == b""
        with RawClient(broker.bootstrap_servers) as client:
            client.call(ApiVersionsRequest(), 0)
            assert broker.metrics().gauges["connections"] == 1
        assert broker.restart() is None
    assert "none can be accepted: [Errno 12]" in caplog.text


def test_a_start_that_fails_closes_the_connections_that_came_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second listener's port is taken, after a client has connected to the first."""
    original = ListeningSockets._open
    clients: list[socket.socket] = []

    async def opened(self: ListeningSockets, index: int, listener: Listener) -> None:
        await original(self, index, listener)
        if index == 0:
            clients.append(socket.create_connection(("127.0.0.1", listener.port), timeout=30))
            while not cast("BrokerServer", self._server)._clients:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)

    monkeypatch.setattr(ListeningSockets, "_open", opened)
    with socket.create_server(("127.0.0.1", 0)) as other:
        listeners = f"PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:{other.getsockname()[1]}"
        protocols = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
        with pytest.raises(OSError, match="cannot listen"):
            Broker({"listeners": listeners, "listener.security.protocol.map": protocols}).start()
    (client,) = clients
    with client:
        assert client.recv(1) == b""
