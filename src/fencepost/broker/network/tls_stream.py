"""TLS of one connection, between encrypted bytes of the network and plain bytes.

asyncio's own TLS keeps a buffer of 256 KiB per connection, and reports a connection only after its handshake. Here all
connections share one buffer, and an unfinished handshake counts as a connection.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import cast

from fencepost.protocol.cursor import Buffer

__all__ = ["TlsStream"]


class TlsStream:
    """Server side of TLS. After each call, `take` returns the bytes to send."""

    __slots__ = ("_received", "_tls", "_to_send", "is_open")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_side=True)
        self.is_open = False
        """True after the handshake."""

    def receive(self, data: memoryview) -> None:
        """Add encrypted bytes from the network."""
        self._received.write(data)

    def handshake(self) -> bool:
        """Continue the handshake; return true when it is complete. Raises ssl.SSLError."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
            self.is_open = True
        return self.is_open

    def certificate(self) -> bytes | None:
        """Return the client's verified certificate (DER), or None."""
        return self._tls.getpeercert(binary_form=True)

    def read_into(self, space: memoryview) -> int | None:
        """Return the number of bytes read; 0 at the end of the stream, None if more input is needed.

        Raises ssl.SSLError.
        """
        try:
            return cast("int", self._tls.read(len(space), space))  # an int if a buffer is given
        except ssl.SSLWantReadError:
            return None

    def write(self, data: Buffer) -> None:
        """Encrypt data to send. Raises ssl.SSLError."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]

    def end(self) -> None:
        """Send the close notification."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()

    def take(self) -> bytes:
        """Return the encrypted bytes to send."""
        return self._to_send.read()
