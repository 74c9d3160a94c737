"""A TCP proxy in front of a Kafka. It loses and delays requests, answers and connections; a `FaultDraw` selects them.

All connections to all brokers pass through the proxy, because it replaces the brokers' addresses in answers by ports of
its own. It runs in a thread with its own event loop, so that delays do not block the clients. SASL passes through
unchanged. TLS ends in the proxy, and a second TLS connection leads to the other side if configured.
"""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from collections import Counter
from contextlib import suppress
from ssl import SSLContext
from types import TracebackType
from typing import Any, Self

from fencepost.client.net.topology import Address
from fencepost.protocol import codec, frame

__all__ = ["FaultDraw", "FaultProxy"]

REQUEST_HEAD = struct.Struct(">hhi")  # api key, api version, correlation id
TRANSACTIONAL = {22: "InitProducerId", 24: "AddPartitions", 25: "AddOffsets", 26: "EndTxn", 28: "TxnOffsetCommit"}
OTHERS = {0: "Produce", 1: "Fetch", 3: "Metadata", 9: "OffsetFetch", 10: "FindCoordinator", 11: "JoinGroup"}
LOGIN = {17: "SaslHandshake", 36: "SaslAuthenticate"}
NAMES = TRANSACTIONAL | OTHERS | LOGIN
METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 3, 10, 60
NAME_BROKERS = frozenset({METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER})
HOST = "127.0.0.1"


class FaultDraw:
    """Draws the fault of a request: one of `requests_per_fault` transactional requests, and a tenth as many others."""

    def __init__(self, seed: int, requests_per_fault: float) -> None:
        self._chance = random.Random(seed)
        self._requests_per_fault = requests_per_fault
        self.enabled = True
        self.happened: Counter[str] = Counter()

    def draw(self, api_key: int) -> tuple[str, float]:
        """Return ("pass" | "lose request" | "lose answer" | "swallow answer" | "late", seconds)."""
        rate = 1 / self._requests_per_fault if api_key in TRANSACTIONAL else 0.1 / self._requests_per_fault
        if not self.enabled or api_key not in NAMES or self._chance.random() >= rate:
            return "pass", 0.0
        what = self._chance.choice(("lose request", "lose answer", "lose answer", "swallow answer", "late"))
        self.happened[f"{what}: {NAMES[api_key]}"] += 1
        return what, self._chance.uniform(0.1, 3.0)


class FaultProxy:
    """Listens on `port` of 127.0.0.1 and forwards to the Kafka at `upstream`.

    `cut` closes all connections. `away` refuses new ones. `is_one_way` forwards requests and holds back all answers.
    `tls`: contexts towards the Kafka and towards the clients.
    """

    def __init__(
        self, upstream: Address, fault_draw: FaultDraw, tls: tuple[SSLContext | None, SSLContext | None] = (None, None)
    ) -> None:
        self._upstream = upstream
        self._fault_draw = fault_draw
        self._tls_upstream, self._tls_of_clients = tls
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._ports: dict[Address, int] = {}
        self._servers: list[asyncio.Server] = []
        self.away = False
        self.is_one_way = False
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self) -> None:
        """Close every connection now."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self.port = self._loop.run_until_complete(self._port_for(self._upstream))
        self._ready.set()
        self._loop.run_forever()
        for server in self._servers:
            server.close()
        self._cut()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.1))
        self._loop.close()

    async def _port_for(self, upstream: Address) -> int:
        """Return the port that represents a broker. A broker that appears for the first time gets a new port."""
        if upstream not in self._ports:

            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                # Only tasks that remain at the proxy's end are cancelled. asyncio of Python 3.11 would report each as
                # an error.
                with suppress(asyncio.CancelledError):
                    await self._connected(upstream, reader, writer)

            server = await asyncio.start_server(connected, HOST, 0, ssl=self._tls_of_clients)
            self._servers.append(server)
            self._ports.setdefault(upstream, server.sockets[0].getsockname()[1])
        return self._ports[upstream]

    async def _connected(self, upstream: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.away:
                raise ConnectionRefusedError
            up_reader, up_writer = await asyncio.open_connection(*upstream, ssl=self._tls_upstream)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        faults: dict[int, tuple[str, float]] = {}
        naming: dict[int, tuple[int, int]] = {}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._requests(reader, up_writer, faults, naming))
                both.create_task(self._answers(up_reader, writer, faults, naming))
        except* (OSError, asyncio.IncompleteReadError, _LostError):
            self._writers -= {writer, up_writer}
        finally:
            for stream in (writer, up_writer):
                stream.transport.abort()
            self._writers -= {writer, up_writer}

    async def _requests(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        faults: dict[int, tuple[str, float]],
        naming: dict[int, tuple[int, int]],
    ) -> None:
        while True:
            head = await source.readexactly(4)
            request = await source.readexactly(struct.unpack(">i", head)[0])
            api_key, version, correlation_id = REQUEST_HEAD.unpack_from(request)
            what, seconds = self._fault_draw.draw(api_key)
            if what == "lose request":
                raise _LostError(what)
            if what != "pass":
                faults[correlation_id] = (what, seconds)
            if api_key in NAME_BROKERS:
                naming[correlation_id] = (api_key, version)
            target.write(head + request)
            await target.drain()

    async def _answers(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        faults: dict[int, tuple[str, float]],
        naming: dict[int, tuple[int, int]],
    ) -> None:
        while True:
            head = await source.readexactly(4)
            answer = head + await source.readexactly(struct.unpack(">i", head)[0])
            (correlation_id,) = struct.unpack_from(">i", answer, 4)
            what, seconds = faults.pop(correlation_id, ("pass", 0.0))
            if what == "lose answer":
                raise _LostError(what)
            if correlation_id in naming:
                answer = await self._renamed(answer, *naming.pop(correlation_id))
            if what == "swallow answer":
                continue  # the connection stays open and never answers this request
            if what == "late":
                await asyncio.sleep(seconds)
            while self.is_one_way:  # noqa: ASYNC110 - it is set from another thread
                await asyncio.sleep(0.05)
            target.write(answer)
            await target.drain()

    async def _renamed(self, answer: bytes, api_key: int, version: int) -> bytes:
        """Replace the addresses of brokers in an answer by the proxy's. Raises MalformedMessage."""
        correlation_id, body = frame.decode_response_header(api_key, version, answer[4:])
        message: Any = codec.decode_response(api_key, version, answer[4 + body :])
        named = [message, *message.coordinators] if api_key == FIND_COORDINATOR else message.brokers
        for broker in named:
            if broker.host and broker.port > 0:
                broker.host, broker.port = HOST, await self._port_for((broker.host, broker.port))
        return frame.encode_response_frame(api_key, version, correlation_id, codec.encode_response(message, version))


class _LostError(Exception):
    """The proxy closes the connection on purpose."""
