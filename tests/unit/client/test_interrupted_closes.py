"""A signal handler raises at any step of close(): nothing of the client stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import fencepost
from fencepost.client.net.io_thread import io_thread
from tests.support import interrupted_calls as calls
from tests.support.interrupted_calls import FACES
from tests.support.waiting import until

# An exception may also come while Python closes a generator, or runs a finalizer, and is then only printed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker({"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    with calls.nothing_hangs():
        yield


def close_struck(client: Any, at: int) -> bool:
    """Return true if the close was struck at its point number `at`."""
    strikes, _ = calls.struck(client.close, at, calls.raising((TimeoutError, KeyboardInterrupt)[at % 2]))
    client.close()
    assert client.closed
    return strikes.struck


def tasks() -> set[asyncio.Task[Any]]:
    """Return the tasks of all blocking clients; each connection has one, too."""

    async def others() -> set[asyncio.Task[Any]]:
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    return io_thread().call(others)


@pytest.mark.parametrize("face", FACES)
def test_nothing_runs_any_more(broker: fencepost.Broker, face: str) -> None:
    def connected() -> Any:
        client = FACES[face][0](broker.bootstrap_servers, **calls.settings_of(face))
        calls.outcome_of(client, {"Admin": "list_topics", "Producer": "partitions_for"}.get(face, "poll"))
        if isinstance(client, (fencepost.Consumer, fencepost.ShareConsumer)):
            client.subscribe([calls.TOPIC])
            client.poll(50)
        return client

    before, registered = tasks(), set(io_thread()._open)  # of clients that other files keep open
    client = connected()
    assert tasks() - before
    client.close()
    for at in count(0, 2):
        if not close_struck(connected(), at):
            break
    assert at > 20
    until(lambda: not tasks() - before, within_s=20)
    until(lambda: not set(io_thread()._open) - registered, within_s=20)


@pytest.mark.parametrize("kind", ["classic", "consumer", "share"])
def test_the_group_is_left(broker: fencepost.Broker, kind: str) -> None:
    group = f"left-{kind}"
    settings: dict[str, Any] = {} if kind == "share" else {"group_protocol": kind, "auto_offset_reset": "earliest"}
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(group, 1)
        for at in range(0, 42, 3):
            client_type: Any = fencepost.ShareConsumer if kind == "share" else fencepost.Consumer
            consumer = client_type(broker.bootstrap_servers, group_id=group, **settings)
            consumer.subscribe([group])
            while not admin.describe_group(group).members:
                consumer.poll(20)
            close_struck(consumer, at)
            until(lambda: not admin.describe_group(group).members, within_s=20)
