"""Socket of a client on a TLS listener: the handshake, then encrypted requests and responses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Final

from fencepost.broker.network.asyncio_sockets import AsyncioSocket
from fencepost.broker.network.sockets import Server
from fencepost.broker.network.tls_stream import TlsStream
from fencepost.broker.security.rights import ANONYMOUS
from fencepost.broker.security.tls import tls_failure
from fencepost.protocol.cursor import Buffer

__all__ = ["HANDSHAKE_S", "TlsClientSocket"]

HANDSHAKE_S: Final = 30.0
"""Time limit for the handshake in seconds; then the client is disconnected."""

_LINGER_S: Final = 2.0
_HANDSHAKE_RECORD: Final = 0x16
_SEALED_AT_ONCE: Final = 64 * 1024


class TlsClientSocket(AsyncioSocket):
    """A TLS connection. It counts for admission from the start, and reaches the core after the handshake."""

    def __init__(self, server: Server, listener: int, context: ssl.SSLContext) -> None:
        super().__init__(server, listener)
        self._stream = TlsStream(context)
        self._has_begun = False  # the client has sent its first bytes
        self._is_refused = False
        self._deadline: asyncio.TimerHandle | None = None

    def _admitted(self) -> None:
        self._deadline = self._server.call_later(HANDSHAKE_S, self._too_late)

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
            if self._stream.is_open or self._handshake():
                self._read()
        except ssl.SSLError as error:
            self._transport.write(self._stream.take())  # the alert for the client
            self._refuse(tls_failure(error, is_open=self._stream.is_open))

    def _handshake(self) -> bool:
        """Continue the handshake; return true when it is complete. Raises ssl.SSLError."""
        is_done = self._stream.handshake()
        self._transport.write(self._stream.take())
        if not is_done:
            return False
        try:
            principal = self._principal()
        except ValueError as error:  # the name cannot be read, or no rule maps it to a user
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
        """Decrypt what has arrived. Raises ssl.SSLError."""
        stream = self._stream
        count = stream.read_into(self._receiver.space())
        while count and not self._transport.is_closing():
            self._receive(count)
            count = stream.read_into(self._receiver.space())
        if answers := stream.take():  # to messages of TLS itself
            self._transport.write(answers)
        self._work(self._server.now_ms(), self._server.core.steady_ms())
        self._server.pump()
        if count == 0:
            self._end_of_input()

    def _too_late(self) -> None:
        self._deadline = None
        self._refuse(f"its handshake was not done within {HANDSHAKE_S:.0f} s")

    def _refuse(self, why: str) -> None:
        self._is_refused = True
        self._cancel_deadline()
        self._server.handshake_failed(self._server.listeners[self._listener], self._peer[0], why)
        if self._stream.is_open:  # responses may be in transit, and TLS can report the error
            self.close()
        elif not self._transport.is_closing():
            # Closing with unread input would reset the connection and lose the alert with the reason.
            self._transport.write_eof()
            self._deadline = self._server.call_later(_LINGER_S, self.abort)

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

    def _write_joined(self, data: bytes) -> None:
        self._write((data,))

    def _write(self, buffers: Sequence[Buffer]) -> None:
        sealed = []
        for buffer in buffers:
            view = memoryview(buffer)
            for start in range(0, len(view), _SEALED_AT_ONCE):
                self._stream.write(view[start : start + _SEALED_AT_ONCE])
                sealed.append(self._stream.take())
        # In one call, because the transport reports a full buffer once, and not again as it grows.
        self._transport.writelines(sealed)

    def close(self) -> None:
        if self._stream.is_open and not self._transport.is_closing():
            self._stream.end()
            self._transport.write(self._stream.take())
        super().close()
