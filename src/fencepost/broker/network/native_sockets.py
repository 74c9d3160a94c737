"""Connections whose bytes the native module receives, cuts into frames and sends.

The module watches all sockets of a broker, and the event loop watches the one descriptor of the module. A turn of the
loop handles the requests of many connections, and carries out the effects of all of them together.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from fencepost.broker.api.straight import may_be_joint
from fencepost.broker.metrics.log_rate_limit import RateLimit
from fencepost.broker.network.backpressure import MOST_UNREAD_BYTES
from fencepost.broker.network.sockets import OTHER_PROTOCOLS, ClientSocket, Server
from fencepost.broker.security.rights import ANONYMOUS
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.receiver import refused_size
from fencepost.protocol.records import engine

if TYPE_CHECKING:
    from fencepost_native import Stream

__all__ = ["NativeListener", "NativeSocket", "NativeSockets"]

_SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC)  # ENOSPC: of epoll
_SHORTAGE_PAUSE_S: Final = 0.1
_MOST_ACCEPTED: Final = 64
"""Most connections that one turn of the event loop accepts."""

_LARGE_BYTES: Final = 64 * 1024
"""With more bytes of responses, they are sent before other connections have their turn, which then have more room."""

_log = logging.getLogger("fencepost.broker")


class NativeSocket(ClientSocket):
    """A connection over a stream of the native module."""

    _transport: Stream

    def open(self, sockets: NativeSockets, sock: socket.socket, peer: tuple[str, int]) -> None:
        """Take over a socket that was accepted, unless the connection is refused.

        Raises OSError, with the socket closed, if the system has no memory to watch it.
        """
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            local = sock.getsockname()
        except OSError:  # already disconnected
            sock.close()
            return
        if not self._enter(local, peer):
            sock.close()
            return
        try:
            self._transport = self._intake = sockets.add(sock, self, self._max_frame_bytes())
        except OSError:
            self._server.leave(self._connection_id)
            raise
        self._begin(ANONYMOUS)

    def arrived(self, frames: Sequence[Buffer], flags: int, now_ms: int, steady_ms: int) -> bool:
        """Handle frames, and the event flags of the native module.

        Args:
            frames: The frames.
            flags: The event flags.
            now_ms: The broker's time.
            steady_ms: The time on the monotonic clock, at which the frames have arrived.

        Returns:
            True if the server's clock may have been read meanwhile, so that `now_ms` is in the past.
        """
        is_past = flags != 0
        if not self._server.failed.done():
            self._take(frames, steady_ms)
            if self._work(now_ms, steady_ms) > _LARGE_BYTES:
                self._server.pump()
                is_past = True
        if flags:
            self._learn(flags)
        return is_past

    def _learn(self, flags: int) -> None:
        stream, kinds = self._transport, engine.native.Streams
        if flags & kinds.CLOSED:
            self._server.leave(self._connection_id)
            return
        if flags & kinds.FAILED:
            _log.error("closing a connection: its bytes could not be handled", exc_info=stream.failure)
            return
        if flags & kinds.DRAINED:
            self._look_at_unsent()
        if flags & kinds.FULL and not self._is_paused:
            stream.grow()
            self._note_memory()  # at once, because the other connections of this turn look at it
        if flags & kinds.REFUSED:
            self._server.pump()  # the responses to the requests before are written first
            self._refuse_size(refused_size(stream.refused_size, stream.max_frame_bytes, OTHER_PROTOCOLS))
        if flags & kinds.ENDED:
            self._end_of_input()

    def _write_joined(self, data: bytes) -> None:
        self._transport.write(data)
        if self._transport.is_over_limit != self._has_unread:
            self._look_at_unsent()

    def _write(self, buffers: Sequence[Buffer]) -> None:
        super()._write(buffers)
        self._look_at_unsent()

    def _look_at_unsent(self) -> None:
        """Follow the stream, which can exceed the limit in a write, and fall below it in a write or an event."""
        is_over_limit = self._transport.is_over_limit
        if is_over_limit and not self._has_unread:
            self.pause_writing()
        elif self._has_unread and not is_over_limit:
            self.resume_writing()


class NativeSockets:
    """All native connections of a server."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._streams = engine.native.Streams(MOST_UNREAD_BYTES, list(OTHER_PROTOCOLS))
        loop.add_reader(self._streams.fileno(), self._turn)

    @staticmethod
    def are_usable() -> bool:
        """Return true if the native module is in use and has connections for this system."""
        return engine.is_native and hasattr(engine.native, "Streams")

    def add(self, sock: socket.socket, client: NativeSocket, max_frame_bytes: int) -> Stream:
        """Take over a socket."""
        return self._streams.add(sock.detach(), client, max_frame_bytes)

    def _turn(self) -> None:
        """Handle what has arrived, then carry out the effects."""
        found = self._streams.ready()
        now_ms, steady_ms = self._server.now_ms(), self._server.core.steady_ms()
        handled = self._handle_singles(found, now_ms, steady_ms) if len(found) > 1 else ()
        for number, (client, frames, flags) in enumerate(found):
            if number in handled:
                continue
            try:
                is_past = client.arrived(frames, flags, now_ms, steady_ms)
            except Exception:  # noqa: BLE001 - a failure must not end other connections
                _log.exception("closing a connection: its input could not be handled")
                client.abort()
                is_past = True
            if is_past:  # the time of the core must not go back
                now_ms = self._server.now_ms()
        if not self._server.failed.done():
            self._server.pump()

    def _handle_singles(
        self, singles: Sequence[tuple[NativeSocket, Sequence[Buffer], int]], now_ms: int, steady_ms: int
    ) -> set[int]:
        """Handle the requests of connections from which only one has arrived, as far as the core takes them together.

        Return the numbers of these connections.
        """
        numbers, requests = list[int](), list[tuple[int, Buffer]]()
        for number, (client, frames, flags) in enumerate(singles):
            if not flags and len(frames) == 1 and may_be_joint(frames[0]) and client.may_handle(frames[0]):
                numbers.append(number)
                requests.append((client.connection_id, frames[0]))
        if len(requests) < 2 or self._server.failed.done():
            return set()
        try:
            handled = {numbers[index] for index in self._server.core.handle_singles(now_ms, requests, steady_ms)}
            for number in handled:
                singles[number][0].was_handled(steady_ms)
        except Exception:  # noqa: BLE001 - a failure must not end other connections
            _log.exception("closing %s connections: their input could not be handled together", len(numbers))
            for number in numbers:
                singles[number][0].abort()
            return set(numbers)
        return handled

    def close(self) -> None:
        """Forget the connections, which are closed, and watch no longer."""
        self._turn()
        self._loop.remove_reader(self._streams.fileno())


class NativeListener:
    """Accepts connections of one socket. `serve` returns a new connection."""

    def __init__(
        self,
        sockets: NativeSockets,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        serve: Callable[[], NativeSocket],
        steady_ms: Callable[[], int],
    ) -> None:
        self._sockets = sockets
        self._loop = loop
        self._sock = sock
        self._serve = serve
        self._steady_ms = steady_ms
        self._short = RateLimit()
        self._pause: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_MOST_ACCEPTED):
            try:
                sock, peer = self._sock.accept()
                self._serve().open(self._sockets, sock, peer)
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    raise
                self._wait(error)
                return

    def _wait(self, error: OSError) -> None:
        """Accept no connection for a moment, because the system has no descriptor or memory for it."""
        if times := self._short.hit(self._steady_ms()):
            _log.error(
                "new connections wait, because none can be accepted: %s; %d since the last such message", error, times
            )
        self._loop.remove_reader(self._sock.fileno())
        self._pause = self._loop.call_later(_SHORTAGE_PAUSE_S, self._listen)

    def close(self) -> None:
        """Stop accepting."""
        if self._pause is not None:
            self._pause.cancel()
        else:
            self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
