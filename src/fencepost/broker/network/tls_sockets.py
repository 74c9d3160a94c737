"""A client's socket on a listener with TLS: the handshake first, then requests and answers through it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Final

from fencepost.broker.network.sockets import ClientSocket, Server
from fencepost.broker.network.tls_stream import TlsStream
from fencepost.broker.security.rights import ANONYMOUS
from fencepost.broker.security.tls import tls_failure
from fencepost.protocol.cursor import Buffer

__all__ = ["HANDSHAKE_S", "TlsClientSocket"]

HANDSHAKE_S: Final = 30.0
"""A client that has not finished its handshake by then is disconnected."""

_LINGER_S: Final = 2.0
_HANDSHAKE_RECORD: Final = 0x16
_SEALED_AT_ONCE: Final = 64 * 1024


class TlsClientSocket(ClientSocket):
    """It counts as a connection from the start, and to the core it is one when the handshake is done."""

    def __init__(self, server: Server, listener: int, context: ssl.SSLContext) -> None:
        super().__init__(server, listener)
        self._stream = TlsStream(context)
        self._has_begun = False  # to say anything
        self._is_refused = False
        self._deadline: asyncio.TimerHandle | None = None

    def _admitted(self) -> None:
        self._deadline = self._server.later(HANDSHAKE_S, self._too_late)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.sealed_input

    def buffer_updated(self, nbytes: int) -> None:
        server = self._server
        if server.failed.done() or not self._connection_id or self._is_refused:
            return
        sealed = server.sealed_input[:nbytes]
        if not self._has_begun and sealed[0] != _HANDSHAKE_RECORD:
            self._refuse("it does not speak TLS (security.protocol of the client)")
            return
        self._has_begun = True
        self._stream.receive(sealed)
        try:
            if self._stream.is_open or self._shake_hands():
                self._read()
        except ssl.SSLError as error:
            self._transport.write(self._stream.take())  # the alert that tells the client
            self._refuse(tls_failure(error, is_open=self._stream.is_open))

    def _shake_hands(self) -> bool:
        """Whether the handshake is done, and requests may come. Raises ssl.SSLError."""
        is_done = self._stream.shake_hands()
        self._transport.write(self._stream.take())
        if not is_done:
            return False
        try:
            principal = self._principal()
        except ValueError as error:  # of a name that cannot be read, or that no rule maps to a user
            self._refuse(str(error))
            return False
        self._cancel_deadline()
        self._begin(principal)
        return True

    def _principal(self) -> str:
        tls = self._server.listeners[self._listener].tls
        certificate = self._stream.certificate()
        if tls is None or certificate is None:
            return ANONYMOUS
        return f"User:{tls.user_of(certificate)}"

    def _read(self) -> None:
        """Take what has come. Raises ssl.SSLError."""
        stream = self._stream
        count = stream.read_into(self._receiver.space())
        while count and not self._transport.is_closing():
            self._receive(count)
            count = stream.read_into(self._receiver.space())
        if answers := stream.take():  # to what TLS itself was asked
            self._transport.write(answers)
        self._work()
        if count == 0:
            self.close()

    def _too_late(self) -> None:
        self._deadline = None
        self._refuse(f"its handshake was not done within {HANDSHAKE_S:.0f} s")

    def _refuse(self, why: str) -> None:
        self._is_refused = True
        self._cancel_deadline()
        self._server.handshake_failed(self._server.listeners[self._listener], self._peer[0], why)
        if self._stream.is_open:  # answers may be on their way, and it can be told in TLS
            self.close()
        elif not self._transport.is_closing():
            # Closing over what it has sent meanwhile would reset the connection, and lose the alert that tells it why.
            self._transport.write_eof()
            self._deadline = self._server.later(_LINGER_S, self.abort)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        if self._has_begun and not self._stream.is_open and not self._is_refused:
            self._is_refused = True
            self._server.handshake_failed(
                self._server.listeners[self._listener], self._peer[0], "it went away before its handshake was done"
            )
        super().connection_lost(exc)

    def _write(self, buffers: Sequence[Buffer]) -> None:
        sealed = []
        for buffer in buffers:
            view = memoryview(buffer)
            for start in range(0, len(view), _SEALED_AT_ONCE):
                self._stream.write(view[start : start + _SEALED_AT_ONCE])
                sealed.append(self._stream.take())
        # At once: how much waits for the client is told when it becomes much, and not again as it grows.
        self._transport.writelines(sealed)

    def close(self) -> None:
        if self._stream.is_open and not self._transport.is_closing():
            self._stream.end()
            self._transport.write(self._stream.take())
        super().close()
