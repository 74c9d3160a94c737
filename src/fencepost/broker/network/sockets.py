"""A client's connection: frames to the core, in turn with other connections, and responses out.

`asyncio_sockets`, `tls_sockets` and `native_sockets` connect it to sockets.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from fencepost.arguments import address_text
from fencepost.broker.api.time_slices import TURN_MS
from fencepost.broker.network.backpressure import MOST_UNREAD_BYTES, may_begin
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import WireError

if TYPE_CHECKING:
    from fencepost.broker.core import BrokerCore
    from fencepost.broker.security.listeners import Listener

__all__ = ["OTHER_PROTOCOLS", "ClientSocket", "Server", "listening_sockets"]

_BACKLOG = 1024
_JOINED_BYTES = 64 * 1024  # up to this size, copying is faster than separate writes
_WAITING_BYTES = 256 * 1024
_FRAME_BYTES: Final = 384
"""Most memory of the objects of a frame beside its bytes. For small frames it is the larger part."""
_MOST_TOGETHER: Final = 64
"""Most requests of a connection, after the first, that the core may handle together with it."""
_UNREAD_BEFORE_SEVERAL: Final = MOST_UNREAD_BYTES - 64 * 1024
"""With more unread bytes than this, requests are handled one by one. The responses of several together are smaller."""
OTHER_PROTOCOLS: Final = {0x1603: "the client uses TLS, and the listener does not (security.protocol of the client)"}
"""Error texts for other protocols, by the first 16 bits of a connection."""


class Server(Protocol):
    """The parts of the server that a socket uses."""

    core: BrokerCore
    listeners: list[Listener]
    failed: asyncio.Future[None]
    input: memoryview
    sealed_input: memoryview

    def now_ms(self) -> int: ...
    def enter(self, client: ClientSocket, host: str) -> int: ...
    def leave(self, connection_id: int) -> None: ...
    def request_arrived(self, connection_id: int, steady_ms: int, *, is_known: bool) -> None: ...
    def record_unread(self, connection_id: int, unread_bytes: int) -> None: ...
    def record_held(self, connection_id: int, held_bytes: int, *, finished: bool) -> None: ...
    def may_read(self, connection_id: int) -> bool: ...
    def call_soon(self, action: Callable[[], None]) -> None: ...
    def call_later(self, delay_s: float, action: Callable[[], None]) -> asyncio.TimerHandle: ...
    def handshake_failed(self, listener: Listener, host: str, why: str) -> None: ...
    def pump(self) -> None: ...


def listening_sockets(host: str | None, port: int) -> list[socket.socket]:
    """Return a listening socket for each address of the host (None: all addresses of this machine). Raises OSError.

    The event loop does not do this, because uvloop resolves the host in threads of libuv. A forked child of an embedded
    broker waits for these threads at its end, and crashes.
    """
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        ):
            sockets.append(socket.create_server(address[:2], family=family, backlog=_BACKLOG))
    except OSError as error:
        for sock in sockets:
            sock.close()
        # create_server() adds the address to the reason. The reasons of getaddrinfo() are others.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise type(error)(error.errno, f"cannot listen on {address_text(host or '*', port)}: {reason}") from error
    return sockets


class Transport(Protocol):
    """The methods of an asyncio transport that a connection uses."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def is_closing(self) -> bool: ...
    def get_write_buffer_size(self) -> int: ...
    def write(self, data: bytes, /) -> object: ...
    def writelines(self, buffers: Sequence[Buffer], /) -> object: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Intake(Protocol):
    """The part of a connection that cuts bytes into frames."""

    max_frame_bytes: int

    @property
    def held_bytes(self) -> int: ...


