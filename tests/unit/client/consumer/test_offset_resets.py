"""Offset reset of a consumer without a valid position."""

from __future__ import annotations

import pytest

from fencepost.client.net.list_offsets import EARLIEST, LATEST, OffsetReset
from fencepost.errors import (
    ConfigurationError,
    OffsetOutOfRangeError,
)
from fencepost.protocol.fetch_wire import FetchPartitionResult, FetchResponse, FetchTopicResult
from tests.unit.client.scripted import World, run, topic_id
from tests.unit.client.scripted_consumer import (
    PARTITION,
    TOPIC,
    ScriptedConsumerBroker,
    consumer_of,
    values_of,
)


def test_auto_offset_reset_by_duration() -> None:
    """KIP-1106: ISO 8601 durations as java.time.Duration reads them."""
    hour = OffsetReset.parse("by_duration:PT1H")
    assert hour.timestamp(10_000_000) == 10_000_000 - 3_600_000
    assert OffsetReset.parse("by_duration:P1DT2H3M4.5S").duration_ms == 93_784_500
    assert OffsetReset.parse("by_duration:PT0S").timestamp(5) == 5
    assert OffsetReset.parse("earliest").timestamp(5) == EARLIEST
    assert OffsetReset.parse("latest").timestamp(5) == LATEST
    assert OffsetReset.parse("none").is_none
    for wrong in ("by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1h", "soon", "by_duration:-PT1S"):
        with pytest.raises(ConfigurationError):
            OffsetReset.parse(wrong)


def test_a_position_out_of_the_log_is_told_without_a_rule() -> None:
    broker = ScriptedConsumerBroker()
    broker.log = [(0, 0, [b"a"])]

    async def body(world: World) -> None:
        core = consumer_of(world, auto_offset_reset="none")
        await core.assign([PARTITION])
        core.seek(PARTITION, 7)
        refused = FetchTopicResult(None, topic_id(TOPIC), [FetchPartitionResult(0, error_code=1)])
        broker.scripts[1].append(lambda version, request: FetchResponse([refused]))
        with pytest.raises(OffsetOutOfRangeError):
            await values_of(core, 1)

    run(body, broker)
