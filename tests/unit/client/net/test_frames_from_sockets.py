"""Frames from a client's real sockets: complete answers from any pieces, and errors for all others."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable

import pytest

from fencepost.client.net import asyncio_runtime
from fencepost.client.net.asyncio_runtime import AsyncioRuntime, StreamProtocol
from fencepost.client.net.connection import BrokerConnection
from fencepost.config import AdminConfig
from fencepost.errors import ProtocolError
from fencepost.protocol.errors import FrameTooLarge, MalformedMessage
from tests.support.memory import resident

CONFIG = AdminConfig(bootstrap_servers="broker", request_timeout_ms=5000)
MOST_BYTES = 300_000_000


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


Said = Callable[[socket.socket], None]


def visit(said: Said, body: Callable[[str, int], Awaitable[None]]) -> None:
    """With a peer that does what `said` says, in a thread, and then closes."""

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            said(connection)

    async def both(server: socket.socket) -> None:
        serving = asyncio.create_task(asyncio.to_thread(serve, server))
        try:
            await body(*server.getsockname())
        finally:
            await serving

    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(both(server))


def talk(said: Said, heard: Callable[[StreamProtocol], Awaitable[None]]) -> None:
    """With a stream to such a peer."""

    async def body(host: str, port: int) -> None:
        stream = await AsyncioRuntime().open(host, port, MOST_BYTES)
        try:
            await heard(stream)
        finally:
            stream.close()

    visit(said, body)


async def all_of(stream: StreamProtocol) -> list[memoryview]:
    frames: list[memoryview] = []
    while came := await stream.receive():
        frames += came
    return frames


def test_answers_of_any_size_come_whole_and_do_not_change() -> None:
    numbers = random.Random(5)
    sizes = (0, 5, 70_000, 3_000_000, 12, 1_048_576, 65_532, 65_536, 2_500_000, 1)
    wanted = [numbers.randbytes(size) for size in sizes]

    def said(connection: socket.socket) -> None:
        stream, at = framed(*wanted), 0
        while at < len(stream):
            piece = numbers.choice((1, 7, 4_000, 100_000, 1_000_000))
            connection.sendall(stream[at : at + piece])
            at += piece

    async def heard(stream: StreamProtocol) -> None:
        assert [bytes(frame) for frame in await all_of(stream)] == wanted

    talk(said, heard)


def test_connections_of_one_client_do_not_mix_their_bytes() -> None:
    """They share the memory that small answers are received into."""
    wanted = [[bytes([letter]) * size for size in (10, 40_000, 90_000, 3, 50_000)] for letter in b"abc"]

    async def both() -> None:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            stream = framed(*waiting.pop())
            for at in range(0, len(stream), 9_999):
                writer.write(stream[at : at + 9_999])
                await writer.drain()
                await asyncio.sleep(0)
            writer.close()

        waiting = list(wanted)
        runtime = AsyncioRuntime()
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            streams = [await runtime.open(host, port, MOST_BYTES) for _ in wanted]
            came = await asyncio.gather(*map(all_of, streams))
        assert sorted([bytes(frame) for frame in frames] for frames in came) == sorted(wanted)

    asyncio.run(both())


def test_the_memory_of_an_answer_that_never_comes_is_not_taken() -> None:
    def said(connection: socket.socket) -> None:
        connection.sendall(framed(bytes(2_000_000)))  # so that all that is imported for large answers is there
        connection.recv(1)
        before.append(resident())
        connection.sendall(struct.pack(">i", MOST_BYTES) + bytes(100_000))
        connection.recv(1)
        taken.append(resident() - before[0])

    before: list[int] = []
    taken: list[int] = []

    async def heard(stream: StreamProtocol) -> None:
        assert [len(frame) for frame in await stream.receive()] == [2_000_000]
        await stream.send([b"x"])
        waiting = asyncio.ensure_future(stream.receive())
        await asyncio.sleep(0.05)
        await stream.send([b"x"])
        assert await waiting == []

    talk(said, heard)
    assert taken[0] < 30_000_000


@pytest.mark.parametrize(("size", "error"), [(-2, MalformedMessage), (MOST_BYTES + 1, FrameTooLarge)])
def test_an_answer_of_a_dishonest_size(size: int, error: type[Exception]) -> None:
    def said(connection: socket.socket) -> None:
        connection.sendall(framed(b"before"))
        connection.recv(1)
        connection.sendall(struct.pack(">i", size) + bytes(100))

    async def heard(stream: StreamProtocol) -> None:
        assert [bytes(frame) for frame in await stream.receive()] == [b"before"]
        await stream.send([b"x"])
        for _ in range(2):
            with pytest.raises(error):
                await stream.receive()

    talk(said, heard)


def test_a_connection_that_ends_within_an_answer() -> None:
    def said(connection: socket.socket) -> None:
        connection.sendall(framed(b"whole") + struct.pack(">i", 5_000_000) + bytes(4_000_000))

    async def heard(stream: StreamProtocol) -> None:
        assert [bytes(frame) for frame in await all_of(stream)] == [b"whole"]

    talk(said, heard)


def test_no_more_is_read_ahead_than_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that sends and sends has to wait for who does not take."""
    monkeypatch.setattr(asyncio_runtime, "READ_AHEAD_BYTES", 100_000)

    def said(connection: socket.socket) -> None:
        connection.setblocking(False)
        total, quiet = 0, 0
        while quiet < 20:
            try:
                total += connection.send(framed(bytes(50_000)) * 10)
                quiet = 0
            except BlockingIOError:
                quiet += 1
                stuck.wait(0.005)
        assert total < 20_000_000
        stuck.set()

    stuck = threading.Event()

    async def heard(stream: StreamProtocol) -> None:
        await asyncio.to_thread(stuck.wait)
        assert sum(map(len, await stream.receive())) < 1_000_000
        assert await stream.receive(), "it reads on"

    talk(said, heard)


@pytest.mark.parametrize(("answer", "words"), [(b"\x15\x03\x03\x00\x02\x02\x50", "TLS"), (b"HTTP/1.1 400 Bad", "HTTP")])
def test_a_stranger_is_named(answer: bytes, words: str) -> None:
    def said(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(answer)
        while connection.recv(1000):
            pass

    async def body(host: str, port: int) -> None:
        with pytest.raises(ProtocolError, match=words) as raised:
            await BrokerConnection.connect(AsyncioRuntime(), host, port, CONFIG)
        seen: list[BaseException] = []
        error: BaseException | None = raised.value
        while error is not None:
            assert error not in seen, "causes go round"
            seen.append(error)
            error = error.__cause__ or error.__context__

    visit(said, body)
