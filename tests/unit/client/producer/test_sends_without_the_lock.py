"""A plain record is written into its chunk without a lock. Whatever comes in between: it is there once, or not.

In the native module a record is one step, so nothing comes in between. Tests of what does use lists in Python.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost import Broker, Producer
from fencepost.client.blocking import Delivery
from fencepost.client.interceptors import OutgoingRecord
from fencepost.client.types import RecordMetadata
from fencepost.errors import KafkaError, ProduceFailedError, RecordRejectedError
from fencepost.testing import read_all
from tests.support.engines import ENGINES, engine


class Between(list[Any]):
    """A column in which something happens once, before or behind the next write to it."""

    def __init__(self, column: list[Any], *, before: Callable[[], object] | None = None, behind: Any = None) -> None:
        super().__init__(column)
        self._before, self._behind = before, behind

    def __setitem__(self, index: Any, value: Any) -> None:
        before, self._before = self._before, None
        behind, self._behind = self._behind, None
        if before is not None:
            before()
        super().__setitem__(index, value)
        if behind is not None:
            behind()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def plain() -> Iterator[None]:
    """Lists in Python."""
    with engine("plain"):
        yield


@pytest.fixture
def producer(plain: None, broker: Broker) -> Iterator[Producer]:
    with Producer(broker.bootstrap_servers, linger_ms=60_000) as sender:
        sender.send("t", b"0", b"k0")
        yield sender


def between(producer: Producer, **what: Any) -> None:
    chunk = producer._accumulator.open["t"]
    chunk.values = Between(chunk.values, **what)


def interrupt() -> None:
    raise KeyboardInterrupt


def written(broker: Broker) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in read_all(broker, "t")]


def test_a_chunk_that_closes_before_the_value_is_there_leaves_the_record_to_the_next(
    producer: Producer, broker: Broker
) -> None:
    between(producer, before=producer._accumulator.close_all)
    late = producer.send("t", b"1", b"k1")
    last = producer.send("t", b"2", b"k2")
    producer.flush()
    assert written(broker) == [(b"k0", b"0"), (b"k1", b"1"), (b"k2", b"2")]
    assert [late.result().offset, last.result().offset] == [1, 2]


def test_a_chunk_that_closes_behind_the_value_has_the_record(producer: Producer, broker: Broker) -> None:
    between(producer, behind=producer._accumulator.close_all)
    late = producer.send("t", b"1", b"k1")
    assert late[0].closed
    producer.flush()
    assert written(broker) == [(b"k0", b"0"), (b"k1", b"1")]
    assert late.result().offset == 1


def test_a_chunk_that_closes_with_another_thread_between_two_records(producer: Producer, broker: Broker) -> None:
    """The hole is in its middle: those behind it keep their fate, the late record goes into the next chunk."""
    later: list[Delivery] = []

    def another_and_close() -> None:
        later.append(producer.send("t", b"2", b"k2"))
        producer._accumulator.close_all()

    between(producer, before=another_and_close)
    late = producer.send("t", b"1", b"k1")
    producer.flush()
    assert written(broker) == [(b"k0", b"0"), (b"k2", b"2"), (b"k1", b"1")]
    assert (later[0].result().offset, late.result().offset) == (1, 2)


def test_ctrl_c_before_the_value_is_there_keeps_the_record_out_and_nothing_else(
    producer: Producer, broker: Broker
) -> None:
    between(producer, before=interrupt)
    with pytest.raises(KeyboardInterrupt):
        producer.send("t", b"1", b"k1")
    last = producer.send("t", b"2", b"k2")
    producer.flush()
    assert written(broker) == [(b"k0", b"0"), (b"k2", b"2")]
    assert last.result().offset == 1
    assert producer.metrics()["record_send_total"] == 2


def test_what_is_given_up_has_no_hole_in_its_count(plain: None, broker: Broker) -> None:
    producer = Producer(broker.bootstrap_servers, linger_ms=60_000)
    producer.send("t", b"0")
    between(producer, before=interrupt)
    with pytest.raises(KeyboardInterrupt):
        producer.send("t", b"1")
    producer.send("t", b"2")
    with pytest.raises(ProduceFailedError, match="not delivered: 2"):
        producer.close(timeout_ms=0)


def test_a_hole_is_no_record_for_a_partitioner(broker: Broker) -> None:
    asked: list[Any] = []

    def refuses(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        asked.append(value)
        raise ValueError(value)

    with Producer(broker.bootstrap_servers, linger_ms=60_000, partitioner=refuses) as producer:
        producer.send("t", b"0")
        between(producer, before=interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.send("t", b"1")
        producer.send("t", b"2")
        with pytest.raises(ProduceFailedError, match="not delivered: 2"):
            producer.flush()
        assert (asked, producer.metrics()["record_error_total"]) == ([b"0", b"2"], 2)


def test_interceptors_see_every_record(broker: Broker) -> None:
    class Doubling:
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            return record._replace(value=(record.value or b"") * 2)

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
            pass

        def close(self) -> None:
            pass

    with Producer(broker.bootstrap_servers, linger_ms=60_000, interceptors=[Doubling()]) as producer:
        producer.send("t", b"0")
        producer.send("t", b"1")
    assert written(broker) == [(None, b"00"), (None, b"11")]


@pytest.mark.parametrize("name", ENGINES)
def test_smaller_records_than_the_first_find_a_place(broker: Broker, name: str) -> None:
    with engine(name), Producer(broker.bootstrap_servers, linger_ms=60_000) as producer:
        producer.send("t", b"x" * 16_000)
        sent = [producer.send("t", b"%d" % row, b"k" if row % 2 else None) for row in range(15)]
        assert len({id(delivery[0]) for delivery in sent}) == 1
        producer.flush()
        assert [delivery.result().offset for delivery in sent] == list(range(1, 16))
    assert written(broker)[1:] == [(b"k" if row % 2 else None, b"%d" % row) for row in range(15)]


@pytest.mark.parametrize("name", ENGINES)
def test_what_is_not_plain_is_refused_beside_an_open_chunk(broker: Broker, name: str) -> None:
    refused: list[tuple[Any, ...]] = [("t", "text"), ("t", 5), ("t", b"", "key"), (b"t", b""), (["t"], b""), ("t",)]
    with engine(name), Producer(broker.bootstrap_servers, linger_ms=60_000) as producer:
        producer.send("t", b"0", b"k0")
        for arguments in refused:
            with pytest.raises(TypeError):
                producer.send(*arguments)
        with pytest.raises(RecordRejectedError, match="max_request_size"):
            producer.send("t", bytes(2_000_000))
        producer.send("t", None, b"k0")
        producer.send("t", bytearray(b"1"), memoryview(b"k1"))  # type: ignore[arg-type]
    assert written(broker) == [(b"k0", b"0"), (b"k0", None), (b"k1", b"1")]


class Deliveries:
    """Values that a thread sends, and the offsets of their deliveries."""

    def __init__(self, producer: Producer, name: int, count: int) -> None:
        self.sent = [b"%d-%d" % (name, row) for row in range(count)]
        self.offsets: list[int] = []
        self._producer = producer
        self.thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        keyed = [b"k", None]
        reported = [self._producer.send("t", value, keyed[row % 2]) for row, value in enumerate(self.sent)]
        self._producer.flush()
        self.offsets = [delivery.result().offset for delivery in reported]


@pytest.mark.parametrize("name", ENGINES)
def test_threads_that_send_at_the_same_time_lose_nothing_and_each_keeps_its_order(broker: Broker, name: str) -> None:
    interval: float = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with engine(name), Producer(broker.bootstrap_servers, linger_ms=0, batch_size=2_000) as producer:
            senders = [Deliveries(producer, name, 1_000) for name in range(4)]
            for sender in senders:
                sender.thread.start()
            for sender in senders:
                sender.thread.join()
    finally:
        sys.setswitchinterval(interval)
    found = [value for _, value in written(broker)]
    assert len(found) == 4_000
    for sender in senders:
        assert sender.offsets == sorted(sender.offsets)
        assert [found[offset] for offset in sender.offsets] == sender.sent
