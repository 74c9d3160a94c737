"""`on_error` and `on_statistics` of every client, on both brokers, beside confluent-kafka's error_cb and stats_cb."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import confluent_kafka
import pytest

import fencepost
from fencepost.client.metrics import parts_of
from fencepost.errors import AllBrokersDownError, AuthenticationError, DisconnectedError, ForkedError, KafkaError
from fencepost_lab.torture.child_process import free_port
from tests.conformance.conftest import ARMS
from tests.support.brokers import BrokerUnderTest
from tests.support.secured import USERS, Secured, secured
from tests.support.waiting import until

GROUPS = {"group_id": "callbacks"}
BLOCKING: list[tuple[type[Any], dict[str, Any]]] = [
    (fencepost.Producer, {}),
    (fencepost.Consumer, {}),
    (fencepost.ShareConsumer, GROUPS),
    (fencepost.Admin, {}),
]
ASYNCIO: list[tuple[type[Any], dict[str, Any]]] = [
    (fencepost.AsyncProducer, {}),
    (fencepost.AsyncConsumer, {}),
    (fencepost.AsyncShareConsumer, GROUPS),
    (fencepost.AsyncAdmin, {}),
]


def named(case: Any) -> str:
    return case[0].__name__ if isinstance(case, tuple) else str(case)


def touch(client: Any) -> Any:
    """A call that needs a broker."""
    kind = type(client).__name__
    if kind.endswith("Admin"):
        return client.list_topics()
    if kind.endswith("ShareConsumer"):
        return client.commit(100)
    if kind.endswith("Consumer"):
        return client.beginning_offsets([("no-such-topic", 0)], timeout_ms=100)
    return client.partitions_for("any-topic")


async def until_there(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(until, condition)


def nodes_of(metrics: Mapping[str, float]) -> set[str]:
    return {parts_of(key)[1]["node_id"] for key in metrics if parts_of(key)[0] == "node_request_total"}


@pytest.mark.parametrize("case", BLOCKING, ids=named)
def test_statistics_of_a_blocking_client(broker: BrokerUnderTest, case: tuple[type[Any], dict[str, Any]]) -> None:
    """Snapshots come at the interval in a thread of the client's own, until it is closed."""
    kind, more = case
    seen: list[tuple[threading.Thread, Mapping[str, float]]] = []

    def tell(metrics: Mapping[str, float]) -> None:
        seen.append((threading.current_thread(), metrics))

    with kind(broker.bootstrap_servers, on_statistics=tell, statistics_interval_ms=20, **more) as client:
        if kind is fencepost.ShareConsumer:
            client.subscribe([broker.name("t")])
            client.poll(10)
        else:
            broker_answers(client)
        until(lambda: len(seen) > 3 and bool(nodes_of(seen[-1][1])))
        assert set(seen[-1][1]) <= set(client.metrics())
    (thread,) = {thread for thread, _ in seen}
    assert thread.name not in ("MainThread", "fencepost-io")
    thread.join(60)
    assert not thread.is_alive()


def broker_answers(client: Any) -> None:
    kind = type(client).__name__
    if kind == "Admin":
        client.list_topics()
    elif kind == "Consumer":
        with fencepost.Admin(client._address) as admin:
            admin.create_topic(topic := f"statistics-{time.time_ns()}", 1)
        client.beginning_offsets([(topic, 0)])
    else:
        client.send(f"statistics-{time.time_ns()}", b"v").result(60)


