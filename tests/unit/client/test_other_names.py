"""A method's name from another client: the error names the method to use."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Mapping

import pytest

import fencepost
from fencepost.client.other_names import OF_CONSUMERS, OF_PRODUCERS, OtherName, names_elsewhere
from tests.support.peer_names.tables import PEERS, exists, rows_of

TABLES: dict[str, Mapping[str, str]] = {"Producer": OF_PRODUCERS, "Consumer": OF_CONSUMERS}
CLIENTS: dict[str, tuple[Any, Any]] = {
    "Producer": (fencepost.Producer, fencepost.AsyncProducer),
    "Consumer": (fencepost.Consumer, fencepost.AsyncConsumer),
}


def names_of_peers() -> Iterator[tuple[str, str, list[str]]]:
    """Kind of client, method, and its names here, for the methods of Python clients that ours do not have."""
    for peer in PEERS[:3]:
        for row in rows_of(peer):
            owner, _, method = row.theirs.partition(".")
            kind = next((kind for kind in TABLES if owner.endswith(kind)), None)
            if kind is not None and row.here and method.isidentifier():
                yield kind, method, [here.replace("Async", "") for here in row.here]


def test_each_name_of_a_python_client_is_known() -> None:
    wrong = []
    for kind, method, names in names_of_peers():
        there = method in dir(CLIENTS[kind][0]) and method not in TABLES[kind]
        here = TABLES[kind].get(method, "")
        qualified = here if "." in here else f"{kind}.{here}"
        if not there and qualified not in names:
            wrong.append((kind, method, names))
    assert wrong == []


def test_no_other_name_is() -> None:
    known = {(kind, method) for kind, method, _ in names_of_peers()}
    assert [(kind, name) for kind, table in TABLES.items() for name in table if (kind, name) not in known] == []


@pytest.mark.parametrize("kind", TABLES)
def test_the_error_names_the_method_to_use(kind: str) -> None:
    blocking, asynchronous = CLIENTS[kind]

    async def make() -> object:
        return asynchronous("localhost:1")

    loop = asyncio.new_event_loop()
    for client in (blocking("localhost:1"), loop.run_until_complete(make())):
        own = type(client).__name__
        for name, here in TABLES[kind].items():
            with pytest.raises(AttributeError) as raised:
                getattr(client, name)
            full = here if "." in here else f"{own}.{here}"
            assert exists(full)
            page = "docs/names-of-other-clients.md"
            assert str(raised.value) == f"{own!r} object has no attribute {name!r}; use {full} ({page})"
            assert (raised.value.name, raised.value.obj) == (name, client)
            assert not hasattr(client, name)
            assert name not in dir(client)
        assert "close" in dir(client)
        client.close() if isinstance(client, blocking) else loop.run_until_complete(client.close())
    loop.close()


def test_a_class_gets_the_names() -> None:
    class Client:
        def send(self) -> None:
            """Send."""

    decorated = names_elsewhere({"produce": "send"})(Client)
    assert decorated is Client
    assert isinstance(vars(Client)["produce"], OtherName)
    assert [name for name, value in inspect.getmembers(Client) if callable(value) and name[0] != "_"] == ["send"]
