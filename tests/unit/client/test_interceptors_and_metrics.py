"""Interceptors see, change and follow records; metrics count what happened."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from fencepost.client.interceptors import OutgoingRecord
from fencepost.client.metrics import PrometheusCollector
from fencepost.client.types import RecordMetadata
from fencepost.errors import (
    ConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    ProduceFailedError,
    RecordRejectedError,
    UsageError,
)
from fencepost.protocol.produce_wire import ProduceResponse
from tests.unit.client.scripted import World, cut, run


class Stamp:
    """Adds a header; remembers what it saw."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[OutgoingRecord] = []
        self.acknowledged: list[tuple[RecordMetadata | None, KafkaError | None]] = []
        self.closed = 0

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        self.seen.append(record)
        return record._replace(headers=[*(record.headers or ()), (self.name, b"1")])

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        self.acknowledged.append((metadata, error))

    def close(self) -> None:
        self.closed += 1


class Broken(Stamp):
    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        raise RuntimeError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        raise RuntimeError("on_acknowledgement")

    def close(self) -> None:
        raise RuntimeError("close")


class DeafAndDumb(Stamp):
    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        raise RuntimeError("on_acknowledgement")

    def close(self) -> None:
        raise RuntimeError("close")


class Failing(Stamp):
    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        raise RuntimeError("no key to encrypt with")


class Forgetful(Stamp):
    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        return None  # type: ignore[return-value]


def test_interceptors_in_their_order() -> None:
    first, broken, second = Stamp("first"), DeafAndDumb("broken"), Stamp("second")
    reported: list[Any] = []

    async def body(world: World) -> None:
        producer = world.producer(interceptors=[first, broken, second])
        sent = producer.append("t", b"v", b"k", on_delivery=lambda error, metadata: reported.append((error, metadata)))
        assert (await world.outcome(sent)).offset == 0
        world.broker.refuse_produce(10)
        refused = await world.outcome(producer.append("t", b"too large"))
        assert isinstance(refused, ProduceFailedError)
        with pytest.raises(RecordRejectedError):
            producer.append(
                "t", b"x" * 2_000_000, on_delivery=lambda error, metadata: reported.append((error, metadata))
            )
        await producer.close()

    run(body)
    assert first.seen[0] == OutgoingRecord("t", b"v", b"k")
    assert second.seen[0].headers == [("first", b"1"), ("broken", b"1")]
    for interceptor in (first, second):
        assert [(metadata is None, error is None) for metadata, error in interceptor.acknowledged] == [
            (False, True),
            (True, False),
            (True, False),
        ]
        assert interceptor.closed == 1
    assert len(reported) == 1


@pytest.mark.parametrize("bad", [Failing("failing"), Forgetful("forgetful")])
def test_what_an_interceptor_fails_on_is_not_sent(bad: Stamp) -> None:
    watching = Stamp("watching")

    async def body(world: World) -> None:
        producer = world.producer(interceptors=[watching, bad])
        with pytest.raises(RecordRejectedError, match="the record was not sent"):
            producer.append("t", b"in the clear")
        with pytest.raises(UsageError, match="past the producer's interceptors"):
            producer.append_table("t", pa.table({"value": [b"in the clear"]}), None)
        await producer.close()

    broker = run(body)
    assert broker.asked(0) == []
    assert len(watching.acknowledged) == 1
    assert isinstance(watching.acknowledged[0][1], RecordRejectedError)


def test_what_a_producer_counts() -> None:
    numbers: dict[str, float] = {}

    async def body(world: World) -> None:
        producer = world.producer()
        await world.outcome(producer.append("t", b"v"))
        world.broker.scripts[0].append(cut)
        await world.outcome(producer.append("t", b"v"))
        world.broker.scripts[0].append(
            lambda _, request: ProduceResponse(world.broker.produced(request).partitions, throttle_ms=70)
        )
        await world.outcome(producer.append("t", b"v"))
        world.broker.refuse_produce(87)
        await world.outcome(producer.append("t", b"v"))
        numbers.update(producer.metrics())
        await producer.close()

    run(body)
    assert numbers["record_send_total"] == 3
    assert numbers["record_error_total"] == 1
    assert numbers["record_retry_total"] == 1
    assert numbers["request_total"] == 5
    assert numbers["request_failed_total"] == 1
    assert numbers["records_per_request_avg"] == 1
    assert numbers["batch_size_avg"] > 61
    assert numbers["produce_throttle_ms_max"] == 70
    assert numbers["requests_in_flight"] == 0
    assert numbers["buffer_available_bytes"] == numbers["buffer_total_bytes"]


def test_prometheus_gets_every_number_of_every_client() -> None:
    class Client:
        def __init__(self, **numbers: float) -> None:
            self.numbers = numbers

        def metrics(self) -> dict[str, float]:
            return self.numbers

    registry = CollectorRegistry()
    registry.register(PrometheusCollector(orders=Client(record_send_total=3, lag=7.5), audit=Client(lag=1)))
    assert registry.get_sample_value("fencepost_client_record_send_total", {"client": "orders"}) == 3
    assert registry.get_sample_value("fencepost_client_lag", {"client": "orders"}) == 7.5
    assert registry.get_sample_value("fencepost_client_lag", {"client": "audit"}) == 1


def test_retries_are_counted_out() -> None:
    async def body(world: World) -> None:
        world.broker.refuse_produce(5, times=100)
        producer = world.producer(retries=3)
        begun_ms = world.runtime.now_ms()
        failed = await world.outcome(producer.append("t", b"v"))
        assert isinstance(failed, ProduceFailedError)
        assert isinstance(failed.__cause__, KafkaTimeoutError)
        assert world.runtime.now_ms() - begun_ms < 10_000, "long before delivery_timeout_ms"
        world.broker.scripts[0].clear()
        assert (await world.outcome(producer.append("t", b"v"))).offset == 0
        await producer.close()

    broker = run(body)
    assert len(broker.batches) == 4 + 1


def test_no_retries_need_no_idempotence() -> None:
    async def body(world: World) -> None:
        with pytest.raises(ConfigurationError, match="retries=0"):
            world.producer(retries=0)
        world.broker.refuse_produce(5)
        producer = world.producer(retries=0, enable_idempotence=False)
        assert isinstance(await world.outcome(producer.append("t", b"v")), ProduceFailedError)
        await producer.close()

    assert len(run(body).asked(0)) == 1


def test_what_waits_behind_a_silent_broker_is_given_up_in_time() -> None:
    """Chunks become batches only when they can soon be sent; the delivery timeout holds for them all the same."""

    async def body(world: World) -> None:
        world.broker.scripts[0] += [lambda _, __: None] * 1000
        producer = world.producer(delivery_timeout_ms=2000, request_timeout_ms=100_000, batch_size=1_000_000)
        sent = [producer.append("t", b"x" * 999_000) for _ in range(30)]
        begun_ms = world.runtime.now_ms()
        for delivery in sent[12:]:
            assert isinstance(await world.outcome(delivery), ProduceFailedError)
        assert 2000 <= world.runtime.now_ms() - begun_ms < 3000
        with pytest.raises(ProduceFailedError, match="12"):  # the first, which nobody has asked for
            await producer.close(0)

    run(body)
