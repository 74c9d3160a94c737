"""Connections that were silent for long are not used again: what lies between may have forgotten them."""

from __future__ import annotations

import asyncio
from typing import Self

import pytest

import fencepost
from fencepost.errors import KafkaTimeoutError


class Forgetful:
    """A way to a broker that forgets connections: from then on they swallow what is sent, and nobody is told."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.opened = 0
        self._forgotten = 0
        self.target = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def forget(self) -> None:
        """All that there are now."""
        self._forgotten = self.opened

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        number = self.opened
        there, back = await asyncio.open_connection(*self.target.split(":"))
        self._writers += [writer, back]
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._carry(number, source, target))
            self._tasks.add(task)

    async def _carry(self, number: int, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            if number > self._forgotten:
                target.write(data)
                await target.drain()


async def told_after_a_pause(most_idle_ms: int) -> int:
    """Count the connections that a client opens for a second request, once the network has forgotten the first."""
    async with Forgetful() as way:
        advertised = {"advertised.listeners": f"PLAINTEXT://{way.address}"}
        with fencepost.Broker(advertised) as broker:
            way.target = broker.bootstrap_servers
            async with fencepost.AsyncAdmin(way.address, connections_max_idle_ms=most_idle_ms) as admin:
                await admin.describe_cluster()
                before = way.opened
                way.forget()
                await asyncio.sleep(0.2)
                await admin.describe_cluster(api_timeout_ms=3_000)
                return way.opened - before


def test_what_was_silent_for_long_is_opened_anew() -> None:
    assert asyncio.run(told_after_a_pause(most_idle_ms=100)) == 1


def test_without_that_the_answer_is_waited_for_in_vain() -> None:
    with pytest.raises(KafkaTimeoutError):
        asyncio.run(told_after_a_pause(most_idle_ms=540_000))
