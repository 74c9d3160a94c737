"""A broker that changes the responses of another one, as `ResponseMutator` draws it.

It listens at an address of its own on the loopback interface, where no other broker is: a client that is told a wrong
port must not meet somebody else's.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import Counter
from random import Random
from types import TracebackType
from typing import Any, Self

from fencepost.protocol import codec, frame
from tests.support.fuzz.response_mutations import ResponseMutator

__all__ = ["MutatingBrokers"]

HOST = "127.77.0.1"
NAME_BROKERS = (3, 10, 60)  # Metadata, FindCoordinator, DescribeCluster
ENDED = (OSError, asyncio.IncompleteReadError)


class MutatingBrokers:
    """Any number of listeners before the broker at `upstream`, in a thread. `happened` counts what was said."""

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="liars", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self.happened: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    def new(self, seed: int, answers_per_change: float) -> str:
        """Start another listener, with changes drawn from `seed`, and return its address."""
        return asyncio.run_coroutine_threadsafe(
            self._listen(ResponseMutator(Random(seed), answers_per_change)), self._loop
        ).result()

    async def _listen(self, mutator: ResponseMutator) -> str:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            _, port = writer.get_extra_info("sockname")
            await self._serve(mutator, port, reader, writer)

        server = await asyncio.start_server(connected, HOST, 0)
        self._servers.append(server)
        return f"{HOST}:{server.sockets[0].getsockname()[1]}"

    async def _serve(
        self, mutator: ResponseMutator, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        self._writers |= {writer, up_writer}
        try:
            while True:
                request = await _frame(reader)
                key, version = struct.unpack_from(">hh", request, 4)
                up_writer.write(request)
                answer = named(key, version, await _frame(up_reader), port)
                mutated = mutator.about(key, version, answer)
                self.happened[mutated.what] += 1
                for start in range(0, len(mutated.data), mutated.piece):
                    writer.write(mutated.data[start : start + mutated.piece])
                    await writer.drain()
                    await asyncio.sleep(0)
                if mutated.close:
                    return
        except ENDED as error:
            self.happened[type(error).__name__] += 1
        finally:
            for stream in (writer, up_writer):
                stream.transport.abort()
                self._writers.remove(stream)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """With its size."""
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head))


def named(key: int, version: int, answer: bytes, port: int) -> bytes:
    """The answer with the address of the listener in place of every broker's."""
    if key not in NAME_BROKERS:
        return answer
    number, start = frame.decode_response_header(key, version, answer[4:])
    message: Any = codec.decode_response(key, version, answer[4 + start :])
    for broker in [message, *message.coordinators] if key == 10 else message.brokers:
        if broker.host:
            broker.host, broker.port = HOST, port
    return frame.encode_response_frame(key, version, number, codec.encode_response(message, version))
