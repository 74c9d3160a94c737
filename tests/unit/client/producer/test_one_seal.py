"""A batch that is produced is sealed when it is sent, and not before: its CRC is worked out once."""

from __future__ import annotations

from typing import Any

import crc32c
import pyarrow as pa
import pytest

from fencepost.protocol.records import batch as batches
from fencepost.protocol.records.batch import verify_crc
from tests.unit.client.scripted import ScriptedBroker, World, run

COUNT = 20


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("arrow", [True, False])
def test_every_batch_is_sealed_once(monkeypatch: pytest.MonkeyPatch, idempotent: bool, arrow: bool) -> None:
    computed: list[int] = []

    def counted(data: Any, *more: int) -> int:
        computed.append(len(data))
        return crc32c.crc32c(data, *more)

    monkeypatch.setattr(batches, "crc32c", counted)

    async def main(world: World) -> None:
        producer = world.producer(enable_idempotence=idempotent)
        for number in range(COUNT):
            if arrow:
                producer.append_table("t", pa.table({"value": [b"%d" % number]}), None)
                await producer.flush()
            else:
                await world.outcome(producer.append("t", b"%d" % number, None, None, None, None, None))

    broker = run(main, ScriptedBroker())
    sent = [partition.records for request in broker.asked(0) for partition in request.partitions]
    assert len(sent) == COUNT
    assert len(computed) == COUNT
    monkeypatch.undo()
    assert all(verify_crc(batch) for batch in sent)
