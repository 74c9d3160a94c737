"""An HTTP server of the standard library with limits for connections, time and threads.

Each connection has a thread and one request. If there are `most` connections, the oldest without a complete request is
closed for a new one, so that silent connections cannot lock out others. A connection is closed after `most_s` seconds
in any case.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

__all__ = ["Answer", "BoundedServer", "is_own_host"]

Answer = Callable[[str, str, Mapping[str, str], bytes], tuple[int, Mapping[str, str], bytes]]
"""Maps method (GET or POST), target, headers (lower-case names) and body to status, headers and body.

Must not raise.
"""

PATIENCE_S: Final = 10.0  # between two reads
MOST_S: Final = 60.0  # for a whole request and its response
ENDS_IN_S: Final = 0.1
_GIVES_WAY_S: Final = 1.0  # time for a closed connection's thread to end
_MOST_DIGITS: Final = 18  # of a body's size; Python refuses to convert thousands of them
_BUSY: Final = b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\n\r\ntoo many requests at once\n"

# RFC 9110's Host: no user, no path, nothing around it. An address of version 6 stands in brackets, and only that.
HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]*)?")


class BoundedServer(ThreadingHTTPServer):
    """Answer GET, HEAD and POST at `address` in threads, until `stop`.

    Args:
        address: Host and port; port 0 takes a free one.
        answer: Answers one request.
        most: Connections at a time.
        most_body: Bytes of a request's body at most.
        log: Gets a debug line for each failed connection.
        struck: Called with the reason when a limit closes or refuses a connection, from any thread.

    Raises:
        OSError: The port is taken.
    """

    daemon_threads = True
    block_on_close = False  # a slow reader's thread ends by itself
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        answer: Answer,
        *,
        most: int,
        most_body: int = 0,
        log: logging.Logger,
        struck: Callable[[str], None] = lambda _: None,
        most_s: float = MOST_S,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.answer = answer
        self.most_body = most_body
        self.log = log
        self._most = most
        self._most_s = most_s
        self._struck = struck
        self._slots = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()  # for the two below
        self._began_s: dict[socket.socket, float] = {}  # in order of arrival
        self._silent: dict[socket.socket, None] = {}  # without a complete request
        super().__init__(address, _Handler)

    @property
    def port(self) -> int:
        """The port in use."""
        return int(self.server_address[1])

    def start(self, name: str) -> None:
        """Serve in a thread of this name."""
        self._thread = threading.Thread(target=self.serve_forever, args=(ENDS_IN_S,), name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a new connection, or refuse it."""
        if not self._slots.acquire(blocking=False):
            self._displace()
            if not self._slots.acquire(timeout=_GIVES_WAY_S):
                self._refuse(request, client_address)
                return
        with self._lock:
            self._began_s[request] = time.monotonic()
            self._silent[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection, then release its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._began_s.pop(request, None)
                self._silent.pop(request, None)
            self._slots.release()

    def service_actions(self) -> None:
        """Close connections that exceed the time limit. The serving thread calls this several times a second."""
        late_s = time.monotonic() - self._most_s
        with self._lock:
            late = [request for request, began_s in self._began_s.items() if began_s < late_s]
            for request in late:
                del self._began_s[request]
                self._silent.pop(request, None)
                _close(request)
        for _ in late:
            self._struck(f"not done after {self._most_s:.0f} s")

    def has_asked(self, request: Any) -> None:
        """Record that a connection has sent a complete request."""
        with self._lock:
            self._silent.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the failure of a connection."""
        self.log.debug("a request of %s was not answered: %r", client_address, sys.exception())

    def _displace(self) -> None:
        with self._lock:
            oldest = next(iter(self._silent), None)
            if oldest is not None:
                del self._silent[oldest]
                _close(oldest)
        if oldest is not None:
            self._struck(f"{self._most} connections are open, and one that has asked nothing gives way")

    def _refuse(self, request: Any, client_address: Any) -> None:
        self._struck(f"{self._most} requests are being answered")
        request.settimeout(1)
        try:
            request.sendall(_BUSY)
        except OSError as error:
            self.log.debug("%s could not be sent the status 503: %s", client_address, error)
        self.shutdown_request(request)


class _Handler(BaseHTTPRequestHandler):
    """Reads one request and writes the response of the server's `answer`."""

    server: BoundedServer
    timeout = PATIENCE_S

    def version_string(self) -> str:
        """Return the server's name without versions."""
        return "fencepost"

    def do_GET(self) -> None:
        """Answer a request without a body."""
        self._answer("GET", b"")

    def do_HEAD(self) -> None:
        """Answer like GET, without the response's body."""
        self._answer("GET", b"")

    def do_POST(self) -> None:
        """Answer a request with a body of known size, or without one."""
        size = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers:
            self._refuse(411, "the body's size is missing: give Content-Length")
        elif not (size.isascii() and size.isdecimal()):
            self._refuse(400, "the body's size is not a number")
        elif len(size) > _MOST_DIGITS or int(size) > self.server.most_body:
            self._refuse(413, "the body is too large")
        else:
            self._answer("POST", self.rfile.read(int(size)))

    def _refuse(self, status: int, reason: str) -> None:
        self._send(status, {"Content-Type": "text/plain"}, f"{reason}\n".encode())

    def _answer(self, method: str, body: bytes) -> None:
        self.server.has_asked(self.connection)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._send(*self.server.answer(method, self.path, headers, body))

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Log a request at level DEBUG."""
        self.server.log.debug(format, *args)


def _close(request: socket.socket) -> None:
    """Shut a connection down, so that its thread ends."""
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # already closed


def is_own_host(header: str, names: frozenset[str]) -> bool:
    """Return true if a Host header names an address, localhost, or one of the names, with any port."""
    parts = HOST.fullmatch(header)
    if parts is None:
        return False
    name = (parts["name"] or "").lower()
    if name == "localhost" or name in names:
        return True
    try:
        if parts["v6"]:
            ipaddress.IPv6Address(parts["v6"])
        else:
            ipaddress.IPv4Address(name)
    except ValueError:
        return False
    return True
