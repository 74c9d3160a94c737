"""The page over HTTP: the standard library's server, a thread for each request, so many and no more."""

from __future__ import annotations

import logging
import secrets
import socket
import sys
import threading
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, Final

from fencepost.cli.ui.desk import ClusterDesk
from fencepost.cli.ui.web import HEADERS, MOST_BODY, Request, Response, Site
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC

__all__ = ["EVERY_S", "Page"]

log = logging.getLogger("fencepost.ui")

EVERY_S: Final = 2.0
MOST_AT_ONCE: Final = 64
ENDS_IN_S: Final = 0.1
PATIENCE_S: Final = 10.0  # with who sends or reads nothing

KINDS: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
BUSY: Final = b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\n\r\ntoo many requests at once\n"


def _page_files() -> dict[str, tuple[str, bytes]]:
    found = {}
    for file in files("fencepost.cli.ui").joinpath("page").iterdir():
        kind = KINDS.get(file.name.rpartition(".")[2])
        if kind is not None:
            found["/" if file.name == "index.html" else f"/{file.name}"] = (f"{kind}; charset=utf-8", file.read_bytes())
    return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a slow reader's thread ends by itself

    def __init__(self, address: tuple[str, int], site: Site) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.site = site
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """One more than there are places for is told so, at once."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        request.settimeout(1)
        try:
            request.sendall(BUSY)
        except OSError as error:
            log.debug("%s was not told that there are too many: %s", client_address, error)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Gives its place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients come and go."""
        log.debug("a request of %s was not answered: %r", client_address, sys.exception())


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE_S

    def version_string(self) -> str:
        """No versions for strangers."""
        return "fencepost"

    def do_GET(self) -> None:
        """Answer."""
        self._answer(b"")

    def do_POST(self) -> None:
        """Answer, for a body of a known size."""
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > MOST_BODY:
            self._send(Response(413, "text/plain", b"the body's size is missing, or too large\n"))
            return
        self._answer(self.rfile.read(int(size)))

    def _answer(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            response = self.server.site.answer(Request(self.command, self.path, headers, body))
        except Exception:
            log.exception("%s %s failed", self.command, self.path)
            response = Response(500, "text/plain", b"a defect; the log has more\n")
        self._send(response)

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in {"Content-Type": response.kind, "Content-Length": len(response.body), **HEADERS}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(response.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Into the log, for who wants it."""
        log.debug(format, *args)


class Page:
    """The page about one cluster, served until it is closed."""

    def __init__(
        self,
        settings: Mapping[str, str],
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        decision_topic: str = DEFAULT_TOPIC,
        every_s: float = EVERY_S,
        allow_actions: bool = False,
        names: Iterable[str] = (),
    ) -> None:
        """`settings`: the client's, by Kafka's dotted names. `names`: of this machine, that browsers may ask for.

        Raises ConfigurationError; OSError when the port is taken. Brokers that are away are no error: the page says so.
        """
        self._desk = ClusterDesk(settings, decision_topic, every_s=every_s, allow_actions=allow_actions)
        known = frozenset(name.lower() for name in (host, *names))
        try:
            self._server = _Server((host, port), Site(self._desk, _page_files(), known, secrets.token_urlsafe(32)))
        except BaseException:
            self._desk.close()
            raise
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(ENDS_IN_S,), name="fencepost-ui", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Answers nobody any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._desk.close()
