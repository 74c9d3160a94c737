"""State of the broker outside the logs: topics, settings, identity, producer ids."""

from __future__ import annotations

from itertools import count
from uuid import UUID

import pytest

from fencepost.broker.disk.meta import Meta
from fencepost.broker.settings.table import BROKER_SETTINGS, TOPIC_SETTINGS, InvalidSetting, check_value
from fencepost.broker.settings.values import BrokerConfig, TopicConfig, check_topic_config
from fencepost.broker.topics.names import invalid_topic_name
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from fencepost.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost_lab.check.disk import MemoryDisk
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce


def create(driver: BrokerDriver, name: str, partitions: int = 1, **configs: str) -> int:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    return int(driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code)


def test_topics_survive_a_power_loss() -> None:
    driver = BrokerDriver()
    assert create(driver, "a", 3, retention_ms="1000") == ErrorCode.NONE
    grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=5, assignments=None)], timeout_ms=1000)
    assert driver.ask(grow, 3).results[0].error_code == ErrorCode.NONE
    before = driver.ask(MetadataRequest(topics=None), 12).topics
    driver.crash(1)
    driver.start()
    assert driver.ask(MetadataRequest(topics=None), 12).topics == before
    assert [len(topic.partitions) for topic in before] == [5]
    resource = DescribeConfigsResource(resource_type=2, resource_name="a", configuration_keys=["retention.ms"])
    config = driver.ask(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs[0]
    assert (config.value, config.config_source) == ("1000", 1)


def test_a_new_topic_of_an_old_name_is_empty_even_when_the_old_directory_was_left() -> None:
    driver = BrokerDriver()
    create(driver, "a")
    driver.ask(produce("a", batch(b"old")), 9)
    leftover = driver.disk.read_bytes("a-0/00000000000000000000.log")
    metadata = driver.disk.read_bytes("a-0/partition.metadata")
    assert b"old" in leftover
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1000)
    assert driver.ask(delete, 6).responses[0].error_code == ErrorCode.NONE
    driver.disk.makedirs("a-0")
    driver.disk.write_atomic("a-0/00000000000000000000.log", leftover)
    driver.disk.write_atomic("a-0/partition.metadata", metadata)
    driver.start()
    create(driver, "a")
    partition = driver.ask(fetch("a"), 12).topics[0].partitions[0]
    assert (partition.high_watermark, bytes(partition.records)) == (0, b"")


