"""What a public client or broker shows of itself: its address and its state."""

from __future__ import annotations

import asyncio

import pytest

import fencepost

CLIENTS = [fencepost.Admin, fencepost.Producer, fencepost.Consumer]


@pytest.mark.parametrize("make", CLIENTS, ids=lambda each: each.__name__)
def test_a_client_shows_address_and_state(make: type[fencepost.Admin]) -> None:
    with make("127.0.0.1:1") as client:
        assert repr(client) == f"<fencepost.{make.__name__} 127.0.0.1:1, open>"
    assert repr(client) == f"<fencepost.{make.__name__} 127.0.0.1:1, closed>"


def test_an_async_client_shows_address_and_state() -> None:
    async def show() -> tuple[str, str]:
        client = fencepost.AsyncAdmin("127.0.0.1:1")
        before = repr(client)
        await client.close()
        return before, repr(client)

    assert asyncio.run(show()) == (
        "<fencepost.AsyncAdmin 127.0.0.1:1, open>",
        "<fencepost.AsyncAdmin 127.0.0.1:1, closed>",
    )


def test_a_broker_shows_address_and_state() -> None:
    broker = fencepost.Broker()
    assert repr(broker) == "<fencepost.Broker stopped>"
    with broker:
        assert repr(broker) == f"<fencepost.Broker {broker.bootstrap_servers}, running>"
    assert repr(broker) == "<fencepost.Broker stopped>"
