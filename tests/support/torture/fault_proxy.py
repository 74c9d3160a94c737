"""A TCP proxy that knows Kafka's frames and loses what a `Lottery` says: requests, answers, connections, time.

It runs in a thread with an event loop of its own, so that what it holds up does not hold up the clients.
"""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from collections import Counter
from types import TracebackType
from typing import Self

__all__ = ["FaultProxy", "Lottery"]

REQUEST_HEAD = struct.Struct(">hhi")  # api key, api version, correlation id
TRANSACTIONAL = {22: "InitProducerId", 24: "AddPartitions", 25: "AddOffsets", 26: "EndTxn", 28: "TxnOffsetCommit"}
OTHERS = {0: "Produce", 1: "Fetch", 3: "Metadata", 9: "OffsetFetch", 10: "FindCoordinator", 11: "JoinGroup"}
NAMES = TRANSACTIONAL | OTHERS


class Lottery:
    """What happens to a request. `one_in` requests of the transactional kind meet a fault, a tenth as many others."""

    def __init__(self, seed: int, one_in: float) -> None:
        self._chance = random.Random(seed)
        self._one_in = one_in
        self.enabled = True
        self.happened: Counter[str] = Counter()

    def draw(self, api_key: int) -> tuple[str, float]:
        """("pass" | "lose request" | "lose answer" | "swallow answer" | "late", seconds)."""
        rate = 1 / self._one_in if api_key in TRANSACTIONAL else 0.1 / self._one_in
        if not self.enabled or api_key not in NAMES or self._chance.random() >= rate:
            return "pass", 0.0
        what = self._chance.choice(("lose request", "lose answer", "lose answer", "swallow answer", "late"))
        self.happened[f"{what}: {NAMES[api_key]}"] += 1
        return what, self._chance.uniform(0.1, 3.0)


class FaultProxy:
    """Listens on `port` of 127.0.0.1, passes on to `upstream_port`. `cut` ends all connections, `away` refuses new."""

    def __init__(self, upstream_port: int, lottery: Lottery) -> None:
        self._upstream_port = upstream_port
        self._lottery = lottery
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.away = False
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self) -> None:
        """End every connection now."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._cut()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.1))
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.away:
                raise ConnectionRefusedError
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        fates: dict[int, tuple[str, float]] = {}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._requests(reader, up_writer, fates))
                both.create_task(self._answers(up_reader, writer, fates))
        except* (OSError, asyncio.IncompleteReadError, _LostError):
            self._writers -= {writer, up_writer}
        finally:
            for one in (writer, up_writer):
                one.transport.abort()
            self._writers -= {writer, up_writer}

    async def _requests(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, fates: dict[int, tuple[str, float]]
    ) -> None:
        while True:
            head = await source.readexactly(4)
            frame = await source.readexactly(struct.unpack(">i", head)[0])
            api_key, _version, correlation_id = REQUEST_HEAD.unpack_from(frame)
            what, seconds = self._lottery.draw(api_key)
            if what == "lose request":
                raise _LostError(what)
            if what != "pass":
                fates[correlation_id] = (what, seconds)
            target.write(head + frame)
            await target.drain()

    async def _answers(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, fates: dict[int, tuple[str, float]]
    ) -> None:
        while True:
            head = await source.readexactly(4)
            frame = await source.readexactly(struct.unpack(">i", head)[0])
            what, seconds = fates.pop(struct.unpack_from(">i", frame)[0], ("pass", 0.0))
            if what == "lose answer":
                raise _LostError(what)
            if what == "swallow answer":
                continue  # the connection looks alive and never answers this one
            if what == "late":
                await asyncio.sleep(seconds)
            target.write(head + frame)
            await target.drain()


class _LostError(Exception):
    """The connection ends here on purpose."""
