"""A schema registry that does not answer costs one wait for a schema, and not one for each record."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fencepost.cli.ui import registry
from fencepost.cli.ui.registry import RegistryDecoder
from fencepost.client.records import Record
from fencepost.client.types import TimestampType
from fencepost.errors import SerializationError
from tests.support.waiting import until


class _Dripping(BaseHTTPRequestHandler):
    """Sends a byte now and then, so that each wait for the next byte is short."""

    released = threading.Event()
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        while not self.released.wait(0.1):
            self.wfile.write(b" ")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Dripping)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    _Dripping.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def record(schema_id: int, offset: int) -> Record:
    value = struct.pack(">bI", 0, schema_id) + b"x"
    return Record("t", 0, offset, 0, None, value, [], TimestampType.CREATE_TIME)


def test_many_records_wait_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LIMIT_S", 0.5)
    decode = RegistryDecoder(address)
    begun = time.monotonic()
    for offset in range(50):
        with pytest.raises(SerializationError, match=r"schema registry has not answered in 0\.5 s"):
            decode(record(7, offset), "value")
    assert _Dripping.asked == 1
    assert time.monotonic() - begun < 5
    for schema_id in range(8, 7 + registry.MOST_LOOKUPS):
        with pytest.raises(SerializationError, match=r"has not answered in 0\.5 s"):
            decode(record(schema_id, 0), "value")
    with pytest.raises(SerializationError, match=f"has not answered {registry.MOST_LOOKUPS} requests"):
        decode(record(99, 0), "value")


class _Failing(BaseHTTPRequestHandler):
    """Fails, and then has the schema."""

    is_back = False

    def do_GET(self) -> None:
        body = json.dumps({"schema": "{}", "schemaType": "JSON"} if self.is_back else {"message": "away"}).encode()
        self.send_response(200 if self.is_back else 500)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_registry_that_is_back_is_asked_soon() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Failing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        decode = RegistryDecoder(f"http://127.0.0.1:{server.server_address[1]}")
        value = record(7, 0)._replace(value=struct.pack(">bI", 0, 7) + b'"x"')
        with pytest.raises(SerializationError):
            decode(value, "value")
        _Failing.is_back = True
        began_s = time.monotonic()

        def decoded() -> object:
            with suppress(SerializationError):
                return decode(value, "value")
            return None

        until(lambda: decoded() == "x")
        assert time.monotonic() - began_s < 5
        server.shutdown()
