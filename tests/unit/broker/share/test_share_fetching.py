"""A ShareFetch that waits at several partitions: looked at where something changed, answered by what there is then."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fencepost.broker.api.shares.share_fetching import ParkedShareFetch
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse
from fencepost.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.broker_driver import BrokerDriver, batch, produce

GROUP, TOPIC, PARTITIONS = "workers", "jobs", 3
WAITING, OTHER = 1, 2
ONE_BATCH = len(batch(b"x" * 49))


@pytest.fixture
def driver() -> BrokerDriver:
    driver = BrokerDriver()
    topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    driver.ask(CreateTopicsRequest(topics=[topic]), 7)
    earliest = [AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")]
    resource = AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=earliest)
    driver.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    for connection in (WAITING, OTHER):
        join = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=f"m{connection}", member_epoch=0, subscribed_topic_names=[TOPIC]
        )
        assert driver.ask(join, 1, connection).error_code == ErrorCode.NONE
    return driver


def fetch(driver: BrokerDriver, connection: int, partitions: Sequence[int], min_bytes: int, max_wait_ms: int) -> int:
    topic = driver.core.topics.get(TOPIC)
    assert topic is not None
    wanted = [FetchPartition(partition_index=index) for index in partitions]
    request = ShareFetchRequest(
        group_id=GROUP,
        member_id=f"m{connection}",
        share_session_epoch=0,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_records=100,
        batch_size=100,
        topics=[FetchTopic(topic_id=topic.topic_id, partitions=wanted)],
    )
    return driver.send(request, 2, connection)


def write(driver: BrokerDriver, partition: int) -> None:
    asked = produce(TOPIC, batch(b"x" * 49), partition=partition)
    assert driver.ask(asked, 12, OTHER).partitions[0].error_code == ErrorCode.NONE


def handed_out(answer: ShareFetchResponse) -> list[tuple[int, int]]:
    return [
        (data.partition_index, each.first_offset)
        for topic in answer.responses
        for data in topic.partitions
        for each in data.acquired_records
    ]


def test_what_others_have_taken_meanwhile_does_not_count(driver: BrokerDriver) -> None:
    waiting = fetch(driver, WAITING, range(PARTITIONS), 2 * ONE_BATCH, 60_000)
    write(driver, 0)
    taken = fetch(driver, OTHER, [0], 1, 0)
    assert handed_out(driver.answer(taken, OTHER)) == [(0, 0)]
    write(driver, 1)
    assert driver.answer(waiting, WAITING) is None
    write(driver, 2)
    assert handed_out(driver.answer(waiting, WAITING)) == [(1, 0), (2, 0)]


def test_only_the_partition_that_changed_is_looked_at(driver: BrokerDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[TopicIdPartition] = []
    measured = ParkedShareFetch._size

    def size(self: ParkedShareFetch, wanted: TopicIdPartition) -> int | None:
        looked.append(wanted)
        return measured(self, wanted)

    monkeypatch.setattr(ParkedShareFetch, "_size", size)
    waiting = fetch(driver, WAITING, range(PARTITIONS), 4 * ONE_BATCH, 60_000)
    assert [index for _, index in looked] == [0, 1, 2]
    looked.clear()
    for partition in (1, 2, 1):
        write(driver, partition)
    assert [index for _, index in looked] == [1, 2, 1]
    write(driver, 0)
    assert handed_out(driver.answer(waiting, WAITING)) == [(0, 0), (1, 0), (1, 1), (2, 0)]
