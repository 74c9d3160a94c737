"""Calls keep their time while a client connects, and a bootstrap server that says nothing holds nobody up."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import fencepost
from fencepost.client.net.connection import BrokerConnection
from fencepost.errors import (
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
    ProduceFailedError,
    UnsupportedVersionError,
)
from fencepost.protocol.messages.metadata import MetadataRequest
from tests.support import interrupted_calls as calls
from tests.unit.client.scripted import World, run

SETUP_MS = 60_000
"""Time in ms that a client would wait for a server that accepts connections and says nothing."""
WAIT_S = 30


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """It accepts connections, and never says anything."""
    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted.append(server.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_S)
            for each in accepted:
                each.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[fencepost.Broker]:
    with fencepost.Broker() as running:
        yield running


def test_silent_bootstrap_servers_hold_nobody_up(broker: fencepost.Broker) -> None:
    """Ask eight times, because the client tries the servers in random order."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(silent_server()) for _ in range(3)] + [broker.bootstrap_servers]
        began = time.monotonic()
        for _ in range(8):
            with fencepost.Admin(servers, socket_connection_setup_timeout_ms=SETUP_MS) as admin:
                admin.list_topics()
        assert time.monotonic() - began < SETUP_MS / 1000, "one silent server alone would have taken as long"


@pytest.mark.parametrize("call", ["list_topics", "partitions_for", "position", "result", "flush", "init_transactions"])
def test_a_call_keeps_its_time_while_its_client_connects(call: str) -> None:
    patient: dict[str, Any] = {"socket_connection_setup_timeout_ms": SETUP_MS, "request_timeout_ms": SETUP_MS}
    with silent_server() as server:
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            with pytest.raises(KafkaTimeoutError):
                _call(stack, call, server, patient)
            assert time.monotonic() - began < SETUP_MS / 1000


def _call(stack: contextlib.ExitStack, call: str, server: str, patient: dict[str, Any]) -> None:
    if call == "list_topics":
        stack.enter_context(fencepost.Admin(server, **patient)).list_topics(api_timeout_ms=200)
    elif call in ("partitions_for", "position"):
        consumer = stack.enter_context(fencepost.Consumer(server, group_id="g", **patient))
        if call == "partitions_for":
            consumer.partitions_for("t", timeout_ms=200)
        consumer.assign([("t", 0)])
        consumer.position(("t", 0), timeout_ms=200)
    elif call == "init_transactions":
        producer = fencepost.Producer(server, transactional_id="x", max_block_ms=200, **patient)
        stack.callback(_give_up, producer)
        producer.init_transactions()
    else:
        producer = fencepost.Producer(server, **patient)
        stack.callback(_give_up, producer)
        sent = producer.send("t", b"v")
        if call == "flush":
            producer.flush(timeout_ms=200)
        sent.result(0.2)


def _give_up(producer: fencepost.Producer) -> None:
    with contextlib.suppress(ProduceFailedError):
        producer.close(0)


def test_connecting_goes_on_when_a_short_call_is_over() -> None:
    """Else no call with little time would ever get through to a broker that is slow to log in."""

    async def body(world: World) -> None:
        cluster = world.cluster()
        slow = BrokerConnection.connect
        attempts: list[int] = []

        async def connect(*arguments: Any) -> BrokerConnection:
            attempts.append(1)
            await world.runtime.sleep_ms(1_000)
            return await slow(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BrokerConnection, "connect", connect)
            for _ in range(9):
                with pytest.raises(KafkaTimeoutError, match="has not ended"):
                    await cluster.any_connection(world.runtime.now_ms() + 100)
            await cluster.any_connection(world.runtime.now_ms() + 200)
        assert len(attempts) == 1
        cluster.close()

    run(body)


def test_a_timeout_names_its_cause_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with fencepost.Producer(address, max_block_ms=300) as producer, pytest.raises(ProduceFailedError) as reported:
        producer.send("t", b"a").result(WAIT_S)
    assert str(reported.value).count("time is up") == 1
    assert f"topic 't': time is up; the last error: cannot connect to {address}" in str(reported.value)


def _with_id(settings: dict[str, Any]) -> object:
    with fencepost.Producer(**settings) as producer, pytest.raises(UnsupportedVersionError, match="no broker serves"):
        return producer.client_instance_id(WAIT_S * 1000)
    return True


def _asked(method: str, settings: dict[str, Any]) -> object:
    with fencepost.Admin(**settings) as admin:
        return getattr(admin, method)(api_timeout_ms=WAIT_S * 1000)


@pytest.mark.parametrize(
    "call",
    [_with_id, *(partial(_asked, method) for method in ("features", "api_versions", "fences_by_group"))],
    ids=["client_instance_id", "features", "api_versions", "fences_by_group"],
)
def test_a_call_waits_for_brokers_that_are_away(call: Callable[[dict[str, Any]], object]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    noticed = threading.Event()
    settings = {"bootstrap_servers": f"127.0.0.1:{port}", "on_error": lambda _: noticed.set()}
    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(call, settings)
        assert noticed.wait(WAIT_S)
        with fencepost.Broker(port=port):
            assert calling.result(WAIT_S)


@pytest.mark.parametrize("face", calls.FACES)
def test_no_call_gives_up_before_its_time(face: str) -> None:
    """Brokers that are away may come back, so a call ends with its time limit, or needs no broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"127.0.0.1:{server.getsockname()[1]}"
    settings = {**calls.settings_of(face), "default_api_timeout_ms": 100}
    if face == "Producer":
        settings |= {"max_block_ms": 100, "delivery_timeout_ms": 100}
    client_type = calls.FACES[face][0]
    names = calls.methods_of(client_type)
    outcomes = []
    for name in names:
        client = client_type(nobody, **settings)
        try:
            outcomes.append(calls.outcome_of(client, name))
        finally:
            with contextlib.suppress(KafkaError):
                client.close(0)
    assert [name for name, found in zip(names, outcomes, strict=True) if isinstance(found, DisconnectedError)] == []
    assert any(isinstance(found, KafkaTimeoutError) for found in outcomes)


def test_a_connection_with_an_unanswered_request_is_not_idle() -> None:
    """A broker answers in order, so that whoever comes next would wait behind the request that nobody waits for."""

    async def body(world: World) -> None:
        cluster = world.cluster()
        late_ms = world.runtime.now_ms() + 1_000
        first, second = [await cluster.links.connect((name, 9092), late_ms) for name in ("first", "second")]
        assert cluster.links.idlest() is first
        world.broker.scripts[3].append(lambda *_: None)
        with pytest.raises(KafkaTimeoutError):
            await first.request(MetadataRequest(topics=[]), 12, timeout_ms=100)
        assert cluster.links.idlest() is second
        cluster.close()

    run(body)


def test_a_controller_that_hangs_holds_no_other_request_up(broker: fencepost.Broker) -> None:
    with (
        fencepost.Admin(broker.bootstrap_servers) as admin,
        broker.faults.delay("DescribeQuorum", WAIT_S) as hanging,
    ):
        with pytest.raises(KafkaTimeoutError):
            admin.describe_metadata_quorum(api_timeout_ms=200)
        assert hanging.hits == 1
        assert admin.list_topics(api_timeout_ms=WAIT_S * 500) == []
