"""A stand-in for a schema registry: what its clients ask when they register and look up schemas, over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID


class _Registry(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = Lock()
        self.schemas: list[dict[str, Any]] = []
        """By id, the first being 1: subject, schema, schemaType."""

    def register(self, subject: str, asked: dict[str, Any], *, may_be_new: bool) -> tuple[int, dict[str, Any]]:
        wanted = {"subject": subject, "schema": asked["schema"], "schemaType": asked.get("schemaType", "AVRO")}
        with self.lock:
            if wanted not in self.schemas:
                if not may_be_new:
                    return 404, {"error_code": 40403, "message": "Schema not found"}
                self.schemas.append(wanted)
            number = self.schemas.index(wanted) + 1
        return 200, {**wanted, "id": number, "version": number, "guid": guid(number)}

    def look_up(self, number: int) -> tuple[int, dict[str, Any]]:
        with self.lock:
            if not 0 < number <= len(self.schemas):
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            return 200, {**self.schemas[number - 1], "id": number, "version": number, "guid": guid(number)}


def guid(number: int) -> str:
    """The second name of a schema, which serializers write into headers."""
    return str(UUID(int=number))


class _Handler(BaseHTTPRequestHandler):
    server: _Registry
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = re.fullmatch(r"/subjects/([^/]+)(/versions)?", urlsplit(self.path).path)
        if found is None:
            self._answer(404, {"error_code": 404, "message": self.path})
        else:
            self._answer(*self.server.register(unquote(found[1]), asked, may_be_new=found[2] is not None))

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        found = re.fullmatch(r"/schemas/ids/(\d+)|/schemas/guids/([0-9a-f-]{36})", path)
        number = 0 if found is None else int(found[1] or UUID(found[2]).int)
        self._answer(*(self.server.look_up(number) if found else (404, {"error_code": 404, "message": "no"})))

    def _answer(self, status: int, reported: dict[str, Any]) -> None:
        body = json.dumps(reported).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@contextmanager
def schema_registry() -> Iterator[str]:
    """Its address."""
    with _Registry() as registry:
        thread = Thread(target=registry.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{registry.server_port}"
        finally:
            registry.shutdown()
            thread.join()
