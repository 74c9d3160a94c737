"""The raw limits: the same bytes through sockets and files, with nothing in between that knows a protocol.

A server of the plainest kind answers so many bytes for so many that it has received, appends what came to a file, or
answers out of a file with sendfile. What is measured against it has the sizes and the requests in flight of the row
that it stands beside.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.common import RawConnection

__all__ = ["empty_process_s", "records_s", "round_trips_ms", "serving", "through"]

_SIZE = struct.Struct(">i")
_CHUNK_BYTES = 1 << 16
FRAMING_BYTES = 7  # of a small record in a batch
REQUEST_BYTES, ANSWER_BYTES = 1_000_000, 60


def _serve(request_bytes: int, answer_bytes: int, kind: str) -> None:
    """One connection, until it is closed. `kind`: discard, append (to a file), or sendfile (out of one)."""
    with socket.create_server(("127.0.0.1", 0)) as listening, tempfile.TemporaryFile() as file:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        if kind == "sendfile":
            file.write(bytes(answer_bytes))
            file.flush()
        connection, _ = listening.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = _SIZE.pack(answer_bytes) + bytes(0 if kind == "sendfile" else answer_bytes)
        begun = 0
        while data := connection.recv(max(_CHUNK_BYTES, request_bytes)):
            if kind == "append":
                os.write(file.fileno(), data)
            whole, begun = divmod(begun + len(data), request_bytes)
            if kind != "sendfile":
                connection.sendall(answer * whole)
                continue
            for _ in range(whole):
                connection.sendall(answer)
                position = 0
                while position < answer_bytes:
                    position += os.sendfile(connection.fileno(), file.fileno(), position, answer_bytes - position)


@contextmanager
def serving(request_bytes: int, answer_bytes: int, kind: str) -> Iterator[RawConnection]:
    """A connection to such a server in a process of its own."""
    command = [sys.executable, "-m", "bench.raw", str(request_bytes), str(answer_bytes), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            connection = RawConnection(f"127.0.0.1:{process.stdout.readline().strip() if process.stdout else ''}")
            yield connection
            connection.close()
        finally:
            process.terminate()


def through(request_bytes: int, answer_bytes: int, kind: str, count: int, *, in_flight: int = 5) -> float:
    """Requests per second, so many in flight."""
    request = bytes(request_bytes)
    with serving(request_bytes, answer_bytes, kind) as connection:
        connection.pipelined(request, count // 10 + 1, in_flight)
        begun = time.perf_counter()
        connection.pipelined(request, count, in_flight)
        return count / (time.perf_counter() - begun)


def round_trips_ms(request_bytes: int, answer_bytes: int, trips: int, count: int) -> float:
    """Return the milliseconds that `trips` requests take, one after the other, each appended to a file."""
    return trips * 1000 / through(request_bytes, answer_bytes, "append", count, in_flight=1)


def records_s(name: str, size: int) -> float:
    """Records per second whose bytes go through a socket: to be discarded ("produce"), or out of a file."""
    if name == "produce":
        moved = through(REQUEST_BYTES, ANSWER_BYTES, "discard", 300) * REQUEST_BYTES
    else:
        moved = through(ANSWER_BYTES, REQUEST_BYTES, "sendfile", 300, in_flight=2) * REQUEST_BYTES
    return moved / (size + FRAMING_BYTES)


def empty_process_s() -> float:
    """Return the seconds that a Python process needs to start and to end."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
