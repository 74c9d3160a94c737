"""Large commits are worked off in pieces: others are answered in between, and nobody overtakes."""

from __future__ import annotations

import errno

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.embedded import Broker
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.support.broker_driver import BrokerDriver
from tests.support.raw_client import RawClient

PARTITIONS = 2500


def commit(offset: int, partitions: int = PARTITIONS, *, member: str = "", generation: int = -1) -> OffsetCommitRequest:
    wanted = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index in range(partitions)
    ]
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name="t", partitions=wanted)],
    )


def create(client: RawClient) -> None:
    """The topic, without looking at each of its partitions."""
    wanted = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
    assert client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=5000), 7).topics[0].error_code == 0


def codes(answer: OffsetCommitResponse) -> list[int]:
    (topic,) = answer.topics
    return [partition.error_code for partition in topic.partitions]


def committed(client: RawClient, partitions: int = PARTITIONS) -> set[int]:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(partitions)))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    (group,) = client.call(request, 8).groups
    (topic,) = group.topics
    assert len(topic.partitions) == partitions
    return {partition.committed_offset for partition in topic.partitions}


def test_others_are_answered_between_the_pieces() -> None:
    driver = BrokerDriver()
    carry_out(driver.core.topics.create("t", PARTITIONS, {}))
    driver.core.groups.offsets_partition("g")
    large = driver.send(commit(5), 8)
    small = driver.send(ApiVersionsRequest(), 0, connection=2)
    assert driver.answer(small, connection=2).error_code == 0
    assert driver.answer(large) is None
    driver.pass_time(10)
    assert codes(driver.answer(large)) == [0] * PARTITIONS


def test_what_comes_behind_on_the_connection_waits() -> None:
    driver = BrokerDriver()
    carry_out(driver.core.topics.create("t", PARTITIONS, {}))
    driver.core.groups.offsets_partition("g")
    first, second = driver.send(commit(5), 8), driver.send(commit(6, 1), 8)
    driver.pass_time(10)
    assert codes(driver.answer(first)) == [0] * PARTITIONS
    assert codes(driver.answer(second)) == [0]
    assert driver.order[-2:] == [first, second]


def test_large_commits_over_a_socket() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        create(client)
        client.find_coordinators()
        for offset in range(2):
            assert codes(client.call(commit(offset), 8)) == [0] * PARTITIONS
        assert committed(client) == {1}


def test_a_disk_that_fails_in_the_middle_is_told() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        create(client)
        client.find_coordinators()
        assert codes(client.call(commit(1), 8)) == [0] * PARTITIONS
        with broker.faults.disk.fail_write(errno.ENOSPC, after=2, path="__consumer_offsets") as fault:
            answered = codes(client.call(commit(2), 8))
            assert fault.hits == 1
        assert set(answered) == {16}, "not one of them is promised"
        assert codes(client.call(commit(3), 8)) == [0] * PARTITIONS
        assert committed(client) == {3}


def test_a_client_that_goes_away_in_the_middle() -> None:
    driver = BrokerDriver()
    carry_out(driver.core.topics.create("t", PARTITIONS, {}))
    driver.core.groups.offsets_partition("g")
    driver.send(commit(5), 8)
    driver.core.disconnected(driver.now_ms, 1)
    driver.pass_time(10)
    small = driver.send(ApiVersionsRequest(), 0, connection=2)
    assert driver.answer(small, connection=2).error_code == 0


def test_others_are_answered_while_the_settings_of_many_topics_are_changed() -> None:
    driver = BrokerDriver()
    names = [f"topic-{number}" for number in range(500)]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    driver.ask(CreateTopicsRequest(topics=topics, timeout_ms=5000), 7)
    driver.auto_write = False
    setting = AlterableConfig(name="retention.ms", config_operation=0, value="12345")
    resources = [AlterConfigsResource(resource_type=2, resource_name=name, configs=[setting]) for name in names]
    sent = driver.send(IncrementalAlterConfigsRequest(resources=resources), 1)
    assert driver.answer(sent) is None
    driver.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, connection=2)
    while driver.writes:
        driver.write()
    answer = driver.answer(sent)
    assert [(each.resource_name, each.error_code) for each in answer.responses] == [(name, 0) for name in names]
    assert {driver.core.topics.get(name).config.text("retention.ms") for name in names} == {"12345"}  # type: ignore[union-attr]
