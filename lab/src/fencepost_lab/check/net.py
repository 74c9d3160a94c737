"""The simulated network: byte streams between clients and one broker, with delays, resets and lost requests or replies.

A stream preserves order, as TCP does. TCP cannot drop a message inside a living connection, so a lost request or reply
is a connection that breaks before or after the broker received the request. A late request reaches the broker after its
sender saw the connection break.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from fencepost.client.net.runtime import StreamClosed
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.receiver import Receiver
from fencepost_lab.check.scheduler import Scheduler, SimEvent, SimFuture, SimTask

__all__ = ["Network", "NetworkFaults", "ServerConnection", "SimRuntime", "SimServer"]

CONNECT_REFUSED_MS = 1.0
WINDOW_BYTES = 65_536


@dataclass(slots=True)
class NetworkFaults:
    """The chances of faults for each message, and the bounds of delays in milliseconds."""

    delay_ms_at_least: float = 0.05
    delay_ms_at_most: float = 2.0
    slow_chance: float = 0.0
    slow_ms_at_most: float = 400.0
    request_lost_chance: float = 0.0
    reply_lost_chance: float = 0.0
    late_chance: float = 0.0
    late_ms_at_most: float = 0.0

    def heal(self) -> None:
        """End all faults."""
        self.slow_chance = self.request_lost_chance = self.reply_lost_chance = self.late_chance = 0.0


class SimServer(Protocol):
    """A server that accepts connections at an address."""

    def accept(self, connection: ServerConnection) -> None: ...

    def received(self, connection: ServerConnection, data: bytes) -> None: ...

    def lost(self, connection: ServerConnection) -> None: ...

    def taken(self, connection: ServerConnection) -> None:
        """React to the client having read bytes."""
        ...


class Network:
    """All streams of one world. `on_fault` is called with the kind and place of each fault."""

    def __init__(
        self, scheduler: Scheduler, random: Random, faults: NetworkFaults, on_fault: Callable[[str, str], None]
    ) -> None:
        self.scheduler = scheduler
        self.random = random
        self.faults = faults
        self.on_fault = on_fault
        self._servers: dict[tuple[str, int], SimServer] = {}
        self._next_connection = 0
        self.late_until_ms = 0.0
        """Time at which the last late request arrives."""

    def listen(self, host: str, port: int, server: SimServer) -> None:
        self._servers[host, port] = server

    def unlisten(self, host: str, port: int) -> None:
        """Refuse new connections. The server resets the open streams itself."""
        self._servers.pop((host, port), None)

    async def connect(self, host: str, port: int, max_frame_bytes: int) -> SimStream:
        """Connect to a listening server. Raises StreamClosed if there is none."""
        await self.scheduler.sleep_ms(self.delay_ms())
        server = self._servers.get((host, port))
        if server is None:
            await self.scheduler.sleep_ms(CONNECT_REFUSED_MS)
            raise StreamClosed(f"{host}:{port}: connection refused")
        self._next_connection += 1
        stream = SimStream(self, max_frame_bytes)
        stream.connection = ServerConnection(self, stream, server, self._next_connection)
        server.accept(stream.connection)
        return stream

    def delay_ms(self) -> float:
        """Draw the delay of the next message in ms."""
        faults = self.faults
        if faults.slow_chance and self.random.random() < faults.slow_chance:
            return self.random.uniform(faults.delay_ms_at_most, faults.slow_ms_at_most)
        return self.random.uniform(faults.delay_ms_at_least, faults.delay_ms_at_most)

    def draws_fault(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance


class SimStream:
    """The client's end of a connection."""

    def __init__(self, network: Network, max_frame_bytes: int) -> None:
        self._network = network
        self._received: list[bytes] = []
        self._receiver = Receiver(max_frame_bytes)
        self._reader: SimFuture[None] | None = None
        self._deliver_at = 0.0
        self.connection: ServerConnection | None = None
        self.open = True

    async def send(self, buffers: Sequence[Buffer]) -> None:
        connection = self.connection
        if not self.open or connection is None:
            raise StreamClosed("the connection is closed")
        network, data = self._network, b"".join(buffers)
        if network.draws_fault(network.faults.request_lost_chance):
            network.on_fault("requests lost", f"request lost on connection {connection.number}")
            network.scheduler.call_later(network.delay_ms(), connection.reset)
            return
        self._deliver_at = max(self._deliver_at, network.scheduler.now_ms() + network.delay_ms())
        if network.draws_fault(network.faults.late_chance):
            self._deliver_late(connection, data)
            return
        network.scheduler.call_at(self._deliver_at, lambda: connection.deliver(data))

    def _deliver_late(self, connection: ServerConnection, data: bytes) -> None:
        """Break the client's connection, but deliver the bytes already sent."""
        network = self._network
        delay_ms = network.random.uniform(0.0, network.faults.late_ms_at_most)
        network.on_fault("requests late", f"request late by {delay_ms:.0f} ms on connection {connection.number}")
        self.connection = None  # closing this end does not reach the other one
        network.scheduler.call_later(network.delay_ms(), self.broken)
        arrives_ms = self._deliver_at + delay_ms
        network.late_until_ms = max(network.late_until_ms, arrives_ms)
        network.scheduler.call_at(arrives_ms, lambda: connection.deliver(data))

    async def receive(self) -> list[memoryview]:
        frames: list[memoryview] = []
        while not frames:
            while not self._received:
                if not self.open:
                    return []
                self._reader = SimFuture()
                await self._reader
            data, self._received = b"".join(self._received), []
            if self.connection is not None:
                self.connection.take(len(data))
            frames = self._receiver.feed(data)
        return frames

    def close(self) -> None:
        if self.connection is not None:
            self.connection.reset()

    def arrived(self, data: bytes) -> None:
        """Receive bytes from the server."""
        if self.open:
            self._received.append(data)
            self._wake()

    def broken(self) -> None:
        """Mark the connection as broken. Bytes that arrived can still be read."""
        self.open = False
        self._wake()

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.set_result(None)


