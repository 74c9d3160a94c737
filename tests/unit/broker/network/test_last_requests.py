"""Requests that arrive with the end of their connection, and clients that read again after a time."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from ssl import SSLContext

import pytest

from fencepost.broker.embedded import Broker
from fencepost.broker.network import sockets
from fencepost.broker.network.backpressure import MOST_UNREAD_BYTES
from fencepost.broker.network.native_sockets import NativeSocket
from fencepost.broker.server import BrokerServer
from fencepost.protocol import frame, produce_wire
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.records.encoding import encode_batch
from tests.support.raw_client import RawClient
from tests.support.tls import Certificates
from tests.support.waiting import is_ready

pytestmark = pytest.mark.usefixtures("both_sockets")

COUNT = 300


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(fsync="never") as running:
        yield running


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def produce_frames(count: int, acks: int) -> bytes:
    records = encode_batch(keys=[None], values=[b"v"], timestamps=1)
    request = produce_wire.ProduceRequest(None, acks, 30_000, [produce_wire.ProducePartition("t", None, 0, records)])
    body = b"".join(produce_wire.encode_request(request, 9))
    return b"".join(frame.encode_request_frame(0, 9, number, "raw", body) for number in range(count))


def received(client: socket.socket) -> bytes:
    """Return all bytes up to the end of the connection."""
    data = bytearray()
    while part := client.recv(1 << 16):
        data += part
    return bytes(data)


def test_all_requests_before_the_end_of_a_connection_are_handled(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka: a producer with acks=0 sends its last requests and closes."""
    monkeypatch.setattr(sockets, "TURN_MS", 0)  # a request in each turn
    with RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        with connected(broker.bootstrap_servers) as producer:
            producer.sendall(produce_frames(COUNT, acks=0))
            producer.shutdown(socket.SHUT_WR)
            assert received(producer) == b""
        assert client.end_offset("t") == COUNT


def test_a_client_that_sends_nothing_more_gets_all_its_answers() -> None:
    """As from Kafka; here the answers wait for a sync when the end of the client's requests arrives."""
    with Broker(fsync="commit") as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        with connected(broker.bootstrap_servers) as producer:
            producer.sendall(produce_frames(COUNT, acks=-1))
            producer.shutdown(socket.SHUT_WR)
            answers = received(producer)
        sizes = []
        while answers:
            (size,) = struct.unpack_from(">i", answers)
            sizes.append(size)
            answers = answers[4 + size :]
        assert len(sizes) == COUNT
        assert client.end_offset("t") == COUNT


def test_requests_before_the_end_of_a_tls_connection_are_handled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "TURN_MS", 0)
    certificates = Certificates(tmp_path)
    settings = {**certificates.settings(), "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}
    context: SSLContext = certificates.context()
    with Broker(settings) as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        plain = connected(broker.listener("SSL"))
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as producer:
            producer.sendall(produce_frames(COUNT, acks=0))
            producer.unwrap().close()
        while broker.metrics().gauges["connections"] > 1:
            client.call(ApiVersionsRequest(), 0)
        assert client.end_offset("t") == COUNT


def test_a_client_that_reads_again_is_read_from_again(broker: Broker) -> None:
    """The client reads all that waits, and before the broker learns of that, it writes a further response."""
    size = MOST_UNREAD_BYTES // 2
    with connected(broker.bootstrap_servers) as client:
        client.sendall(frame.encode_request_frame(18, 0, 1, "raw", b""))
        first = client.recv(1 << 16)
        assert first[4:8] == struct.pack(">i", 1)

        async def fill(server: BrokerServer) -> int:
            """Write too much, read what has been sent, and write again, in one turn of the event loop."""
            (ours,) = server._clients.values()
            written = 0
            while not ours._has_unread:
                ours.send((bytes(size),))
                written += size
            sent = written - ours._transport.get_write_buffer_size()
            taken(client, sent)
            if isinstance(ours, NativeSocket):
                is_ready(ours._transport.fileno(), select.POLLOUT, 30)
            ours.send((b"last",))
            return written + 4 - sent

        taken(client, broker._run_inside(fill))
        client.sendall(frame.encode_request_frame(18, 0, 2, "raw", b""))
        assert client.recv(1 << 16)[4:8] == struct.pack(">i", 2)


def taken(client: socket.socket, size: int) -> None:
    while size:
        size -= len(client.recv(min(size, 1 << 20)))
