"""A consumer and its broker work at the same time."""

from __future__ import annotations

import pytest

from fencepost.client.records import Fetched
from tests.unit.client.scripted import World, run
from tests.unit.client.scripted_consumer import PARTITION, ScriptedConsumerBroker, consumer_of


@pytest.mark.parametrize("method", ["poll", "poll_arrow"])
def test_the_next_fetch_has_gone_out_before_anything_is_made_of_this_one(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = ScriptedConsumerBroker()
    broker.log = [(0, 0, [b"a", b"b"])]
    offsets: list[int] = []

    def snapshot(fetched: list[Fetched], **_: object) -> list[Fetched]:
        (partition,) = broker.asked(1)[-1].topics[0].partitions
        offsets.append(partition.fetch_offset)
        return fetched

    async def body(world: World) -> None:
        core = consumer_of(world)
        monkeypatch.setattr(core.records, "_received", snapshot)
        monkeypatch.setattr("fencepost.client.consumer.core.to_table", snapshot)
        await core.assign([PARTITION])
        await getattr(core, method)(5000)
        await core.close()

    run(body, broker)
    assert offsets == [2]
