"""ListOffsets while records are appended that are not synced yet."""

from __future__ import annotations

import pytest

from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.support.broker_driver import BrokerDriver, batch, produce

START = 1_700_000_000_000


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize(("asked", "found"), [(-3, (1, START + 1)), (-1, (2, -1)), (START + 1, (1, START + 1))])
def test_what_is_not_synced_does_not_count(asked: int, found: tuple[int, int], committed: bool) -> None:
    driver = BrokerDriver()
    driver.ask(CreateTopicsRequest(topics=[CreatableTopic(name="a", num_partitions=1, replication_factor=1)]), 7)
    for number in range(2):
        driver.ask(produce("a", batch(timestamp_ms=START + number)), 9)
    driver.auto_sync = False
    driver.send(produce("a", batch(timestamp_ms=START + 2)), 9)
    wanted = ListOffsetsTopic(name="a", partitions=[ListOffsetsPartition(partition_index=0, timestamp=asked)])
    answer = driver.ask(ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=[wanted]), 7, 2)
    (partition,) = answer.topics[0].partitions
    assert (partition.offset, partition.timestamp) == found
