"""Requests that several connections send before the broker's next turn, through real sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from fencepost.broker.server import BrokerServer
from fencepost.broker.settings.values import BrokerConfig
from fencepost.protocol import produce_wire
from fencepost.protocol.codec import encode_request
from fencepost.protocol.cursor import Buffer
from fencepost.protocol.frame import encode_request_frame
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.broker_driver import batch, produce
from tests.support.engines import engine

CLIENTS = 12


async def answer(client: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    received = b""
    while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
        more = await loop.sock_recv(client, 65_536)
        assert more, "the connection ended"
        received += more
    return received[4:]


def request(correlation: int) -> bytes:
    body = b"".join(produce_wire.encode_request(produce("t", batch(b"v")), 9))
    return encode_request_frame(0, 9, correlation, "a", body)


async def exchanged(directory: Path, turns: list[int], patch: pytest.MonkeyPatch, settings: dict[str, str]) -> set[int]:
    """Send a request on every connection at once. Return the base offsets."""
    server = BrokerServer(BrokerConfig(settings), str(directory))
    await server.start()
    together = server.core.handle_singles

    def counted(now_ms: int, requests: Sequence[tuple[int, Buffer]], arrived_ms: int | None = None) -> list[int]:
        handled = together(now_ms, requests, arrived_ms)
        turns.append(len(handled))
        return handled

    patch.setattr(server.core, "handle_singles", counted)
    try:
        with ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(server.address)) for _ in range(CLIENTS)]
            for client in clients:
                client.setblocking(False)
            create = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
            clients[0].send(encode_request_frame(19, 7, 1, "a", encode_request(create, 7)))
            await answer(clients[0])
            for number, client in enumerate(clients):  # every connection is accepted, and the log is open
                client.send(request(number))
                await answer(client)
            for number, client in enumerate(clients):
                client.send(request(100 + number))
            offsets = set()
            for number, client in enumerate(clients):
                found = await answer(client)
                assert struct.unpack_from(">i", found)[0] == 100 + number
                (result,) = produce_wire.decode_response(memoryview(found)[5:], 9).partitions
                assert result.error_code == 0
                offsets.add(result.base_offset)
            return offsets
    finally:
        await server.stop()


@pytest.mark.parametrize("fsync", ["never", "commit"])
def test_each_connection_gets_its_own_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str) -> None:
    turns = list[int]()
    with engine("native"):
        offsets = asyncio.run(exchanged(tmp_path / "data", turns, monkeypatch, {"fsync": fsync}))
    assert offsets == set(range(CLIENTS, 2 * CLIENTS))
    assert max(turns) > 1
