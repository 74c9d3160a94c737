"""Each broker setting that a user can see the effect of has that effect, through the wire protocol.

Error codes are Kafka's: 26 INVALID_SESSION_TIMEOUT, 32 INVALID_TIMESTAMP, 73 TOPIC_DELETION_DISABLED,
81 GROUP_MAX_SIZE_REACHED, 133 SHARE_SESSION_LIMIT_REACHED.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.broker.settings.table import GROUP_SETTINGS, TOPIC_SETTINGS, Kind
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from fencepost.protocol.messages.end_txn import EndTxnRequest
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from fencepost.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from fencepost.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.support.batches import keyed
from tests.support.broker_driver import BrokerDriver, batch, produce

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
RENEW = 4


def driver_with(settings: dict[str, object], **topic: str) -> BrokerDriver:
    """Return a broker with a topic `t` of one partition."""
    driver = BrokerDriver(settings)
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in topic.items()]
    created = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)
    assert driver.ask(CreateTopicsRequest(topics=[created]), 7).topics[0].error_code == 0
    return driver


def topic_id(driver: BrokerDriver) -> Any:
    topic = driver.core.topics.get("t")
    assert topic is not None
    return topic.topic_id


def segments(driver: BrokerDriver) -> int:
    partition = driver.core.topics.partition("t", 0)
    assert partition is not None
    return len(partition.log.segments)


def write(driver: BrokerDriver, timestamp_ms: int = NOW, value: bytes = b"v") -> int:
    answer = driver.ask(produce("t", batch(value, timestamp_ms=timestamp_ms)), 9)
    return int(answer.partitions[0].error_code)


# --- topics and logs ---


@pytest.mark.parametrize(("enabled", "expected"), [("true", 0), ("false", ErrorCode.TOPIC_DELETION_DISABLED)])
def test_delete_topic_enable(enabled: str, expected: int) -> None:
    driver = driver_with({"delete.topic.enable": enabled})
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=None)], timeout_ms=1000)
    assert driver.ask(request, 6).responses[0].error_code == expected
    assert (driver.core.topics.get("t") is None) == (expected == 0)


def test_log_cleaner_enable() -> None:
    cleaned = []
    for enabled in ("true", "false"):
        driver = driver_with({"log.cleaner.enable": enabled}, cleanup_policy="compact", segment_bytes="2000")
        for n in range(60):
            records = keyed((b"k", b"v%d" % n * 9), timestamp=NOW)
            assert driver.ask(produce("t", records), 9).partitions[0].error_code == 0
        driver.pass_time(60_000)
        cleaned.append(driver.core.metrics.values["compactions"] > 0)
    assert cleaned == [True, False]


@pytest.mark.parametrize("key", sorted(key for key, setting in TOPIC_SETTINGS.items() if setting.broker_key))
def test_a_broker_setting_is_the_default_of_the_topic_setting(key: str) -> None:
    setting = TOPIC_SETTINGS[key]
    value = {
        "cleanup.policy": "compact",
        "compression.type": "zstd",
        "message.timestamp.type": "LogAppendTime",
        "min.cleanable.dirty.ratio": "0.25",
    }.get(key)
    if value is None and setting.kind is Kind.BOOLEAN:
        value = "false" if setting.default == "true" else "true"
    if value is None:
        value = str(max(setting.low or 0, 1) + 100_000) if setting.high is None or setting.high > 200_000 else "1"
    driver = driver_with({setting.broker_key: value})
    wanted = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=[key])
    (result,) = driver.ask(DescribeConfigsRequest(resources=[wanted]), 4).results
    assert [(each.name, each.value) for each in result.configs] == [(key, value)]


@pytest.mark.parametrize("key", sorted(key for key, setting in GROUP_SETTINGS.items() if setting.broker_key))
def test_a_broker_setting_is_the_default_of_the_group_setting(key: str) -> None:
    setting = GROUP_SETTINGS[key]
    known = {"streams.num.standby.replicas": "2", "share.auto.offset.reset": "earliest"}
    value = known.get(key, str(int(setting.default or "0") + 1))
    driver = driver_with({setting.broker_key: value})
    wanted = DescribeConfigsResource(resource_type=32, resource_name="g", configuration_keys=[key])
    (result,) = driver.ask(DescribeConfigsRequest(resources=[wanted]), 4).results
    assert [(each.name, each.value) for each in result.configs] == [(key, value)]


@pytest.mark.parametrize(
    ("hours", "ms", "expected"),
    [("2", None, 2 * HOUR_MS), ("2", "90000", 90_000)],
)
def test_roll_times_in_hours_and_milliseconds(hours: str, ms: str | None, expected: int) -> None:
    given: dict[str, object] = {"log.roll.hours": hours, "log.roll.jitter.hours": hours}
    if ms is not None:
        given |= {"log.roll.ms": ms, "log.roll.jitter.ms": ms}
    driver = driver_with(given)
    wanted = DescribeConfigsResource(
        resource_type=2, resource_name="t", configuration_keys=["segment.ms", "segment.jitter.ms"]
    )
    (result,) = driver.ask(DescribeConfigsRequest(resources=[wanted]), 4).results
    assert {each.name: each.value for each in result.configs} == {
        "segment.ms": str(expected),
        "segment.jitter.ms": str(expected),
    }


def test_a_record_outside_of_the_allowed_times_is_refused() -> None:
    driver = driver_with({"log.message.timestamp.before.max.ms": 10_000, "log.message.timestamp.after.max.ms": 20_000})
    assert write(driver, NOW - 9_000) == 0
    assert write(driver, NOW + 19_000) == 0
    assert write(driver, NOW - 11_000) == ErrorCode.INVALID_TIMESTAMP
    assert write(driver, NOW + 21_000) == ErrorCode.INVALID_TIMESTAMP


def test_a_full_index_begins_a_segment() -> None:
    """An entry of 8 bytes per batch with index.interval.bytes=0: segment.index.bytes=32 holds four."""
    driver = driver_with({}, segment_index_bytes="32", index_interval_bytes="0")
    for _ in range(20):
        assert write(driver) == 0
    assert segments(driver) >= 3


def test_a_page_of_partitions_has_a_limit() -> None:
    driver = driver_with({"max.request.partition.size.limit": 2})
    created = CreatableTopic(name="u", num_partitions=3, replication_factor=1)
    assert driver.ask(CreateTopicsRequest(topics=[created]), 7).topics[0].error_code == 0
    page = driver.ask(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=100), 0)
    assert [(topic.name, len(topic.partitions)) for topic in page.topics] == [("t", 1), ("u", 1)]
    assert (page.next_cursor.topic_name, page.next_cursor.partition_index) == ("u", 1)


# --- groups ---


def join(driver: BrokerDriver, connection: int, *, session_timeout_ms: int = 10_000) -> Any:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\xff\xff\xff\xff")],
    )
    return driver.send(request, 3, connection)


def consumer_beat(driver: BrokerDriver, number: int, epoch: int = 0) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=f"m{number}",
        member_epoch=epoch,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"] if epoch == 0 else None,
        topic_partitions=[] if epoch == 0 else None,
    )
    return driver.ask(request, 1, number)


def share_beat(driver: BrokerDriver, number: int, epoch: int = 0) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id="g", member_id=f"m{number}", member_epoch=epoch, subscribed_topic_names=["t"] if epoch == 0 else None
    )
    return driver.ask(request, 1, number)


def streams_beat(driver: BrokerDriver, number: int, epoch: int = 0) -> Any:
    changelog = TopicInfo(name="g-s-changelog", replication_factor=1)
    part = Subtopology(subtopology_id="s", source_topics=["t"], state_changelog_topics=[changelog])
    topology = Topology(epoch=0, subtopologies=[part])
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id=f"m{number}",
        member_epoch=epoch,
        rebalance_timeout_ms=10_000,
        process_id=f"p{number}",
        topology=topology if epoch == 0 else None,
        active_tasks=[] if epoch == 0 else None,
        standby_tasks=[] if epoch == 0 else None,
        warmup_tasks=[] if epoch == 0 else None,
    )
    return driver.ask(request, 0, number)


@pytest.mark.parametrize("size", [1, 2])
def test_group_max_size(size: int) -> None:
    driver = driver_with({"group.max.size": size})
    asked = [join(driver, connection) for connection in (1, 2)]
    driver.pass_time(10_000)
    codes = [driver.answer(each, connection).error_code for connection, each in enumerate(asked, 1)]
    assert codes.count(ErrorCode.GROUP_MAX_SIZE_REACHED) == 2 - size


@pytest.mark.parametrize(
    ("key", "beat"),
    [
        ("group.consumer.max.size", consumer_beat),
        ("group.share.max.size", share_beat),
        ("group.streams.max.size", streams_beat),
    ],
)
def test_sizes_of_groups_with_heartbeats(key: str, beat: Callable[[BrokerDriver, int], Any]) -> None:
    for size, expected in ((1, ErrorCode.GROUP_MAX_SIZE_REACHED), (2, ErrorCode.NONE)):
        driver = driver_with({key: size})
        assert [beat(driver, number).error_code for number in (1, 2)] == [ErrorCode.NONE, expected]


@pytest.mark.parametrize(
    ("timeout_ms", "expected"),
    [(999, ErrorCode.INVALID_SESSION_TIMEOUT), (1000, 0), (2000, 0), (2001, ErrorCode.INVALID_SESSION_TIMEOUT)],
)
def test_group_session_timeouts_have_bounds(timeout_ms: int, expected: int) -> None:
    driver = driver_with({"group.min.session.timeout.ms": 1000, "group.max.session.timeout.ms": 2000})
    asked = join(driver, 1, session_timeout_ms=timeout_ms)
    driver.pass_time(500)
    assert driver.answer(asked).error_code == expected


@pytest.mark.parametrize(
    ("settings", "beat"),
    [
        ({"group.consumer.session.timeout.ms": 50_000, "group.consumer.heartbeat.interval.ms": 5_000}, consumer_beat),
        ({"group.share.session.timeout.ms": 50_000}, share_beat),
    ],
)
def test_a_silent_member_leaves_after_the_session_timeout(
    settings: dict[str, object], beat: Callable[..., Any]
) -> None:
    driver = driver_with(settings)
    first = beat(driver, 1)
    assert first.error_code == 0
    driver.pass_time(49_999)
    assert beat(driver, 1, first.member_epoch).error_code == 0
    driver.pass_time(50_001)
    assert beat(driver, 1, first.member_epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("bidirectional", 0), ("upgrade", 0), ("downgrade", ErrorCode.GROUP_ID_NOT_FOUND), ("disabled", 69)],
)
def test_group_consumer_migration_policy(policy: str, expected: int) -> None:
    """A member of the consumer protocol in a group with a classic member: an upgrade of the group."""
    driver = driver_with({"group.consumer.migration.policy": policy})
    asked = join(driver, 1)
    driver.pass_time(5_000)
    assert driver.answer(asked).error_code == 0
    assert consumer_beat(driver, 2).error_code == expected


@pytest.mark.parametrize(("assignor", "code"), [("range", 0), ("uniform", ErrorCode.UNSUPPORTED_ASSIGNOR)])
def test_group_consumer_assignors(assignor: str, code: int) -> None:
    driver = driver_with({"group.consumer.assignors": "range"})
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m1",
        rebalance_timeout_ms=10_000,
        server_assignor=assignor,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert driver.ask(request, 1).error_code == code


# --- share groups ---


def share_request(driver: BrokerDriver, number: int, epoch: int = 0) -> ShareFetchRequest:
    return ShareFetchRequest(
        group_id="g",
        member_id=f"m{number}",
        share_session_epoch=epoch,
        max_records=100,
        batch_size=100,
        topics=[FetchTopic(topic_id=topic_id(driver), partitions=[FetchPartition(partition_index=0)])],
    )


def share_fetch(driver: BrokerDriver, number: int, epoch: int = 0) -> Any:
    return driver.ask(share_request(driver, number, epoch), 2, number)


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for data in topic.partitions
        for each in data.acquired_records
    ]


def share_driver(settings: dict[str, object], records: int, members: int = 1) -> BrokerDriver:
    """Return a broker with members of a share group that has begun before the records were written."""
    driver = driver_with(settings)
    for number in range(1, members + 1):
        assert share_beat(driver, number).error_code == 0
    assert acquired(share_fetch(driver, 1)) == []
    for _ in range(records):
        assert write(driver) == 0
    return driver


def test_group_share_max_share_sessions() -> None:
    driver = share_driver({"group.share.max.share.sessions": 1}, records=0, members=2)
    refused = driver.send(share_request(driver, 2), 2, 2)
    driver.pass_time(1)
    assert driver.answer(refused, 2).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_group_share_partition_max_record_locks() -> None:
    driver = share_driver({"group.share.partition.max.record.locks": 100}, records=130)
    assert acquired(share_fetch(driver, 1, 1)) == [(offset, offset, 1) for offset in range(100)]
    assert acquired(share_fetch(driver, 1, 2)) == []


def test_group_share_record_lock_duration_and_delivery_count() -> None:
    settings: dict[str, object] = {
        "group.share.record.lock.duration.ms": 15_000,
        "group.share.delivery.count.limit": 2,
        "group.share.session.timeout.ms": 60_000,
    }
    driver = share_driver(settings, records=1)
    first = share_fetch(driver, 1, 1)
    assert (acquired(first), first.acquisition_lock_timeout_ms) == ([(0, 0, 1)], 15_000)
    driver.pass_time(14_999)
    assert acquired(share_fetch(driver, 1, 2)) == []
    driver.pass_time(2)
    assert acquired(share_fetch(driver, 1, 3)) == [(0, 0, 2)]
    driver.pass_time(15_001)
    assert acquired(share_fetch(driver, 1, 4)) == []
    assert driver.core.metrics.values["share_records_exhausted"] == 1


def group_setting(driver: BrokerDriver, key: str, value: str) -> None:
    configs = [AlterableConfig(name=key, config_operation=0, value=value)]
    resource = AlterConfigsResource(resource_type=32, resource_name="g", configs=configs)
    (answer,) = driver.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer.error_message


@pytest.mark.parametrize(("isolation", "waits"), [("read_uncommitted", False), ("read_committed", True)])
def test_share_isolation_level(isolation: str, waits: bool) -> None:
    driver = share_driver({}, records=0)
    group_setting(driver, "share.isolation.level", isolation)
    pair = driver.ask(InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=60_000), 6)
    records = batch(producer_id=pair.producer_id, epoch=pair.producer_epoch, sequence=0, transactional=True)
    assert driver.ask(produce("t", records, transactional_id="a"), 12).partitions[0].error_code == 0
    assert acquired(share_fetch(driver, 1, 1)) == ([] if waits else [(0, 0, 1)])
    end = EndTxnRequest(
        transactional_id="a", producer_id=pair.producer_id, producer_epoch=pair.producer_epoch, committed=True
    )
    assert driver.ask(end, 5).error_code == 0
    assert acquired(share_fetch(driver, 1, 2)) == ([(0, 0, 1)] if waits else [])


@pytest.mark.parametrize(("enabled", "code"), [("true", 0), ("false", ErrorCode.INVALID_RECORD_STATE)])
def test_share_renew_acknowledge_enable(enabled: str, code: int) -> None:
    driver = share_driver({}, records=1)
    group_setting(driver, "share.renew.acknowledge.enable", enabled)
    assert acquired(share_fetch(driver, 1, 1)) == [(0, 0, 1)]
    renewal = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[RENEW])
    partition = FetchPartition(partition_index=0, acknowledgement_batches=[renewal])
    request = ShareFetchRequest(
        group_id="g",
        member_id="m1",
        share_session_epoch=2,
        max_bytes=0,
        is_renew_ack=True,
        topics=[FetchTopic(topic_id=topic_id(driver), partitions=[partition])],
    )
    (topic,) = driver.ask(request, 2, 1).responses
    assert [data.acknowledge_error_code for data in topic.partitions] == [code]


@pytest.mark.parametrize("of_broker", [True, False])
def test_standby_replicas_of_streams_groups(of_broker: bool) -> None:
    """The task of a stateful subtopology gets a standby in the other process."""
    driver = driver_with({"group.streams.num.standby.replicas": 1} if of_broker else {})
    if not of_broker:
        group_setting(driver, "streams.num.standby.replicas", "1")
    epochs = {1: 0, 2: 0}
    standby: dict[int, list[tuple[str, list[int]]]] = {}
    for _ in range(4):
        for number in (1, 2):
            answer = streams_beat(driver, number, epochs[number])
            assert answer.error_code == 0
            epochs[number] = answer.member_epoch
            if answer.standby_tasks is not None:
                standby[number] = [(task.subtopology_id, list(task.partitions)) for task in answer.standby_tasks]
    assert sorted(standby.values()) == [[], [("s", [0])]]
