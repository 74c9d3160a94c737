"""A client's connection over a transport of asyncio."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from fencepost.broker.network.backpressure import MOST_UNREAD_BYTES
from fencepost.broker.network.sockets import OTHER_PROTOCOLS, ClientSocket, Server
from fencepost.broker.security.rights import ANONYMOUS
from fencepost.protocol.errors import WireError
from fencepost.protocol.receiver import Receiver

__all__ = ["AsyncioSocket"]


class AsyncioSocket(ClientSocket, asyncio.BufferedProtocol):
    """A protocol of asyncio. It receives into the memory that all connections use in turn."""

    _transport: asyncio.Transport

    def __init__(self, server: Server, listener: int) -> None:
        super().__init__(server, listener)
        self._receiver = self._intake = Receiver(self._max_frame_bytes(), server.input, OTHER_PROTOCOLS)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's transports are not a subclass of it
        self._transport = transport
        transport.set_write_buffer_limits(high=MOST_UNREAD_BYTES)
        local, peer = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        if peer is None or not self._enter(local, peer):  # already disconnected, or refused
            transport.abort()
            return
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._admitted()

    def _admitted(self) -> None:
        """Continue after admission."""
        self._begin(ANONYMOUS)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.space()

    def buffer_updated(self, nbytes: int) -> None:
        if not self._server.failed.done() and self._connection_id:
            self._receive(nbytes)
            self._work(self._server.now_ms(), self._server.core.steady_ms())
            self._server.pump()

    def _receive(self, nbytes: int) -> None:
        """Process bytes of requests that are in the receiver's space."""
        try:
            frames = self._receiver.received(nbytes)
        except WireError as error:
            self._refuse_size(error)
        else:
            self._take(frames, self._server.core.steady_ms())

    def eof_received(self) -> bool:
        self._end_of_input()
        return True  # the connection is closed here, and not by the transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.leave(self._connection_id)
