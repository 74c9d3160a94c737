"""Download of a document within a total time limit.

The timeout of urllib applies to each read, so a slow server could make it wait without end. Here the connection is shut
down at the time limit: while connecting, in the TLS handshake, in the headers or in the document.
"""

from __future__ import annotations

import http.client
import os
import socket
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

from fencepost.small_files import read_whole

__all__ = ["HttpReading"]


class HttpReading:
    """One download. Another thread may call `end`."""

    def __init__(self, url: str, patience_s: float) -> None:
        self._url = url
        self._patience_s = patience_s
        self._lock = threading.Lock()  # for the two below
        self._sockets: list[socket.socket] = []
        self._why = ""

    def read(self) -> bytes:
        """Return the document.

        Raises:
            TimeoutError: It is not complete within the time limit.
            OSError: It cannot be read.
            ValueError: It is too large.
        """
        opener = urllib.request.build_opener(_Http(self._connection), _Https(self._connection))
        too_late = f"it was not whole after {self._patience_s:g} s"
        timer = threading.Timer(self._patience_s, self.end, [too_late])
        timer.daemon = True
        timer.start()
        try:
            with opener.open(self._url, timeout=self._patience_s) as answer:
                data = read_whole(answer)
        except (OSError, http.client.HTTPException) as error:
            self._check_time()
            if isinstance(getattr(error, "reason", error), TimeoutError):  # the socket's timeout equals the timer's
                raise TimeoutError(too_late) from error
            if isinstance(error, OSError):
                raise
            raise OSError(f"no answer in HTTP: {type(error).__name__} {error}") from error
        finally:
            timer.cancel()
            self._close()
        self._check_time()
        return data

    def end(self, why: str) -> None:
        """Shut the connections down; `read` then raises TimeoutError with this reason."""
        with self._lock:
            self._why = self._why or why
            for each in self._sockets:
                _shut_down(each)

    def _check_time(self) -> None:
        if self._why:
            raise TimeoutError(self._why)

    def _close(self) -> None:
        with self._lock:
            for each in self._sockets:
                each.close()
            self._sockets = []

    def _connection(self, kind: Callable[..., http.client.HTTPConnection]) -> Callable[..., http.client.HTTPConnection]:
        def make(*arguments: Any, **keywords: Any) -> http.client.HTTPConnection:
            connection = kind(*arguments, **keywords)
            connection._create_connection = self._connect  # type: ignore[attr-defined]
            return connection

        return make

    def _connect(self, *arguments: Any, **keywords: Any) -> socket.socket:
        sock = socket.create_connection(*arguments, **keywords)
        with self._lock:
            # TLS takes over the socket. This copy of its descriptor lets `end` shut the connection down.
            self._sockets.append(socket.socket(fileno=os.dup(sock.fileno())))
            if self._why:
                _shut_down(self._sockets[-1])
        return sock


class _Http(urllib.request.HTTPHandler):
    def __init__(self, connection: Callable[[Any], Any]) -> None:
        super().__init__()
        self._kind = connection(http.client.HTTPConnection)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._kind, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, connection: Callable[[Any], Any]) -> None:
        super().__init__()
        self._kind = connection(http.client.HTTPSConnection)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._kind, req)


def _shut_down(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the peer has closed it first
