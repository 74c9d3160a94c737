"""The application's functions of a blocking producer: in its own thread, in order, and named when they are slow."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fencepost
from fencepost.client.interceptors import OutgoingRecord
from fencepost.client.types import RecordMetadata
from fencepost.errors import (
    BufferFullError,
    KafkaError,
    KafkaTimeoutError,
    ProduceFailedError,
    UsageError,
)

WAIT_S = 30
SLOW_S = 0.15  # a function is slow from 0.1 s on


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


class Acknowledged:
    """An interceptor that calls a function."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.closed_in = ""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        self.function()

    def close(self) -> None:
        self.closed_in = threading.current_thread().name


@pytest.mark.parametrize("kind", ["callback", "interceptor", "partitioner"])
def test_a_function_that_blocks_stalls_its_own_client_only(broker: fencepost.Broker, kind: str) -> None:
    entered, release = threading.Event(), threading.Event()

    def block(*_: object) -> int:
        entered.set()
        assert release.wait(WAIT_S)
        return 0

    settings: dict[str, Any] = {}
    if kind == "interceptor":
        settings["interceptors"] = [Acknowledged(block)]
    elif kind == "partitioner":
        settings["partitioner"] = block
    servers = broker.bootstrap_servers
    with fencepost.Producer(servers, **settings) as blocked, fencepost.Producer(servers) as other:
        sent = blocked.send("blocked", b"v", on_delivery=block if kind == "callback" else None)
        assert entered.wait(WAIT_S)
        assert other.send("other", b"v").result(WAIT_S).topic == "other"
        with fencepost.Admin(servers) as admin:
            assert "other" in admin.list_topics()
        with pytest.raises(KafkaTimeoutError, match=r"within 50 ms; the .* has been running for"):
            blocked.flush(timeout_ms=50)
        release.set()
        assert sent.result(WAIT_S).partition == 0


def test_callbacks_run_in_the_order_of_completion_and_before_flush_returns(broker: fencepost.Broker) -> None:
    seen: list[int] = []
    with fencepost.Producer(broker.bootstrap_servers) as producer:

        def note(number: int) -> Callable[[object, object], None]:
            return lambda error, at: seen.append(number)

        for number in range(2_000):
            producer.send("order", b"v", on_delivery=note(number))
        producer.flush()
        assert seen == list(range(2_000))
        producer.send("order", b"v", on_delivery=lambda error, at: seen.append(-1))
    assert seen[-1] == -1


@pytest.mark.parametrize("timeout_ms", [0, 30_000, None])
def test_close_returns_when_callbacks_and_interceptors_are_through(
    broker: fencepost.Broker, timeout_ms: int | None
) -> None:
    reported: list[KafkaError | None] = []
    acknowledged: list[int] = []
    watching = Acknowledged(lambda: acknowledged.append(1))
    producer = fencepost.Producer(broker.bootstrap_servers, linger_ms=60_000, interceptors=[watching])
    for _ in range(10):
        producer.send("t", b"v", on_delivery=lambda error, at: reported.append(error))
    producer.close(timeout_ms)
    assert len(reported) == len(acknowledged) == 10
    assert watching.closed_in == "fencepost-callbacks"
    assert all(isinstance(error, ProduceFailedError) == (timeout_ms == 0) for error in reported)


def test_an_abort_returns_when_the_callbacks_are_through(broker: fencepost.Broker) -> None:
    reported: list[KafkaError | None] = []
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="abort", linger_ms=60_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v", on_delivery=lambda error, at: reported.append(error))
        producer.abort_transaction()
        assert len(reported) == 1


