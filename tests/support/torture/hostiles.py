"""Clients that mean harm, or are only badly written: they ask and never read, promise bytes and never send them."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable

from fencepost.protocol import fetch_wire, frame

__all__ = ["Hostile"]

MANY = 100
HUGE = 2**31 - 1


class Hostile:
    """Does one bad thing after the other to the broker at `port`, each for a few seconds."""

    def __init__(self, port: int, topic: str, seed: int, happened: Counter[str]) -> None:
        self._port = port
        self._topic = topic
        self._chance = random.Random(seed)
        self._happened = happened

    def misbehave(self) -> None:
        deed = self._chance.choice(DEEDS)
        self._happened[f"hostile: {deed.__name__.strip('_').replace('_', ' ')}"] += 1
        sockets: list[socket.socket] = []
        try:
            deed(self, sockets)
            time.sleep(self._chance.uniform(0.5, 4))
        except OSError as error:
            self._happened[f"hostile: was told: {error}"] += 1
            time.sleep(0.2)
        finally:
            for sock in sockets:
                sock.close()

    def _connect(self, sockets: list[socket.socket]) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._port), timeout=5)
        sockets.append(sock)
        return sock

    def _fetch(self, *, min_bytes: int, max_wait_ms: int) -> bytes:
        wanted = fetch_wire.FetchTopic(
            self._topic, None, [fetch_wire.FetchPartition(number, 0, 50_000_000) for number in range(4)]
        )
        request = fetch_wire.FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=HUGE, isolation_level=0, topics=[wanted]
        )
        body = b"".join(fetch_wire.encode_request(request, 12))
        return bytes(frame.encode_request_frame(1, 12, 1, "hostile", body))

    def _asks_and_never_reads(self, sockets: list[socket.socket]) -> None:
        self._connect(sockets).sendall(self._fetch(min_bytes=1, max_wait_ms=0) * MANY)

    def _parks_for_ever(self, sockets: list[socket.socket]) -> None:
        for _ in range(5):
            self._connect(sockets).sendall(self._fetch(min_bytes=HUGE, max_wait_ms=HUGE) * 10)

    def _promises_a_hundred_megabytes(self, sockets: list[socket.socket]) -> None:
        for _ in range(20):
            self._connect(sockets).sendall(struct.pack(">i", 100 * 1024 * 1024))

    def _says_nothing(self, sockets: list[socket.socket]) -> None:
        for _ in range(200):
            self._connect(sockets)

    def _talks_nonsense(self, sockets: list[socket.socket]) -> None:
        for _ in range(20):
            self._connect(sockets).sendall(struct.pack(">i", 500) + self._chance.randbytes(500))


DEEDS: tuple[Callable[[Hostile, list[socket.socket]], None], ...] = (
    Hostile._asks_and_never_reads,
    Hostile._parks_for_ever,
    Hostile._promises_a_hundred_megabytes,
    Hostile._says_nothing,
    Hostile._talks_nonsense,
)
