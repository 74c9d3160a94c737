"""A server over HTTP that keeps what it is asked, and answers as a test says."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

GOOD = b'{"access_token": "x.y.z", "expires_in": 600}'


@dataclass
class AdoptionArguments:
    """A request: its path, headers and form."""

    path: str
    headers: dict[str, str]
    form: dict[str, str]


@dataclass
class Provider:
    """The server. `answers` are used in turn, the last one again and again."""

    url: str = ""
    answers: list[tuple[int, bytes]] = field(default_factory=lambda: [(200, GOOD)])
    delay_s: float = 0
    asked: list[AdoptionArguments] = field(default_factory=list)

    def answer(self) -> tuple[int, bytes]:
        time.sleep(self.delay_s)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def identity_provider() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._handle(b"")

        def do_POST(self) -> None:
            self._handle(self.rfile.read(int(self.headers["Content-Length"])))

        def _handle(self, body: bytes) -> None:
            form = dict(urllib.parse.parse_qsl(body.decode()))
            provider.asked.append(AdoptionArguments(self.path, dict(self.headers), form))
            status, answer = provider.answer()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.url = f"http://127.0.0.1:{server.server_port}/token"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