def test_close_does_not_wait_for_ever_for_a_callback(
    broker: fencepost.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    entered, release = threading.Event(), threading.Event()

    def block(error: object, metadata: object) -> None:
        entered.set()
        release.wait(WAIT_S)

    producer = fencepost.Producer(broker.bootstrap_servers)
    producer.send("t", b"v", on_delivery=block)
    assert entered.wait(WAIT_S)
    producer.close(timeout_ms=10)
    release.set()
    assert "closed before the delivery callbacks of all records had run" in caplog.text
    assert "block" in caplog.text


def test_a_callback_may_send_and_use_other_clients(broker: fencepost.Broker) -> None:
    found: list[object] = []
    done = threading.Event()
    servers = broker.bootstrap_servers
    with fencepost.Producer(servers) as producer, fencepost.Producer(servers) as other:

        def copy(error: KafkaError | None, metadata: RecordMetadata | None) -> None:
            found.append(producer.send("copies", b"again", on_delivery=lambda error, at: done.set()))
            found.append(other.send("copies", b"other").result(WAIT_S).topic)

        producer.send("t", b"v", on_delivery=copy)
        assert done.wait(WAIT_S)
    assert found[1] == "copies"


def test_what_would_wait_for_itself_is_refused(broker: fencepost.Broker) -> None:
    refused: dict[str, BaseException] = {}
    with fencepost.Producer(broker.bootstrap_servers) as producer:

        def ask(error: KafkaError | None, metadata: RecordMetadata | None) -> None:
            def transaction() -> None:
                with producer.transaction():
                    pass

            later = producer.send("t", b"later")
            calls: dict[str, Callable[[], object]] = {
                "flush": producer.flush,
                "close": producer.close,
                "result": later.result,
                "exception": later.exception,
                "partitions_for": lambda: producer.partitions_for("t"),
                "transaction": transaction,
            }
            for name, call in calls.items():
                try:
                    call()
                except UsageError as error_:
                    refused[name] = error_

        producer.send("t", b"v", on_delivery=ask)
        producer.flush()
        assert not producer.closed
        producer.send("t", b"v").result(WAIT_S)
    assert sorted(refused) == ["close", "exception", "flush", "partitions_for", "result", "transaction"]
    assert all("would wait for itself" in str(error) for error in refused.values())


def test_a_callback_does_not_wait_for_room(broker: fencepost.Broker) -> None:
    refused: list[BaseException] = []
    with fencepost.Producer(broker.bootstrap_servers, buffer_memory=20_000, batch_size=1_000) as producer:

        def fill(error: KafkaError | None, metadata: RecordMetadata | None) -> None:
            try:
                for _ in range(1_000):
                    producer.send("t", bytes(1_000))
            except BufferFullError as error_:
                refused.append(error_)

        producer.send("t", b"v", on_delivery=fill)
        producer.flush()
        producer.send("t", b"v").result(WAIT_S)
    assert len(refused) <= 1  # the broker may be quick enough to keep up


def slow(*_: object) -> int:
    time.sleep(SLOW_S)
    return 0


@pytest.mark.parametrize("kind", ["delivery callback", "interceptor", "partitioner"])
def test_a_slow_function_is_named_once(broker: fencepost.Broker, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    settings: dict[str, Any] = {"client_id": "orders"}
    if kind == "interceptor":
        settings["interceptors"] = [Acknowledged(slow)]
    elif kind == "partitioner":
        settings["partitioner"] = slow
    with fencepost.Producer(broker.bootstrap_servers, **settings) as producer:
        for _ in range(3):
            producer.send("t", b"v", on_delivery=slow if kind == "delivery callback" else None)
    reported = [
        record for record in caplog.records if record.levelno == logging.WARNING and "took" in record.getMessage()
    ]
    assert len(reported) == 1
    words = reported[0].getMessage()
    assert words.startswith("producer 'orders': ") and kind in words and " ms" in words
    assert ("on_acknowledgement" if kind == "interceptor" else "test_callbacks.slow") in words
    assert __file__ in words


def test_in_asyncio_callbacks_run_in_the_loop_and_are_named(
    broker: fencepost.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    threads: set[str] = set()

    def here(error: object, metadata: object) -> None:
        threads.add(threading.current_thread().name)
        time.sleep(SLOW_S)

    async def main() -> None:
        async with fencepost.AsyncProducer(broker.bootstrap_servers) as producer:
            for _ in range(2):
                await producer.send("t", b"v", on_delivery=here)
            await producer.flush()

    asyncio.run(main())
    assert threads == {threading.current_thread().name}
    assert caplog.text.count("the event loop stands still while it runs") == 1


def test_a_partitioner_keeps_the_order_of_sending(broker: fencepost.Broker) -> None:
    """Also for records that were sent while it was busy with those before."""
    entered, release = threading.Event(), threading.Event()

    def choose(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        entered.set()
        assert release.wait(WAIT_S)
        return 0

    with fencepost.Producer(broker.bootstrap_servers, partitioner=choose, batch_size=100) as producer:
        first = producer.send("sequence", b"0" * 50)
        assert entered.wait(WAIT_S)
        others = [producer.send("sequence", b"%d" % number * 50) for number in range(1, 9)]
        release.set()
        assert [delivery.result(WAIT_S).offset for delivery in (first, *others)] == list(range(9))


def test_the_thread_ends_with_the_producer(broker: fencepost.Broker) -> None:
    threads: list[threading.Thread] = []
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        producer.send("t", b"v", on_delivery=lambda error, at: threads.append(threading.current_thread()))
    threads[0].join(WAIT_S)
    assert not threads[0].is_alive()


def test_a_default_callback_gets_the_records_without_their_own(broker: fencepost.Broker) -> None:
    reported: list[tuple[str, KafkaError | None, RecordMetadata | None]] = []
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "max.request.size": 1000,
        "on_delivery": lambda error, metadata: reported.append(("default", error, metadata)),
    }
    with fencepost.Producer.from_config(settings) as producer:
        delivery = producer.send("default-callback", b"first")
        producer.send(
            "default-callback", b"second", on_delivery=lambda error, metadata: reported.append(("own", error, metadata))
        )
        producer.flush(WAIT_S * 1000)
    assert [name for name, _, _ in reported] == ["default", "own"]
    assert reported[0][1:] == (None, delivery.result(WAIT_S))


def test_a_default_callback_of_an_async_producer(broker: fencepost.Broker) -> None:
    reported: list[RecordMetadata | None] = []

    async def main() -> RecordMetadata:
        async with fencepost.AsyncProducer(
            broker.bootstrap_servers, on_delivery=lambda _, metadata: reported.append(metadata)
        ) as producer:
            return await (await producer.send("default-callback-aio", b"v"))

    acknowledged = asyncio.run(main())
    assert reported == [acknowledged]


def test_a_flush_that_probably_means_seconds_is_named_once(
    broker: fencepost.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with fencepost.Producer(broker.bootstrap_servers) as producer:
        for _ in range(2):
            producer.flush(10)
        producer.flush(10_000)
        producer.flush(0)
    assert [record.getMessage() for record in caplog.records if "flush" in record.getMessage()] == [
        "flush(10) waits 10 ms, not seconds as in other clients"
    ]
    with fencepost.Producer("127.0.0.1:1") as producer:
        producer.send("t", b"v")
        with pytest.raises(KafkaTimeoutError, match=r"within 10 ms.*; for 10 seconds call flush\(10000\)"):
            producer.flush(10)
        with pytest.raises(ProduceFailedError):
            producer.close(0)
