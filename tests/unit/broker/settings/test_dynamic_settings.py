"""Settings that are changed while the broker runs: kept through power cuts, and in force at once, without a clock."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.disk.two_copies import UnusableDirectory
from fencepost.broker.faults.files import FaultyFiles
from fencepost.broker.faults.table import DiskFault, DiskOperation, FaultTable
from fencepost.broker.settings.features import SUPPORTED, InvalidUpdate, Update, updated
from fencepost.broker.settings.table import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, InvalidSetting, check_value
from fencepost.broker.settings.values import BrokerConfig, TopicConfig, check_group_config
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.broker_driver import BrokerDriver, batch, fetch, produce

TOPIC, BROKER, GROUP = 2, 4, 32


def create(driver: BrokerDriver, name: str, **configs: str) -> None:
    given = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=given)
    assert driver.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0


def change(driver: BrokerDriver, kind: int, name: str, **configs: str) -> None:
    given = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value) for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=given)
    (answer,) = driver.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer.error_message


def test_what_was_answered_survives_a_power_cut() -> None:
    for seed in range(20):
        driver = BrokerDriver()
        create(driver, "t")
        change(driver, BROKER, "1", message_max_bytes="5000")
        change(driver, BROKER, "", log_retention_ms="7000")
        change(driver, GROUP, "g", consumer_session_timeout_ms="50000")
        carry_out(
            driver.core.settings.set_feature_levels({**driver.core.settings.feature_levels(), "transaction.version": 1})
        )
        driver.crash(seed)
        driver.start()
        config = driver.core.config
        assert (config.number("message.max.bytes"), config.number("log.retention.ms")) == (5000, 7000)
        assert driver.core.settings.of_group("g").number("consumer.session.timeout.ms") == 50_000
        assert driver.core.settings.feature_levels()["transaction.version"] == 1
        assert driver.core.settings.features_epoch == 2
        assert driver.core.transactions.coordinator.config.transaction_version == 1


def test_a_damaged_file_is_noticed() -> None:
    driver = BrokerDriver()
    change(driver, BROKER, "1", message_max_bytes="5000")
    driver.disk.flip_bit("settings.fencepost", 20)
    driver.start()
    assert driver.core.config.number("message.max.bytes") == 5000
    for name in ("settings.fencepost", "settings.fencepost.copy"):
        driver.disk.flip_bit(name, 20)
    with pytest.raises(UnusableDirectory, match=r"settings\.fencepost"):
        driver.start()


def test_a_change_that_cannot_be_kept_is_none() -> None:
    driver = BrokerDriver()
    create(driver, "t")
    table = FaultTable()
    settings = driver.core.settings
    settings._file._files = FaultyFiles(driver.disk, table, lambda _: None)
    before = dict(settings.feature_levels())
    changes: tuple[Callable[[], None], ...] = (
        lambda: carry_out(settings.set_broker("1", {"message.max.bytes": "1"})),
        lambda: carry_out(settings.set_groups({"g": {"consumer.session.timeout.ms": "1"}})),
        lambda: carry_out(settings.set_feature_levels({**before, "transaction.version": 0})),
    )
    for attempt in changes:
        table.add(DiskFault(operation=DiskOperation.WRITE, error=errno.ENOSPC))
        with pytest.raises(OSError, match="ENOSPC"):
            attempt()
    assert driver.core.config.number("message.max.bytes") == 1_048_588
    assert settings.of_group("g").given == {}
    assert (settings.feature_levels(), settings.features_epoch) == (before, 1)


def test_a_change_of_the_broker_reaches_the_logs_that_are_open() -> None:
    driver = BrokerDriver()
    create(driver, "t")
    create(driver, "own", max_message_bytes="4000")
    for name in ("t", "own"):
        assert driver.ask(produce(name, batch()), 9).partitions[0].error_code == 0
    change(driver, BROKER, "1", message_max_bytes="50")
    assert driver.ask(produce("t", batch()), 9).partitions[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert driver.ask(produce("own", batch()), 9).partitions[0].error_code == 0


def test_a_change_of_the_broker_reaches_the_logs_that_are_opened_later() -> None:
    driver = BrokerDriver()
    driver.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=1)]), 7)
    assert driver.ask(produce("t", batch()), 9).partitions[0].error_code == 0  # opens the first partition's log
    change(driver, BROKER, "1", message_max_bytes="50")
    second = driver.core.topics.partition("t", 1)
    assert second is not None
    assert (second.opened, second.log.config.max_message_bytes) == (None, 50)


def test_of_changes_that_the_disk_refuses_half_way_the_first_count() -> None:
    driver = BrokerDriver()
    create(driver, "t")
    assert driver.ask(produce("t", batch()), 9).partitions[0].error_code == 0
    small = [AlterableConfig(name="message.max.bytes", config_operation=0, value="50")]
    other = [AlterableConfig(name="retention.ms", config_operation=0, value="1000")]
    resources = [
        AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=small),
        AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=other),
    ]
    driver.disk.fail_next_write(within="topics.fencepost")
    answers = driver.ask(IncrementalAlterConfigsRequest(resources=resources), 1).responses
    assert ErrorCode.KAFKA_STORAGE_ERROR in {answer.error_code for answer in answers}
    assert driver.ask(produce("t", batch()), 9).partitions[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_what_may_be_deleted_now_is_deleted_now() -> None:
    driver = BrokerDriver()
    create(driver, "t")
    for _ in range(3):
        driver.ask(produce("t", batch(timestamp_ms=driver.now_ms)), 9)
    driver.pass_time(60_000)
    assert len(driver.ask(fetch("t"), 11).topics[0].partitions[0].records) > 0
    change(driver, TOPIC, "t", retention_ms="1000")
    driver.pass_time(1)
    assert driver.ask(fetch("t"), 11).topics[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": 2}, 7_200_000),
        ({"log.retention.hours": 2, "log.retention.minutes": 3}, 180_000),
        ({"log.retention.hours": 2, "log.retention.minutes": 3, "log.retention.ms": 4}, 4),
        ({"log.retention.hours": -1}, -1),
    ],
)
def test_the_finer_unit_counts(given: dict[str, object], expected: int) -> None:
    assert TopicConfig({}, BrokerConfig(given)).number("retention.ms") == expected


def test_a_default_of_a_group_or_topic_is_the_broker_s_default_of_the_same() -> None:
    checked = 0
    for setting in (*TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values()):
        if setting.broker_key:
            default = BROKER_SETTINGS[setting.broker_key]
            assert default.kind is setting.kind, setting.key
            assert default.default in (setting.default, None), setting.key
            bounds = (setting.low, setting.high, setting.besides)
            if setting.key == "retention.ms":  # 0 is for one topic only, in Kafka too
                bounds = (1, setting.high, -1)
            assert (default.low, default.high, default.besides) == bounds, setting
            checked += 1
        for key, _ in setting.coarser:
            assert key in BROKER_SETTINGS
    assert checked > 20


def test_groups_have_few_settings() -> None:
    assert check_group_config({"consumer.session.timeout.ms": " 7000 "}, BrokerConfig()) == {
        "consumer.session.timeout.ms": "7000"
    }
    with pytest.raises(InvalidSetting, match=r"Unknown group config name: retention\.ms"):
        check_group_config({"retention.ms": "7"}, BrokerConfig())


def test_numbers_fit_their_type() -> None:
    for key, value in (("max.message.bytes", str(2**31)), ("retention.ms", str(2**63)), ("segment.ms", "1.5")):
        with pytest.raises(InvalidSetting, match="Not a number of type"):
            check_value(TOPIC_SETTINGS[key], value)


def test_of_several_updates_all_or_none_are_carried_out() -> None:
    levels = {name: high for name, (_, high) in SUPPORTED.items()}
    assert updated(levels, [Update("transaction.version", 0, 3)])["transaction.version"] == 0
    with pytest.raises(InvalidUpdate, match="nope"):
        updated(levels, [Update("transaction.version", 0, 3), Update("nope", 1, 1)])
    assert levels["transaction.version"] == 2
