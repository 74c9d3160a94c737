"""The listeners of a server: their listening sockets, certificates, and the kind of their connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from fencepost.broker.network.asyncio_sockets import AsyncioSocket
from fencepost.broker.network.certificates import Certificates
from fencepost.broker.network.native_sockets import NativeListener, NativeSocket, NativeSockets
from fencepost.broker.network.sockets import Server, listening_sockets
from fencepost.broker.network.tls_sockets import TlsClientSocket
from fencepost.broker.security.listeners import Listener

__all__ = ["ListeningSockets"]


class ListeningSockets:
    """Accepts connections at listeners.

    The native module serves connections without TLS if it is usable. asyncio serves all others.
    """

    def __init__(self, server: Server, steady_ms: Callable[[], int]) -> None:
        """Create without listeners. `steady_ms` is a monotonic clock."""
        self._server = server
        self._steady_ms = steady_ms
        self._accepting: list[asyncio.Server | NativeListener] = []
        self._native: NativeSockets | None = None
        self.certificates: list[Certificates] = []
        """Of the listeners with TLS."""

    async def open(self, listeners: Sequence[Listener]) -> None:
        """Listen, and give the listeners their ports. Raises OSError and InvalidSetting; then call `close`."""
        if NativeSockets.are_usable():
            self._native = NativeSockets(self._server, asyncio.get_running_loop())
        for index, listener in enumerate(listeners):
            await self._open(index, listener)

    async def _open(self, index: int, listener: Listener) -> None:
        loop, server, native = asyncio.get_running_loop(), self._server, self._native
        tls = None if listener.tls is None else Certificates(listener.name, listener.tls, time.time)
        if tls is not None:
            self.certificates.append(tls)

        def serve() -> AsyncioSocket:
            return TlsClientSocket(server, index, tls.context()) if tls else AsyncioSocket(server, index)

        sockets = listening_sockets(listener.host or None, listener.port)
        listener.port = sockets[0].getsockname()[1]
        for sock in sockets:
            if tls is None and native is not None:
                accept = NativeListener(native, loop, sock, lambda: NativeSocket(server, index), self._steady_ms)
                self._accepting.append(accept)
            else:
                self._accepting.append(await loop.create_server(serve, sock=sock))
        host, port = listener.advertised
        listener.advertised = (host, port or listener.port)

    def stop_accepting(self) -> None:
        """Stop listening. Connections stay."""
        for each in self._accepting:
            each.close()
        self._accepting = []

    def close(self) -> None:
        """Stop listening. Close the native sockets, whose connections must be closed already."""
        self.stop_accepting()
        if self._native is not None:
            self._native.close()
            self._native = None
