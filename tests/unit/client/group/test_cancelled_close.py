"""`close()` of an asyncio consumer is cancelled at each of its waits: nothing of the client goes on in its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import fencepost
from fencepost.client.admin.configs import GROUP_RESOURCE

MakeClient = Callable[[str, str], Any]
MOST_WAITS = 400


def _classic(servers: str, group: str) -> Any:
    return fencepost.AsyncConsumer(servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=True)


def _consumer_protocol(servers: str, group: str) -> Any:
    return fencepost.AsyncConsumer(servers, group_id=group, auto_offset_reset="earliest", group_protocol="consumer")


def _share(servers: str, group: str) -> Any:
    return fencepost.AsyncShareConsumer(servers, group_id=group)


class _Waiting(fencepost.RebalanceListener):
    async def on_partitions_revoked(self, partitions: object) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def _reading(servers: str, make: MakeClient, group: str) -> Any:
    client = make(servers, group)
    if make is _share:
        await client.subscribe(["t"])
    else:
        await client.subscribe(["t"], listener=_Waiting())
    while not await client.poll(1000):
        pass
    return client


async def _left_after(servers: str, make: MakeClient, group: str, rounds: int) -> tuple[bool, set[str]]:
    """Return true if the close had ended before its cancellation, and the tasks that go on."""
    before = asyncio.all_tasks()
    client = await _reading(servers, make, group)
    closing = asyncio.ensure_future(client.close(5000))
    for _ in range(rounds):
        await asyncio.sleep(0)
        if closing.done():
            break
    had_ended = closing.done()
    closing.cancel()
    await asyncio.wait([closing])
    assert client.closed
    for _ in range(200):
        left = asyncio.all_tasks() - before
        if not left:
            break
        await asyncio.sleep(0.01)
    return had_ended, {str(task.get_coro()) for task in left}


@pytest.mark.parametrize("make", [_classic, _consumer_protocol, _share])
def test_nothing_goes_on(make: MakeClient) -> None:
    async def run() -> None:
        with fencepost.Broker() as broker:
            servers = broker.bootstrap_servers
            async with fencepost.AsyncAdmin(servers) as admin, fencepost.AsyncProducer(servers) as producer:
                await admin.create_topic("t", 1)
                delivery = await producer.send("t", b"a")
                await delivery
                ended, rounds = False, 1  # before the first one close() has not begun
                while not ended:
                    if make is _share:
                        await admin.alter_configs(
                            f"g{rounds}", {"share.auto.offset.reset": "earliest"}, resource_type=GROUP_RESOURCE
                        )
                    ended, left = await _left_after(servers, make, f"g{rounds}", rounds)
                    assert left == set(), f"cancelled after {rounds} rounds"
                    rounds += 1 + rounds // 8
                    assert rounds < MOST_WAITS

    asyncio.run(run())