def test_fetches_that_wait_for_a_deleted_topic_are_answered() -> None:
    driver = BrokerDriver()
    create(driver, "a")
    waiting = driver.send(fetch("a", max_wait_ms=60_000), 12)
    driver.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1000), 6, connection=2)
    assert driver.answer(waiting).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": "a"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "b/c"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "__consumer_offsets"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": [CreatableTopicConfig(name="no.such", value="1")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [CreatableTopicConfig(name="retention.ms", value="x")]}, ErrorCode.INVALID_CONFIG),
    ],
    ids=["twice", "name", "internal", "partitions", "replication", "unknown config", "bad config"],
)
def test_what_cannot_be_created(changes: dict[str, object], code: ErrorCode) -> None:
    driver = BrokerDriver()
    create(driver, "a")
    wanted = CreatableTopic(**{"name": "new", "num_partitions": 1, "replication_factor": 1, **changes})  # type: ignore[arg-type]
    assert driver.ask(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code == code
    names = [topic.name for topic in driver.ask(MetadataRequest(topics=None), 12).topics]
    assert names == ["a"]


def test_settings_that_do_not_fit_leave_the_topic_as_it_was() -> None:
    driver = BrokerDriver()
    create(driver, "a", retention_ms="1000")
    bad = AlterConfigsResource(
        resource_type=2, resource_name="a", configs=[AlterableConfig(name="cleanup.policy", value="burn")]
    )
    answer = driver.ask(AlterConfigsRequest(resources=[bad]), 2).responses[0]
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    topic = driver.core.topics.get("a")
    assert topic is not None
    assert topic.config.text("retention.ms") == "1000"


def test_a_missing_topic_is_created_only_where_both_sides_allow_it() -> None:
    driver = BrokerDriver()
    refused = MetadataRequest(topics=[MetadataRequestTopic(name="x")], allow_auto_topic_creation=False)
    assert driver.ask(refused, 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    allowed = MetadataRequest(topics=[MetadataRequestTopic(name="x")])
    assert len(driver.ask(allowed, 12).topics[0].partitions) == 1
    strict = BrokerDriver({"auto.create.topics.enable": False})
    assert strict.ask(allowed, 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_of_two_missing_topics_whose_names_collide_one_is_created() -> None:
    driver = BrokerDriver()
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("a.b", "a_b")])
    for _ in range(2):
        codes = {topic.name: topic.error_code for topic in driver.ask(asked, 12).topics}
        assert codes == {"a.b": 0, "a_b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_topic_names_are_kafkas() -> None:
    assert [invalid_topic_name(name) for name in ("a", "A.b_c-9", "x" * 249)] == [None] * 3
    assert all(invalid_topic_name(name) for name in ("", ".", "..", "a b", "ä", "x" * 250))


def test_producer_ids_are_never_given_out_twice() -> None:
    disk, seen, numbers = MemoryDisk(), [], count(1)
    for turn in range(5):
        meta = Meta(disk)
        meta.load("", lambda: UUID(int=next(numbers)))
        seen += [meta.allocate_producer_id() for _ in range(1500)]
        disk.crash(turn)
    assert len(set(seen)) == len(seen) == 7500


def test_the_identity_stays_and_a_clean_stop_is_known() -> None:
    driver = BrokerDriver()
    cluster_id = driver.core.meta.cluster_id
    assert b"cluster.id=" + cluster_id.encode() in driver.disk.read_bytes("meta.properties")
    driver.core.close()
    driver.start()
    assert (driver.core.meta.cluster_id, driver.core.meta.stopped_cleanly) == (cluster_id, True)
    driver.start()
    assert not driver.core.meta.stopped_cleanly


def test_every_default_fits_its_own_setting() -> None:
    checked = 0
    for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()):
        if setting.default is not None:
            assert check_value(setting, setting.default) == setting.default, setting.key
        else:
            assert setting in BROKER_SETTINGS.values() or setting.key == "internal.segment.bytes"
        assert not setting.broker_key or setting.broker_key in BROKER_SETTINGS
        checked += 1
    assert checked > 60


def test_settings_of_kafka_that_cannot_matter_are_taken_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    properties = {"node.id": "7", "num.io.threads": "8", "offsets.topic.replication.factor": "3", "num.partitions": "2"}
    config = BrokerConfig(properties)
    assert config.given == {"num.partitions": "2"}
    reported = [record.getMessage() for record in caplog.records]
    assert [key for key in properties if any(f" {key} " in line for line in reported)] == list(properties)[:3]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("log.dirs", "--data-dir"),
        ("ssl.keystore.password", "stores are PEM"),
        ("client.quota.callback.class", "no Java class"),
        ("remote.log.storage.system.enable", "no tiered storage"),
        ("listener.name.client.ssl.provider", "TLS is OpenSSL"),
        ("config.providers", "does not resolve references"),
        ("num.io.thread", "there is no broker setting 'num.io.thread'$"),
    ],
)
def test_settings_of_kafka_that_would_change_something_are_refused_by_name(key: str, why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        BrokerConfig({key: "x"})


def test_settings_are_checked_and_inherited() -> None:
    broker = BrokerConfig({"log.retention.ms": 5, "auto.create.topics.enable": False})
    assert TopicConfig({}, broker).number("retention.ms") == 5
    assert TopicConfig({"retention.ms": "7"}, broker).number("retention.ms") == 7
    assert not broker.flag("auto.create.topics.enable")
    assert check_topic_config({"cleanup.policy": " compact , delete "}) == {"cleanup.policy": "compact,delete"}
    for wrong in (
        {"no.such": 1},
        {"fsync": "sometimes"},
        {"num.partitions": 0},
        {"auto.create.topics.enable": "maybe"},
    ):
        with pytest.raises(InvalidSetting):
            BrokerConfig(wrong)