class ServerConnection:
    """The server's end of a connection."""

    def __init__(self, network: Network, stream: SimStream, server: SimServer, number: int) -> None:
        self._network = network
        self._stream = stream
        self._server = server
        self._deliver_at = 0.0
        self.number = number
        self.open = True
        self._unread = 0

    @property
    def unread_bytes(self) -> int:
        """Bytes that the client has not read and that exceed the two kernels' buffers."""
        return max(0, self._unread - WINDOW_BYTES)

    def take(self, size: int) -> None:
        """Note that the client read `size` bytes."""
        was_full, self._unread = self._unread > WINDOW_BYTES, self._unread - size
        if was_full and self.open:
            self._server.taken(self)

    def deliver(self, data: bytes) -> None:
        if self.open:
            self._server.received(self, data)

    def send(self, data: bytes) -> None:
        """Send a reply, which the network may lose."""
        if not self.open:
            return
        network = self._network
        if network.draws_fault(network.faults.reply_lost_chance):
            network.on_fault("replies lost", f"reply lost on connection {self.number}")
            self.reset()
            return
        self._unread += len(data)
        self._deliver_at = max(self._deliver_at, network.scheduler.now_ms() + network.delay_ms())
        network.scheduler.call_at(self._deliver_at, lambda: self._stream.arrived(data))

    def reset(self) -> None:
        """Break the connection for both ends."""
        if self.open:
            self.open = False
            self._stream.broken()
            self._server.lost(self)


class SimRuntime:
    """A client's `Runtime` in the simulated world."""

    def __init__(self, network: Network, random: Random) -> None:
        self._network = network
        self._scheduler = network.scheduler
        self._random = random
        self._streams: list[SimStream] = []

    def now_ms(self) -> int:
        return self._scheduler.now_ms()

    def wall_ms(self) -> int:
        return self._scheduler.now_ms()

    async def sleep_ms(self, ms: float) -> None:
        await self._scheduler.sleep_ms(ms)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> SimTask:
        return self._scheduler.spawn(coroutine)

    def event(self) -> SimEvent:
        return SimEvent(self._scheduler)

    async def open(self, host: str, port: int, max_frame_bytes: int) -> SimStream:
        stream = await self._network.connect(host, port, max_frame_bytes)
        self._streams = [known for known in self._streams if known.open]
        self._streams.append(stream)
        return stream

    def random(self) -> float:
        return self._random.random()

    def nonce(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    async def run_callback(self, function: Callable[[], Any]) -> Any:
        return function()

    def kill(self) -> None:
        """Kill the client's process and break its connections."""
        for stream in self._streams:
            stream.close()
