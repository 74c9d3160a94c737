"""Keys that never end, or are not keys: refused by name at the start."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.broker.network import key_source
from fencepost.broker.network.http_reading import HttpReading
from fencepost.broker.network.key_source import KeySource
from fencepost.broker.security.bearer import Keys
from fencepost.broker.settings.setting import InvalidSetting
from fencepost.small_files import MOST_BYTES


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    """As /dev/zero would be; here it ends behind what is read of it."""
    file = tmp_path / "keys.json"
    with open(file, "wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    with pytest.raises(InvalidSetting, match=f"keys.json: it has more than {MOST_BYTES} bytes"):
        KeySource(file.as_uri(), 60_000, Keys()).start()


@contextmanager
def dripping(before: bytes, drop: bytes) -> Iterator[str]:
    """The address of a server that sends `before`, and then `drop` every 10 ms for as long as the client stays."""
    listening = socket.create_server(("127.0.0.1", 0))
    is_over = threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.sendall(before)
                while not is_over.wait(0.01):
                    connection.sendall(drop)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        is_over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    ("before", "drop"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n", b" "),
        (b"HTTP/1.0 200 OK\r\n", b"X: y\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"", b"H"),
        (b"\x16\x03\x03\x40\x00", b"\x02"),
    ],
)
def test_an_address_that_drips_is_given_up(scheme: str, before: bytes, drop: bytes) -> None:
    with dripping(before, drop) as address:
        is_waited_for = scheme == "http" or before[:1] == b"\x16"
        why = r"it was not whole after 0\.3 s" if is_waited_for else r"SSL|it was not whole"
        with pytest.raises(OSError, match=why):
            HttpReading(f"{scheme}://{address}/keys", 0.3).read()


def test_who_drips_is_told_and_the_keys_before_go_on_counting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(key_source, "_PATIENCE_S", 0.2)
    keys = Keys()
    given: list[bytes] = []
    monkeypatch.setattr(keys, "replace", given.append)
    with dripping(b"HTTP/1.0 200 OK\r\n\r\n", b" ") as address:
        source = KeySource(f"http://{address}/keys", 60_000, keys)
        with pytest.raises(InvalidSetting, match=r"it was not whole after 0\.2 s"):
            source.start()
        monkeypatch.setattr(source, "_read", lambda: b"first")
        source.start()
        monkeypatch.delattr(source, "_read")
        reported = threading.Event()
        monkeypatch.setattr(key_source._log, "warning", lambda *_: reported.set())
        keys.missing()
        assert reported.wait(120)
        source.stop()
    assert given == [b"first"]


def test_a_stop_does_not_wait_for_a_slow_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_source, "_PATIENCE_S", 3600.0)
    with dripping(b"HTTP/1.0 200 OK\r\n\r\n", b" ") as address:
        reading = HttpReading(f"http://{address}/keys", 3600.0)
        threading.Timer(0.1, reading.end, ["the broker stops"]).start()
        with pytest.raises(TimeoutError, match="the broker stops"):
            reading.read()
