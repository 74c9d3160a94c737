"""Back-pressure on requests and answers, by the bytes that wait; over real sockets, with clients that do not read."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Any, cast

import pytest

from fencepost.broker.connection import Call, Connection
from fencepost.broker.core import BrokerCore
from fencepost.broker.embedded import Broker
from fencepost.broker.network.backpressure import MOST_UNREAD_BYTES, UnreadResponses, may_begin
from fencepost.broker.security.listeners import Listener
from fencepost.protocol import fetch_wire, frame
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.metadata import MetadataRequest
from tests.support.broker_driver import BrokerDriver
from tests.support.memory import resident
from tests.support.raw_client import RawClient
from tests.support.tls import Certificates

pytestmark = pytest.mark.usefixtures("both_sockets")

HOUR_MS = 3_600_000
PRODUCE, FETCH = memoryview(b"\0\0" + bytes(50)), memoryview(b"\0\1" + bytes(50))


@pytest.fixture
def connection() -> Connection:
    return Connection(1, ("127.0.0.1", 1), ("127.0.0.1", 2), Listener("PLAINTEXT", "", 0, ("", 0)))


def test_a_fetch_waits_for_everything_before_it(connection: Connection) -> None:
    assert may_begin(connection, FETCH, 0)
    connection.enter(Call(BrokerDriver().core, connection, 1, 12, 1, "", 50))
    assert may_begin(connection, PRODUCE, 0)
    assert not may_begin(connection, FETCH, 0)


def test_nothing_is_begun_for_who_takes_nothing(connection: Connection) -> None:
    assert may_begin(connection, PRODUCE, MOST_UNREAD_BYTES)
    assert not may_begin(connection, PRODUCE, MOST_UNREAD_BYTES + 1)


def test_there_is_an_end_to_what_is_unanswered(connection: Connection) -> None:
    core: BrokerCore = BrokerDriver().core
    begun = 0
    while may_begin(connection, PRODUCE, 0) and begun < 5000:
        connection.enter(Call(core, connection, 0, 9, begun, "", len(PRODUCE)))
        begun += 1
    assert begun == 1000
    connection.calls.clear()
    connection.unanswered_bytes = 0
    connection.enter(Call(core, connection, 0, 9, 1, "", 64 << 20))
    assert not may_begin(connection, PRODUCE, 0)


def test_room_is_what_others_have_not_filled() -> None:
    answers = UnreadResponses(100)
    answers.note(0, 1, 60)
    assert (answers.room(), answers.is_scarce) == (40, False)
    answers.note(0, 2, 90)
    assert (answers.room(), answers.is_scarce, answers.waiting) == (0, True, [1, 2])
    answers.note(1, 1, 0)
    answers.note(1, 3, 0)
    assert (answers.total, answers.waiting) == (90, [2])


def test_only_who_does_not_read_is_given_up_and_only_while_there_is_no_room() -> None:
    answers = UnreadResponses(100)
    for connection_id, unread in ((1, 30), (2, 80), (3, 50)):
        answers.note(0, connection_id, unread)
    answers.note(9_000, 2, 70)  # it reads
    assert answers.given_up(9_999) == []
    assert answers.given_up(10_000) == [3]
    assert (answers.total, answers.is_scarce) == (100, False)
    assert answers.given_up(60_000) == []


def fetch_frame(correlation_id: int, *, max_wait_ms: int = 0, min_bytes: int = 1) -> bytes:
    wanted = fetch_wire.FetchTopic("t", None, [fetch_wire.FetchPartition(0, 0, 50_000_000)])
    request = fetch_wire.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=2**31 - 1, isolation_level=0, topics=[wanted]
    )
    return frame.encode_request_frame(1, 12, correlation_id, "reader", b"".join(fetch_wire.encode_request(request, 12)))


def filled(broker: Broker, batches: int = 20, size: int = 1_000_000) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        for number in range(batches):
            assert client.produce("t", [bytes([number]) * size]).error_code == 0


def unread(broker: Broker) -> int:
    server = broker._latest().run.server
    assert server is not None
    return server._memory.answers.total


def readable(broker: Broker) -> list[bool]:
    """Of the connections in their order, whether bytes of theirs are read."""
    server = broker._latest().run.server
    assert server is not None
    return [cast("Any", client._transport).is_reading() for client in server._clients.values()]


def parked(broker: Broker) -> int:
    server = broker._latest().run.server
    assert server is not None
    partition = server.core.topics.partition("t", 0)
    assert partition is not None
    return len(partition.waiting)


def receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        data += connection.recv(size - len(data))
    return bytes(data)


def answers_of(connection: socket.socket, count: int) -> list[tuple[int, int]]:
    """(correlation id, size) of so many answers."""
    found = []
    for _ in range(count):
        (size,) = struct.unpack(">i", receive(connection, 4))
        body = receive(connection, size)
        found.append((struct.unpack_from(">i", body)[0], size))
    return found


@dataclass
class Door:
    """Connection of a reader, with TLS or without."""

    settings: Mapping[str, object] = field(default_factory=dict)
    tls: SSLContext | None = None

    def connect(self, broker: Broker) -> socket.socket:
        address = broker.listener("PLAINTEXT" if self.tls is None else "SSL")
        host, _, port = address.rpartition(":")
        plain = socket.create_connection((host, int(port)), timeout=300)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as clients do; else a handshake delays requests
        return plain if self.tls is None else self.tls.wrap_socket(plain, server_hostname=host)


@pytest.fixture(params=["plain", "TLS"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Door:
    if request.param == "plain":
        return Door()
    certificates = Certificates(tmp_path)
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}
    return Door({**certificates.settings(), **listeners}, certificates.context())


def test_answers_are_made_when_they_can_be_sent(door: Door) -> None:
    """Thirty fetches of 20 MB in one write by somebody who reads only later: one answer waits, the rest is not made."""
    with Broker(door.settings) as broker:
        filled(broker)
        with door.connect(broker) as reader:
            reader.sendall(b"".join(map(fetch_frame, range(30))))
            with RawClient(broker.bootstrap_servers) as other:
                for _ in range(5):
                    assert other.produce("t", [b"x"]).error_code == 0
                assert 0 < unread(broker) < 30_000_000
            found = answers_of(reader, 30)
            assert [correlation_id for correlation_id, _ in found] == list(range(30))
            assert min(size for _, size in found) > 20_000_000


def test_who_takes_no_answers_is_not_read_from(door: Door) -> None:
    """Requests would wait, but a TLS client that asks for new keys again and again is answered without any."""
    with Broker(door.settings) as broker:
        filled(broker)
        with door.connect(broker) as reader, RawClient(broker.bootstrap_servers) as other:
            reader.sendall(fetch_frame(1))
            while unread(broker) <= MOST_UNREAD_BYTES:
                other.call(ApiVersionsRequest(), 0)
            assert readable(broker) == [False, True]  # the reader, the other
            assert len(answers_of(reader, 1)) == 1
            reader.sendall(fetch_frame(2))
            assert answers_of(reader, 1)[0][0] == 2


def test_all_together_have_a_bound(door: Door) -> None:
    """Ten clients that never read: what waits for them stays near the bound, and others go on."""
    with Broker({**door.settings, "queued.max.response.bytes": 30_000_000}) as broker:
        filled(broker)
        readers = [door.connect(broker) for _ in range(10)]
        try:
            for reader in readers:
                reader.sendall(fetch_frame(1) * 3)
            with RawClient(broker.bootstrap_servers) as other:
                for _ in range(20):
                    assert other.produce("t", [b"x"]).error_code == 0
                # One answer that fitted, one cut to what was left, and for the rest one batch each.
                assert 0 < unread(broker) < 50_000_000
                # A reader may take from its socket meanwhile only if it reads, and none does.
                assert broker.metrics().gauges["untaken_answer_bytes"] == unread(broker)
                assert other.fetch("t").result.records
        finally:
            for reader in readers:
                reader.close()


def test_parked_fetches_are_not_read_again_and_again() -> None:
    """Twenty fetches that want more than there is, while somebody else produces: nothing is read from the disk."""
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        filled(broker, batches=5)
        host, _, port = broker.bootstrap_servers.rpartition(":")
        readers = [socket.create_connection((host, int(port)), timeout=300) for _ in range(20)]
        try:
            for number, reader in enumerate(readers):
                reader.sendall(fetch_frame(number, max_wait_ms=HOUR_MS, min_bytes=5_100_000))
            while parked(broker) < len(readers):
                client.call(ApiVersionsRequest(), 0)
            with broker.faults.disk.fail_read(5, times=None, path="t-0/") as reads:
                for _ in range(20):
                    assert client.produce("t", [b"x"]).error_code == 0
                assert reads.hits == 0
            assert client.produce("t", [bytes(200_000)]).error_code == 0
            for number, reader in enumerate(readers):
                ((correlation_id, size),) = answers_of(reader, 1)
                assert correlation_id == number
                assert size > 5_100_000
        finally:
            for reader in readers:
                reader.close()


def test_fetches_that_one_record_wakes_share_the_bound() -> None:
    """Twenty fetches wait for 5 MB, of which two fit in the memory for answers. The others get a batch each."""
    bound, batch_bytes, count = 10_000_000, 1_000_100, 20
    with Broker({"queued.max.response.bytes": bound}) as broker, RawClient(broker.bootstrap_servers) as client:
        filled(broker, batches=5)
        host, _, port = broker.bootstrap_servers.rpartition(":")
        readers = [socket.create_connection((host, int(port)), timeout=300) for _ in range(count)]
        try:
            for number, reader in enumerate(readers):
                reader.sendall(fetch_frame(number, max_wait_ms=HOUR_MS, min_bytes=5_100_000))
            while parked(broker) < len(readers):
                client.call(ApiVersionsRequest(), 0)
            assert client.produce("t", [bytes(200_000)]).error_code == 0
            sizes = [answers_of(reader, 1)[0][1] for reader in readers]
            assert min(sizes) > 1_000_000
            assert sum(sizes) < bound + count * batch_bytes
        finally:
            for reader in readers:
                reader.close()


def test_who_waits_for_more_than_an_answer_holds_is_answered_when_it_is_full() -> None:
    with Broker({"fetch.max.bytes": 100_000}) as broker, RawClient(broker.bootstrap_servers) as client:
        filled(broker, batches=3, size=60_000)
        host, _, port = broker.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=300) as reader:
            reader.sendall(fetch_frame(7, max_wait_ms=HOUR_MS, min_bytes=2**31 - 1))
            assert answers_of(reader, 1)[0][0] == 7
        assert client.produce("t", [b"x"]).error_code == 0


def test_what_was_only_announced_takes_no_memory() -> None:
    """Forty connections announce requests of 100 MB and send four bytes of each."""
    with Broker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        before = resident()
        connections = [socket.create_connection((host, int(port)), timeout=300) for _ in range(40)]
        try:
            for connection in connections:
                connection.sendall(struct.pack(">i", 100 << 20))
            with RawClient(broker.bootstrap_servers) as client:
                for _ in range(5):
                    assert client.call(MetadataRequest(topics=()), 9).brokers
            assert resident() - before < 500 << 20
        finally:
            for connection in connections:
                connection.close()
