"""A small proxy for tests, HTTP CONNECT and SOCKS5, which also refuses, stalls and breaks off as a test says."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import re
import socket
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

PATIENCE_S: Final = 60


class Tunnels:
    """A proxy on 127.0.0.1.

    Args:
        names: Where the proxy finds a host: by (host, port), the port on 127.0.0.1.
        login: User and password that it wants.
        answer: Bytes in place of each answer to CONNECT; b"" closes the connection.
        stalls: It never answers.
        in_parts: It sends each answer in two parts.
    """

    def __init__(
        self,
        names: Mapping[tuple[str, int], int] | None = None,
        *,
        login: tuple[str, str] | None = None,
        answer: bytes | None = None,
        stalls: bool = False,
        in_parts: bool = False,
    ) -> None:
        self.names, self.login, self.answer = dict(names or {}), login, answer
        self.stalls, self.in_parts = stalls, in_parts
        self.targets: list[tuple[str, int]] = []
        self.heads: list[bytes] = []  # requests to an HTTP proxy
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, scheme: str, user: str = "") -> str:
        return f"{scheme}://{user}127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.settimeout(PATIENCE_S)
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            if self.stalls:
                return
            first = _exactly(client, 1)
            server = self._socks(client) if first == b"\x05" else self._http(client, first)
            if server is None:
                client.close()
                return
            self._sockets.append(server)
            threading.Thread(target=_pump, args=(server, client), daemon=True).start()
            _pump(client, server)

    def _say(self, client: socket.socket, data: bytes) -> None:
        if self.in_parts:
            client.sendall(data[:2])
            threading.Event().wait(0.02)  # so that they are two packets
            data = data[2:]
        client.sendall(data)

    def _connect(self, host: str, port: int) -> socket.socket | None:
        self.targets.append((host, port))
        try:
            return socket.create_connection(("127.0.0.1", self.names.get((host, port), port)))
        except OSError:
            return None

    def _http(self, client: socket.socket, head: bytes) -> socket.socket | None:
        while not head.endswith(b"\r\n\r\n"):
            head += _exactly(client, 1)
        self.heads.append(head)
        found = re.match(rb"CONNECT (\S+):(\d+) HTTP/1\.1\r\n", head)
        wanted = None if self.login is None else base64.b64encode(":".join(self.login).encode())
        if wanted is not None and b"\r\nProxy-Authorization: Basic %b\r\n" % wanted not in head:
            self._say(client, b'HTTP/1.1 407 Login\r\nProxy-Authenticate: Basic realm="tests"\r\n\r\n')
            return None
        if self.answer is not None or found is None:
            self._say(client, self.answer or b"")
            return None
        server = self._connect(found[1].decode().strip("[]"), int(found[2]))
        self._say(client, b"HTTP/1.1 200 OK\r\nVia: tests\r\n\r\n" if server else b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        return server

    def _socks(self, client: socket.socket) -> socket.socket | None:
        offered = _exactly(client, _exactly(client, 1)[0])
        method = 0 if self.login is None else 2
        if method not in offered:
            self._say(client, b"\x05\xff")
            return None
        self._say(client, bytes([5, method]))
        if self.login is not None:
            _exactly(client, 1)
            given = tuple(_exactly(client, _exactly(client, 1)[0]).decode() for _ in range(2))
            self._say(client, b"\x01\x00" if given == self.login else b"\x01\x01")
            if given != self.login:
                return None
        kind = _exactly(client, 4)[3]
        if kind == 3:
            host = _exactly(client, _exactly(client, 1)[0]).decode()
        else:
            host = str(ipaddress.ip_address(_exactly(client, 4 if kind == 1 else 16)))
        port = int.from_bytes(_exactly(client, 2))
        if self.answer is not None:
            self._say(client, self.answer)
            return None
        server = self._connect(host, port)
        self._say(client, bytes([5, 0 if server else 5, 0, 1, 127, 0, 0, 1, 0, 0]))
        return server


def _exactly(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        got = client.recv(count - len(data))
        if not got:
            raise EOFError
        data += got
    return data


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