@pytest.mark.parametrize("kind", [plain for plain, _ in BLOCKING], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("settings", [{}, {"statistics_interval_ms": 0}], ids=["default", "zero"])
def test_an_interval_of_zero_is_none(
    broker: BrokerUnderTest, kind: type[Any], settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[object] = []
    more = GROUPS if kind is fencepost.ShareConsumer else {}
    before = set(threading.enumerate())
    with kind(broker.bootstrap_servers, on_statistics=seen.append, **more, **settings):
        assert {thread.name for thread in set(threading.enumerate()) - before} <= {"fencepost-io"}
    assert seen == []
    assert any("statistics_interval_ms is 0" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("case", ASYNCIO, ids=named)
@pytest.mark.parametrize("coroutine", [False, True], ids=["function", "coroutine function"])
def test_statistics_of_an_asyncio_client(
    broker: BrokerUnderTest, case: tuple[type[Any], dict[str, Any]], coroutine: bool
) -> None:
    """They come in the client's event loop, one after the other."""
    kind, more = case
    seen: list[tuple[object, Mapping[str, float]]] = []
    running = 0

    def tell(metrics: Mapping[str, float]) -> None:
        seen.append((asyncio.get_running_loop(), metrics))

    async def tell_slowly(metrics: Mapping[str, float]) -> None:
        nonlocal running
        assert running == 0
        running += 1
        await asyncio.sleep(0.03)  # longer than the interval
        running -= 1
        tell(metrics)

    async def body() -> None:
        function = tell_slowly if coroutine else tell
        async with kind(broker.bootstrap_servers, on_statistics=function, statistics_interval_ms=20, **more):
            await until_there(lambda: len(seen) >= 3)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert {loop for loop, _ in seen} == {asyncio.get_running_loop()}

    asyncio.run(body())


@pytest.mark.parametrize("case", BLOCKING, ids=named)
def test_no_broker_at_all(case: tuple[type[Any], dict[str, Any]]) -> None:
    """As librdkafka: an error of the broker, then one that all are down, though no call has ended."""
    kind, more = case
    address = f"127.0.0.1:{free_port()}"
    theirs: list[confluent_kafka.KafkaError] = []
    peer = confluent_kafka.Producer({"bootstrap.servers": address, "error_cb": theirs.append})
    ours: list[tuple[threading.Thread, KafkaError]] = []

    def tell(error: KafkaError) -> None:
        ours.append((threading.current_thread(), error))

    settings = {"default_api_timeout_ms": 500, "on_error": tell, **more}
    if kind is fencepost.Producer:
        settings["max_block_ms"] = 500
    with kind(address, **settings) as client:
        if kind is fencepost.ShareConsumer:
            client.subscribe(["t"])
            client.poll(500)
        else:
            with pytest.raises(KafkaError):
                touch(client)
        until(lambda: len(ours) >= 2)
    until(lambda: peer.poll(0.1) is not None and len(theirs) >= 2)
    assert [error.name() for error in theirs[:2]] == ["_TRANSPORT", "_ALL_BROKERS_DOWN"]
    assert [type(error) for _, error in ours[:2]] == [DisconnectedError, AllBrokersDownError]
    assert all(address in str(error) for _, error in ours)
    assert ours[1][1].__cause__ is ours[0][1]
    assert {thread.name for thread, _ in ours}.isdisjoint({"MainThread", "fencepost-io"})


def test_errors_of_an_asyncio_client() -> None:
    address = f"127.0.0.1:{free_port()}"
    seen: list[tuple[object, type[KafkaError]]] = []

    async def tell(error: KafkaError) -> None:
        await asyncio.sleep(0)
        seen.append((asyncio.get_running_loop(), type(error)))

    async def body() -> None:
        async with fencepost.AsyncAdmin(address, default_api_timeout_ms=500, on_error=tell) as admin:
            with pytest.raises(KafkaError):
                await admin.list_topics()
            await until_there(lambda: len(seen) >= 2)
        assert seen[:2] == [(asyncio.get_running_loop(), kind) for kind in (DisconnectedError, AllBrokersDownError)]

    asyncio.run(body())


@pytest.mark.parametrize("case", BLOCKING, ids=named)
def test_close_in_the_callback(broker: BrokerUnderTest, case: tuple[type[Any], dict[str, Any]]) -> None:
    """It waits for nothing of its own, and the client is closed when it returns."""
    kind, more = case
    clients: list[Any] = []
    closed = threading.Event()
    created = threading.Event()
    calls: list[object] = []

    def close(metrics: Mapping[str, float]) -> None:
        calls.append(metrics)
        created.wait()
        clients[0].close()
        closed.set()

    clients.append(kind(broker.bootstrap_servers, on_statistics=close, statistics_interval_ms=10, **more))
    created.set()
    assert closed.wait(60)
    assert clients[0].closed
    clients[0].close()
    assert len(calls) == 1


@pytest.mark.parametrize("case", ASYNCIO, ids=named)
def test_close_in_the_callback_of_an_asyncio_client(
    broker: BrokerUnderTest, case: tuple[type[Any], dict[str, Any]]
) -> None:
    kind, more = case

    async def body() -> None:
        closed = asyncio.Event()

        async def close(_: Mapping[str, float]) -> None:
            await client.close()
            closed.set()

        client = kind(broker.bootstrap_servers, on_statistics=close, statistics_interval_ms=10, **more)
        await asyncio.wait_for(closed.wait(), 60)
        assert client.closed

    asyncio.run(body())


@pytest.mark.parametrize("case", BLOCKING, ids=named)
def test_a_callback_that_raises_is_logged_and_called_again(
    broker: BrokerUnderTest, case: tuple[type[Any], dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    kind, more = case
    calls: list[object] = []

    def fail(metrics: Mapping[str, float]) -> None:
        calls.append(metrics)
        raise SystemExit("from the callback") if len(calls) == 1 else ValueError("from the callback")

    with kind(broker.bootstrap_servers, on_statistics=fail, statistics_interval_ms=10, **more):
        until(lambda: len(calls) > 2)
    failures = [record for record in caplog.records if record.exc_info and "on_statistics" in record.getMessage()]
    assert len(failures) == len(calls)


@pytest.mark.parametrize("case", BLOCKING, ids=named)
def test_a_slow_callback_holds_up_neither_its_client_nor_others(
    broker: BrokerUnderTest, case: tuple[type[Any], dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    kind, more = case
    entered, go_on = threading.Event(), threading.Event()

    def wait(_: Mapping[str, float]) -> None:
        entered.set()
        assert go_on.wait(60)
        time.sleep(0.15)  # over the limit for the warning

    with kind(broker.bootstrap_servers, on_statistics=wait, statistics_interval_ms=10, **more) as client:
        assert entered.wait(60)
        with fencepost.Admin(broker.bootstrap_servers) as other:
            assert broker.name("none") not in other.list_topics()
        if kind is not fencepost.ShareConsumer:
            broker_answers(client)
        go_on.set()
    assert any("on_statistics" in text and "took" in text for text in caplog.messages)


def test_a_close_that_does_not_wait_for_a_callback_says_so(
    broker: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def wait(_: Mapping[str, float]) -> None:
        entered.set()
        go_on.wait(60)

    admin = fencepost.Admin(broker.bootstrap_servers, on_statistics=wait, statistics_interval_ms=10)
    assert entered.wait(60)
    try:
        admin.close(0)
        assert any("closed while" in text and "on_statistics" in text for text in caplog.messages)
    finally:
        go_on.set()


@pytest.mark.parametrize("kind", [plain for plain, _ in BLOCKING], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", ["on_error", "on_statistics"])
def test_a_blocking_client_refuses_coroutine_functions(kind: type[Any], name: str) -> None:
    async def tell(_: object) -> None: ...

    class Tells:
        async def __call__(self, _: object) -> None: ...

    more: dict[str, Any] = GROUPS if kind is fencepost.ShareConsumer else {}
    for function in (tell, Tells()):
        with pytest.raises(fencepost.errors.ConfigurationError, match=name):
            kind("127.0.0.1:1", **{name: function}, **more)


def test_a_coroutine_of_a_callback_does_not_run_in_the_loop_of_all_clients(
    broker: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    async def tell(_: object) -> None:
        ran.append(threading.current_thread().name)

    with fencepost.Admin(
        broker.bootstrap_servers, on_statistics=lambda metrics: tell(dict(metrics)), statistics_interval_ms=10
    ):
        until(lambda: any(record.exc_info for record in caplog.records))
    (reason, *_) = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert "on_statistics returned a coroutine" in reason
    assert ran == []


@pytest.mark.parametrize(
    "settings",
    [
        {"error.cb": None, "error_cb": print, "stats_cb": print, "statistics.interval.ms": 1_000},
        {"on.error": print, "on.statistics": print, "statistics.interval.ms": "1000"},
    ],
    ids=["librdkafka", "own"],
)
def test_names(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    settings = {name: value for name, value in settings.items() if value is not None}
    config = fencepost.config.ProducerConfig.from_dotted({"bootstrap.servers": "h:1", **settings})
    assert (config.on_error, config.on_statistics, config.statistics_interval_ms) == (print, print, 1_000)
    assert caplog.messages == []


@pytest.fixture(scope="module", params=ARMS)
def world(request: pytest.FixtureRequest) -> Iterator[Secured]:
    with secured(request.param) as running:
        yield running


def test_a_wrong_password(world: Secured) -> None:
    """It is told at once, while the client tries again."""
    login = {
        "bootstrap.servers": world.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "user1",
        "sasl.password": "not " + USERS["user1"],
    }
    theirs: list[confluent_kafka.KafkaError] = []
    peer = confluent_kafka.Producer({**login, "error_cb": theirs.append})
    until(lambda: peer.poll(0.1) is not None and bool(theirs))
    ours: list[KafkaError] = []
    with fencepost.Producer.from_config({**login, "on.error": ours.append}) as producer:
        assert isinstance(producer.send("t", b"v").exception(60), KafkaError)
        until(lambda: bool(ours))
    assert theirs[0].name() == "_AUTHENTICATION"
    assert isinstance(ours[0], AuthenticationError)
    assert not any(isinstance(error, AllBrokersDownError) for error in ours)


def test_a_broker_that_stops_and_comes_back(killable: tuple[BrokerUnderTest, Any]) -> None:
    """The error comes while nothing is called; once it works again there are no further errors."""
    broker, running = killable
    seen: list[KafkaError] = []
    with fencepost.Producer(broker.bootstrap_servers, on_error=seen.append) as producer:
        topic = broker.name("t")
        producer.send(topic, b"before").result(60)
        assert seen == []
        running.kill()
        later = producer.send(topic, b"after")
        until(lambda: any(isinstance(error, AllBrokersDownError) for error in seen))
        running.restart()
        assert later.result(120).offset == 1
        producer.flush()


def test_a_forked_child_calls_nothing(broker: BrokerUnderTest) -> None:
    """The thread of the callbacks stays in the parent, whose client works on."""
    pids: list[int] = []
    with fencepost.Producer(
        broker.bootstrap_servers, on_statistics=lambda _: pids.append(os.getpid()), statistics_interval_ms=10
    ) as producer:
        until(lambda: bool(pids))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                pids.clear()
                try:
                    producer.flush()
                except ForkedError:
                    producer.close()
                    with fencepost.Admin(broker.bootstrap_servers) as admin:  # has a loop and threads of its own
                        admin.list_topics()
                    status = 0 if pids == [] else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        before = len(pids)
        until(lambda: len(pids) > before)
        assert set(pids) == {os.getpid()}
