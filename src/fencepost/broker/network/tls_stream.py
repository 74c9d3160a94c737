"""The TLS of one connection: bytes of the network in and out, and between them what they mean.

Not the event loop's own, which keeps a buffer of 256 KiB for each connection and tells of one only when its handshake
is done: here all connections share one, and one that never finishes its handshake counts from the start.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import cast

from fencepost.protocol.cursor import Buffer

__all__ = ["TlsStream"]


class TlsStream:
    """The server's side. After any call `take` has what is to be sent."""

    __slots__ = ("_received", "_tls", "_to_send", "is_open")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_side=True)
        self.is_open = False
        """Whether the handshake is done."""

    def receive(self, data: memoryview) -> None:
        """This came from the network."""
        self._received.write(data)

    def shake_hands(self) -> bool:
        """Go on with the handshake; whether it is done. Raises ssl.SSLError."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
            self.is_open = True
        return self.is_open

    def certificate(self) -> bytes | None:
        """What the client has shown (DER) and was verified, None where it has shown none."""
        return self._tls.getpeercert(binary_form=True)

    def read_into(self, space: memoryview) -> int | None:
        """How many bytes were read; 0 when the other side has ended it, None when more has to come. Raises
        ssl.SSLError."""
        try:
            return cast("int", self._tls.read(len(space), space))  # a number when there is a place to read into
        except ssl.SSLWantReadError:
            return None

    def write(self, data: Buffer) -> None:
        """This is to be sent. Raises ssl.SSLError."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]

    def end(self) -> None:
        """Say that nothing more will come."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()

    def take(self) -> bytes:
        """What is to be sent over the network."""
        return self._to_send.read()