class ClientSocket:
    """A client's connection: frames in, turns with other connections, responses out, and back-pressure.

    The subclasses connect it to a transport.
    """

    _transport: Transport
    _intake: Intake

    def __init__(self, server: Server, listener: int) -> None:
        self._server = server
        self._listener = listener
        self._is_known = not server.listeners[listener].sasl
        self._local = self._peer = ("", 0)
        self._connection_id = 0
        self._frames: deque[Buffer] = deque()
        self._waiting_bytes = 0
        self._handed_bytes = 0
        self._is_paused = False
        self._has_unread = False  # more unread responses than allowed
        self._next_is_due = False
        self._has_ended = False  # the client sends nothing more
        self._has_finished = False
        self._is_holding = False  # the server was told of memory that is held

    def _max_frame_bytes(self) -> int:
        """Return the limit for a request. Before authentication it is that of SASL messages."""
        limit = "socket.request.max.bytes" if self._is_known else "sasl.server.max.receive.size"
        return self._server.core.config.number(limit)

    def _enter(self, local: tuple[str, int], peer: tuple[str, int]) -> bool:
        """Register the connection. Return false if it is refused."""
        self._local, self._peer = (local[0], local[1]), (peer[0], peer[1])
        self._connection_id = self._server.enter(self, peer[0])
        return self._connection_id != 0

    def _begin(self, principal: str) -> None:
        """Start to accept requests."""
        server = self._server
        server.core.connected(server.now_ms(), self._connection_id, self._local, self._peer, self._listener, principal)
        if not self._is_known:
            server.pump()  # starts the time limit for authentication

    def _take(self, frames: Sequence[Buffer], steady_ms: int) -> None:
        """Add frames that have arrived at `steady_ms` of the monotonic clock to those that wait to be handled."""
        self._has_finished = bool(frames)
        if frames:
            self._server.request_arrived(self._connection_id, steady_ms, is_known=self._is_known)
            self._frames.extend(frames)
            self._waiting_bytes += sum(map(len, frames)) + _FRAME_BYTES * len(frames)

    @property
    def connection_id(self) -> int:
        """Number of the connection in the core."""
        return self._connection_id

    def may_handle(self, frame: Buffer) -> bool:
        """Return true if a request that has just arrived may be handled now: none waits before it."""
        connection = self._server.core.connection(self._connection_id)
        if connection is None or connection.closed or self._frames:
            return False
        unsent_bytes = self._transport.get_write_buffer_size() - self._handed_bytes
        return may_begin(connection, frame, connection.answered_bytes + unsent_bytes)

    def was_handled(self, steady_ms: int) -> None:
        """Note that a request was handled that has arrived at `steady_ms` of the monotonic clock."""
        self._server.request_arrived(self._connection_id, steady_ms, is_known=self._is_known)
        self._has_finished = True
        self._note_memory()

    def _refuse_size(self, error: WireError) -> None:
        """Close the connection, because it announces a frame that is not accepted."""
        server = self._server
        connection = server.core.connection(self._connection_id)
        if connection is not None:
            server.core.log_malformed(server.now_ms(), connection, error)
        self.close()

    def _work(self, now_ms: int, steady_ms: int) -> int:
        """Handle requests, in turn with other connections. While too many wait, reading is paused.

        Args:
            now_ms: The broker's time.
            steady_ms: The time on the monotonic clock, at which the requests have arrived.

        Returns:
            Number of bytes of responses that `Server.pump` will send.
        """
        core, frames = self._server.core, self._frames
        connection = core.connection(self._connection_id)
        unsent_bytes = self._transport.get_write_buffer_size() - self._handed_bytes
        while frames and connection is not None and not connection.closed:
            if not may_begin(connection, frames[0], connection.answered_bytes + unsent_bytes):
                break
            frame, others = frames.popleft(), list[Buffer]()
            self._waiting_bytes -= len(frame) + _FRAME_BYTES
            if frames and connection.answered_bytes + unsent_bytes <= _UNREAD_BEFORE_SEVERAL:
                others = list(islice(frames, _MOST_TOGETHER))
            count = core.handle_frame(now_ms, self._connection_id, memoryview(frame), steady_ms, others)
            for _ in range(count - 1):
                self._waiting_bytes -= len(frames.popleft()) + _FRAME_BYTES
            if frames and core.steady_ms() >= steady_ms + TURN_MS:
                self.handle_next()
                break
        if not self._is_known and core.is_known(self._connection_id):
            self._is_known = True
            self._intake.max_frame_bytes = self._max_frame_bytes()
        self._note_memory()
        return 0 if connection is None else connection.answered_bytes - self._handed_bytes

    def _note_memory(self) -> None:
        """Report the memory of requests that are incomplete or wait, and pause or resume reading accordingly."""
        held_bytes = self._intake.held_bytes + self._waiting_bytes
        if held_bytes or self._is_holding:
            self._server.record_held(self._connection_id, held_bytes, finished=self._has_finished)
            self._is_holding = held_bytes > 0
        self._has_finished = False
        if held_bytes or self._is_paused or self._has_unread:
            self.listen()

    def listen(self) -> None:
        """Pause or resume reading.

        Reading is paused while waiting requests take more memory than one read returns, while too many responses are
        unread (TLS itself adds some bytes), or while there is no memory for more.
        """
        is_paused = (
            self._has_unread or self._waiting_bytes > _WAITING_BYTES or not self._server.may_read(self._connection_id)
        )
        if is_paused != self._is_paused and not self._transport.is_closing():
            self._is_paused = is_paused
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def handle_next(self) -> None:
        """Schedule the handling of requests that waited for a response, or the end of the connection."""
        if (self._frames or self._has_ended) and not self._next_is_due:
            self._next_is_due = True
            self._server.call_soon(self._handle_next)

    def _handle_next(self) -> None:
        self._next_is_due = False
        if not self._server.failed.done() and not self._transport.is_closing():
            self._work(self._server.now_ms(), self._server.core.steady_ms())
            self._server.pump()
            self._close_if_done()

    def _end_of_input(self) -> None:
        """Close the connection when all requests that have arrived are answered: the client sends nothing more.

        With acks=0 a client closes its connection without waiting for anything. Kafka handles such requests as well,
        and answers a client that has only closed its side.
        """
        self._has_ended = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if not self._has_ended or self._frames or self._server.failed.done():
            return
        self._server.pump()  # the responses to the last requests are written first
        connection = self._server.core.connection(self._connection_id)
        if connection is None or not connection.calls:
            self.close()

    def pause_writing(self) -> None:
        self._has_unread = True
        self.look()
        self.listen()

    def resume_writing(self) -> None:
        self._has_unread = False
        self.look()
        self.listen()
        self.handle_next()

    def look(self) -> None:
        """Report the number of unread response bytes."""
        self._server.record_unread(self._connection_id, self._transport.get_write_buffer_size())

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Write complete frames."""
        if not self._transport.is_closing():
            size = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
            if size <= _JOINED_BYTES:
                self._write_joined(b"".join(buffers))
            else:
                self._write(buffers)
            self._handed_bytes += size
            if self._frames or self._has_ended:
                self.handle_next()

    def _write_joined(self, data: bytes) -> None:
        self._transport.write(data)

    def _write(self, buffers: Sequence[Buffer]) -> None:
        self._transport.writelines(buffers)

    def close(self) -> None:
        """Close the connection after sending what has been written."""
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()
