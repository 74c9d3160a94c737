"""The latency of deliveries: from `send` to the response, retries included."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client.types import RecordMetadata
from tests.unit.client.scripted import World, run

ROUNDING_MS = 2  # of a clock in whole milliseconds, which is read twice


@pytest.mark.parametrize("linger_ms", [0, 300])
def test_the_wait_in_the_queue_counts(linger_ms: int) -> None:
    async def body(world: World) -> None:
        producer = world.producer(linger_ms=linger_ms)
        outcome = await world.outcome(producer.append("t", b"v"))
        assert linger_ms <= outcome.latency_ms <= linger_ms + ROUNDING_MS
        await producer.close()

    run(body)


def test_retries_count() -> None:
    async def body(world: World) -> None:
        producer = world.producer(retry_backoff_ms=400, retry_backoff_max_ms=400)
        await world.outcome(producer.append("t", b"first"))
        world.broker.refuse_produce(5, times=2)
        began_ms = world.runtime.now_ms()
        outcome = await world.outcome(producer.append("t", b"v"))
        assert outcome.latency_ms == pytest.approx(world.runtime.now_ms() - began_ms, abs=ROUNDING_MS)
        assert outcome.latency_ms >= 2 * 400 * 0.8  # the back-off varies by 20 % (KIP-580)
        await producer.close()

    run(body)


def test_a_callback_is_told_what_the_delivery_tells() -> None:
    async def body(world: World) -> None:
        producer, reported = world.producer(linger_ms=50), list[Any]()
        sent = producer.append("t", b"v", on_delivery=lambda error, metadata: reported.append(metadata))
        outcome = await world.outcome(sent)
        assert reported == [outcome]
        assert type(reported[0]) is RecordMetadata
        await world.runtime.sleep_ms(1_000)
        assert await world.outcome(sent) == outcome  # it is that of the response, whenever somebody asks
        await producer.close()

    run(body)
