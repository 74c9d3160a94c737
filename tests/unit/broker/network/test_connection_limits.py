"""Connections that say nothing, over real sockets: they neither end the broker nor keep others out."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.embedded import Broker
from tests.support.memory import resident
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.usefixtures("both_sockets")


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=300)
    connection.settimeout(60)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Return true if the broker closes the connection before it sends a byte."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_silent_connections_give_way_to_new_ones() -> None:
    with Broker({"max.connections": 3}) as broker, contextlib.ExitStack() as stack:
        address = broker.bootstrap_servers
        working = stack.enter_context(RawClient(address))
        working.create_topic("t")
        silent = [stack.enter_context(connect(address)) for _ in range(6)]
        for connection in silent[:4]:
            assert is_closed(connection)
        assert working.produce("t", [b"x"]).error_code == 0
        with RawClient(address) as another:
            assert another.produce("t", [b"y"]).error_code == 0


def test_a_connection_that_says_next_to_nothing_takes_next_to_no_memory() -> None:
    """Half a size, the size of a small request, the beginning of a request: 400 connections of each."""
    sayings = (bytes(2), struct.pack(">i", 100), struct.pack(">i", 30_000) + bytes(9))
    with Broker() as broker, contextlib.ExitStack() as stack:
        address = broker.bootstrap_servers
        working = stack.enter_context(RawClient(address))
        working.create_topic("t")
        before = resident()
        for number in range(400 * len(sayings)):
            stack.enter_context(connect(address)).sendall(sayings[number % len(sayings)])
        while broker.metrics().gauges["connections"] <= 400 * len(sayings):
            assert working.produce("t", [b"x"]).error_code == 0
        assert resident() - before < 30 << 20


def test_those_who_work_are_not_displaced() -> None:
    with Broker({"max.connections.per.ip": 2}) as broker, contextlib.ExitStack() as stack:
        working = [stack.enter_context(RawClient(broker.bootstrap_servers)) for _ in range(2)]
        working[0].create_topic("t")
        working[1].end_offset("t")
        assert is_closed(stack.enter_context(connect(broker.bootstrap_servers)))
        assert [client.produce("t", [b"x"]).error_code for client in working] == [0, 0]


def test_idle_connections_are_closed() -> None:
    with Broker({"connections.max.idle.ms": 200}) as broker, connect(broker.bootstrap_servers) as silent:
        assert is_closed(silent)
        with RawClient(broker.bootstrap_servers) as client:
            client.create_topic("t")
            assert is_closed(client._socket)
        assert broker.metrics().counters["idle_connections"] == 2


def test_without_a_limit_idle_connections_stay() -> None:
    """As in Apache Kafka, -1 means never; the clock of connections is not the broker's, so the timer is asked for."""
    with Broker({"connections.max.idle.ms": -1}) as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        server = broker._latest().run.server
        assert server is not None
        assert server._idle_timer is None
        assert server._admission.idle(2**62) == []
        assert client.produce("t", [b"x"]).error_code == 0


def test_the_system_looks_after_those_who_vanished() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        server = broker._latest().run.server  # the option is seen on the broker's own socket only
        assert server is not None
        (accepted,) = server._clients.values()
        transport: Any = accepted._transport
        native = hasattr(transport, "fileno")
        descriptor = transport.fileno() if native else transport.get_extra_info("socket").fileno()
        with socket.socket(fileno=os.dup(descriptor)) as accepted_socket:
            assert accepted_socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_no_descriptor_is_no_failed_sync(number: int) -> None:
    with Broker(fsync="commit") as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        with broker.faults.disk.fail_sync(number, times=3) as fault:
            assert client.produce("t", [b"x"]).error_code == 0
            assert fault.hits == 3
        assert 1 <= broker.metrics().counters["postponed_syncs"] <= 3  # one sync may have been of several files
        assert client.produce("t", [b"y"]).error_code == 0
        client.find_coordinators()
        with broker.faults.disk.fail_sync(number, times=2, path="__transaction_state"):
            client.start_producer("shop")
        assert client.produce("t", [b"z"]).error_code == 0


FLOOD = """
import resource, socket, sys
from tests.support.memory import resident
from tests.support.raw_client import RawClient
address = sys.argv[1]
host, _, port = address.rpartition(":")
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
with RawClient(address) as working:
    working.create_topic("t")
    silent = [socket.create_connection((host, int(port)), timeout=300) for _ in range(200)]
    assert working.produce("t", [b"x"]).error_code == 0
    working.find_coordinators()
    working.start_producer("shop")
    with RawClient(address) as another:
        assert another.produce("t", [b"y"]).error_code == 0
print("served")
"""


def test_a_flood_of_connections_does_not_end_the_broker(tmp_path: Path) -> None:
    """128 descriptors, 200 connections that say nothing, fsync on every answer."""
    arguments = ["-m", "fencepost", "broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    command = ["sh", "-c", 'ulimit -n 128 && exec "$@"', "sh", sys.executable, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            address = broker.stdout.readline().split()[-1]
            flood = subprocess.run(
                [sys.executable, "-c", FLOOD, address],
                check=False,
                capture_output=True,
                text=True,
                timeout=300,
                cwd=os.getcwd(),
            )
            assert flood.stdout == "served\n", flood.stderr
            assert broker.poll() is None
        finally:
            broker.terminate()
        assert broker.wait(120) == 0
