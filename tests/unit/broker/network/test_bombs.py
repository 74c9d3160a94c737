"""Requests that are small on the wire and large when they are looked at: one batch in memory, others in between."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from fencepost.broker.embedded import Broker
from fencepost.protocol import frame, produce_wire
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.records.batch import seal
from fencepost.protocol.records.compression import compress
from tests.support.batches import records_section
from tests.support.memory import resident
from tests.support.raw_client import RawClient

BATCHES = 8
RECORD_BYTES = 120 << 20


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """A batch of a few kilobytes that is fine, and takes 120 MiB to look at."""
    now_ms = int(time.time() * 1000)
    section = compress("zstd", records_section([bytes(RECORD_BYTES)], [now_ms]))
    assert len(section) < 100_000
    return bytes(seal(section, record_count=1, base_timestamp=now_ms, max_timestamp=now_ms, compression="zstd"))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t", BATCHES)
        yield broker


def request(records: bytes, partitions: list[int], correlation_id: int) -> bytes:
    wanted = [produce_wire.ProducePartition("t", None, partition, records) for partition in partitions]
    body = b"".join(produce_wire.encode_request(produce_wire.ProduceRequest(None, -1, 30_000, wanted), 9))
    return frame.encode_request_frame(0, 9, correlation_id, "bomber", body)


def answered_meanwhile(broker: Broker, requests: list[bytes]) -> tuple[int, int, list[int]]:
    """Send all of it in one write: how often another client was answered meanwhile, the most memory that was taken, and
    the codes."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    before, most, times = resident(), 0, 0
    with (
        socket.create_connection((host, int(port)), timeout=300) as bomber,
        RawClient(broker.bootstrap_servers) as other,
    ):
        bomber.sendall(b"".join(requests))
        bomber.setblocking(False)
        received = bytearray()
        while len(answers := split(received)) < len(requests):
            assert other.call(ApiVersionsRequest(), 0).error_code == 0
            times, most = times + 1, max(most, resident())
            with contextlib.suppress(BlockingIOError):
                part = bomber.recv(65_536)
                assert part, "the connection was closed"
                received += part
    codes = []
    for answer in answers:
        _, start = frame.decode_response_header(0, 9, answer)
        codes += [result.error_code for result in produce_wire.decode_response(answer[start:], 9).partitions]
    return times, most - before, codes


def split(received: bytearray) -> list[memoryview]:
    """The whole answers in it, without their sizes."""
    data, position, answers = memoryview(bytes(received)), 0, []
    while position + 4 <= len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4])
        if end > len(data):
            break
        answers.append(data[position + 4 : end])
        position = end
    return answers


def test_a_request_of_many_bombs(broker: Broker, bomb: bytes) -> None:
    whole = [request(bomb, list(range(BATCHES)), 1)]
    times, taken_bytes, codes = answered_meanwhile(broker, whole)
    assert codes == [0] * BATCHES
    assert times >= BATCHES / 2
    assert taken_bytes < 4 * RECORD_BYTES


def test_many_requests_of_a_bomb_each(broker: Broker, bomb: bytes) -> None:
    each = [request(bomb, [partition], partition) for partition in range(BATCHES)]
    times, taken_bytes, codes = answered_meanwhile(broker, each)
    assert codes == [0] * BATCHES
    assert times >= BATCHES / 2
    assert taken_bytes < 4 * RECORD_BYTES
