"""A signal handler raises inside of poll() or consume(): each message is returned once, and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import pytest

import fencepost
from fencepost.compat.confluent_kafka import Consumer, DeserializingConsumer, Message, TopicPartition
from fencepost.errors import UsageError
from tests.support import interrupted_calls as calls

RECORDS = 200
AHEAD = 20
"""Messages that are read after the strike."""

# An exception may also come while Python runs a finalizer, and is then only printed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with fencepost.Broker() as broker, calls.nothing_hangs(300):
        calls.fill(broker.bootstrap_servers, "t", RECORDS)
        yield broker.bootstrap_servers


def consumer(servers: str, kind: str, at: int) -> Any:
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": f"{kind}-{at}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    if not kind.startswith("deserialized"):
        return Consumer(settings)
    settings |= {"key.deserializer": lambda data, _: data, "value.deserializer": lambda data, _: data}
    return DeserializingConsumer(settings)


READS: dict[str, Callable[[Any], Any]] = {
    "poll": lambda client: client.poll(0.01),
    "deserialized": lambda client: client.poll(0.01),
    "consume": lambda client: client.consume(7, 0.01),
    "consume more than is fetched at once": lambda client: client.consume(150, 0.01),
}


STRIDES = {"poll": 2, "deserialized": 3, "consume": 5, "consume more than is fetched at once": 47}
"""Points from one strike to the next."""


def numbers(result: Message | list[Message] | None) -> list[int]:
    """Return the numbers in the messages, without events."""
    messages = [] if result is None else [result] if isinstance(result, Message) else result
    return [int(message.value() or b"") for message in messages if message.error() is None]


@pytest.mark.parametrize("kind", READS)
def test_each_message_is_returned_once(servers: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.compat.confluent_kafka.base.fetched_messages._MOST", 40)
    read = READS[kind]
    for at in count(0, STRIDES[kind]):
        client = consumer(servers, kind, at)
        client.assign([TopicPartition("t", 0, 0)])
        given: list[int] = []
        while not given:
            given += numbers(read(client))
        strikes, result = calls.struck(lambda: read(client), at, calls.raising(KeyboardInterrupt))  # noqa: B023
        if not isinstance(result, KeyboardInterrupt):
            given += numbers(result)
        while len(given) < min(len(given) + AHEAD, RECORDS) and len(given) < 2 * AHEAD:
            given += numbers(read(client))
        assert given == list(range(len(given))), at
        assert client.position([TopicPartition("t", 0)])[0].offset == len(given)
        client.commit(asynchronous=False)
        assert client.committed([TopicPartition("t", 0)], 60)[0].offset == len(given)
        client.close()
        if not strikes.struck:
            break
    assert at > 30


@pytest.mark.parametrize("kind", READS)
def test_a_signal_handler_that_polls_gets_other_messages(
    servers: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.compat.confluent_kafka.base.fetched_messages._MOST", 40)
    read = READS[kind]
    polled = 0
    for at in count(0, STRIDES[kind]):
        client = consumer(servers, f"{kind}-polls", at)
        client.assign([TopicPartition("t", 0, 0)])
        given: list[int] = []
        while not given:
            given += numbers(read(client))
        inner: list[int] = []

        def poll() -> None:
            with suppress(UsageError):  # inside of a request
                inner.extend(numbers(client.poll(0)))  # noqa: B023 (called at once)

        strikes, result = calls.struck(lambda: read(client), at, poll)  # noqa: B023
        polled += len(inner)
        given += inner + numbers(result)
        assert client.position([TopicPartition("t", 0)])[0].offset == len(given), at
        while len(given) < 2 * AHEAD:
            given += numbers(read(client))
        assert sorted(given) == list(range(len(given))), at
        assert client.position([TopicPartition("t", 0)])[0].offset == len(given)
        client.close()
        if not strikes.struck:
            break
    assert polled > 5


@pytest.mark.parametrize("kind", ["commits", "events"])
def test_each_callback_is_called(servers: str, kind: str) -> None:
    """A callback that has begun counts as called."""
    for at in count():
        client = Consumer({"bootstrap.servers": servers, "group.id": f"callbacks-{kind}"})
        waiting: Any = client._callbacks if kind == "commits" else client._events._waiting
        called: list[int] = []
        waiting.extend([partial(called.append, number) for number in range(3)])
        strikes, _ = calls.struck(lambda: client.poll(0), at, calls.raising(KeyboardInterrupt))  # noqa: B023
        client.poll(0)
        assert called == [0, 1, 2], at
        client.close()
        if not strikes.struck:
            break
    assert at > 10
