"""A TCP proxy that records Kafka requests with their responses. It knows frames and correlation ids, nothing else."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

REQUEST_HEAD = struct.Struct(">hhi")  # api key, api version, correlation id


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request frame and its response frame, both without the size prefix."""

    label: str
    api_key: int
    api_version: int
    request: bytes
    response: bytes


class RecordingProxy:
    """Listens on `port` of 127.0.0.1 and passes everything on to `upstream_port` there."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.upstream_port = 0
        self.label = ""
        self.exchanges: list[Exchange] = []
        self._connections: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.close()
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                server = socket.create_connection(("127.0.0.1", self.upstream_port))
            except OSError:
                client.close()  # the client sees what it would see: nobody is there
                continue
            with self._lock:
                self._connections += [client, server]
            pending: dict[int, tuple[str, bytes]] = {}

            def on_request(frame: bytes, pending: dict[int, tuple[str, bytes]] = pending) -> None:
                _key, _version, correlation_id = REQUEST_HEAD.unpack_from(frame)
                with self._lock:
                    pending[correlation_id] = (self.label, frame)

            def on_response(frame: bytes, pending: dict[int, tuple[str, bytes]] = pending) -> None:
                (correlation_id,) = struct.unpack_from(">i", frame)
                with self._lock:
                    label, request = pending.pop(correlation_id)
                    api_key, api_version, _ = REQUEST_HEAD.unpack_from(request)
                    self.exchanges.append(Exchange(label, api_key, api_version, request, frame))

            for source, target, note in ((client, server, on_request), (server, client, on_response)):
                threading.Thread(target=_pump, args=(source, target, note), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket, note: Callable[[bytes], None]) -> None:
    buffer = bytearray()
    try:
        while data := source.recv(65536):
            buffer += data
            while len(buffer) >= 4:
                (size,) = struct.unpack_from(">i", buffer)
                if len(buffer) < 4 + size:
                    break
                note(bytes(buffer[4 : 4 + size]))
                del buffer[: 4 + size]
            target.sendall(data)
    except OSError:
        return  # one side went away; closing below tells the other
    finally:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it was closed already
