"""Values that Apache Kafka 4.4 refuses (asked of its KafkaConfig and GroupConfig)."""

from __future__ import annotations

from functools import partial

import pytest

from fencepost.broker.settings.setting import InvalidSetting, Kind
from fencepost.broker.settings.table import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from fencepost.broker.settings.values import BrokerConfig, check_group_config, check_topic_config

NUMBERS = (Kind.SHORT, Kind.INT, Kind.LONG)


def test_a_number_of_python_is_none_of_kafkas() -> None:
    checked, check_group = 0, partial(check_group_config, broker=BrokerConfig())
    for key, setting in BROKER_SETTINGS.items():
        if setting.kind in NUMBERS:
            with pytest.raises(InvalidSetting, match=f"Not a number of type {setting.kind.name}"):
                BrokerConfig({key: "1_000"})
            checked += 1
    for key, setting in {**TOPIC_SETTINGS, **GROUP_SETTINGS}.items():
        if setting.kind in NUMBERS:
            with pytest.raises(InvalidSetting, match=f"Not a number of type {setting.kind.name}"):
                (check_topic_config if key in TOPIC_SETTINGS else check_group)({key: "1_000"})
            checked += 1
    assert checked > 100


@pytest.mark.parametrize("value", ["nan", "NaN", "-nan", "inf", "1_0.5"])
def test_a_ratio_is_a_number(value: str) -> None:
    with pytest.raises(InvalidSetting, match="cleanable"):
        BrokerConfig({"log.cleaner.min.cleanable.ratio": value})
    with pytest.raises(InvalidSetting, match="cleanable"):
        check_topic_config({"min.cleanable.dirty.ratio": value})


@pytest.mark.parametrize("key", ["log.retention.hours", "log.retention.minutes", "log.retention.ms"])
def test_a_retention_of_nought_would_delete_everything(key: str) -> None:
    with pytest.raises(InvalidSetting, match=rf"{key}: Value must be between 1 and \d+ or equal to -1"):
        BrokerConfig({key: "0"})
    assert BrokerConfig({key: "-1"}).number(key) == -1
    assert check_topic_config({"retention.ms": "0"}) == {"retention.ms": "0"}  # Kafka allows it for one topic


@pytest.mark.parametrize("value", [",", "compact,", ",compact", "compact,,delete", " , "])
def test_an_empty_element_of_a_list(value: str) -> None:
    with pytest.raises(InvalidSetting, match="values must not be empty"):
        BrokerConfig({"log.cleanup.policy": value})
    with pytest.raises(InvalidSetting, match="values must not be empty"):
        check_topic_config({"cleanup.policy": value})


@pytest.mark.parametrize("protocol", ["consumer", "share", "streams"])
@pytest.mark.parametrize("session", ["5000", "4999", "1"])
def test_a_session_shorter_than_the_heartbeats_would_end_each_member(protocol: str, session: str) -> None:
    heartbeat = f"group.{protocol}.heartbeat.interval.ms"
    with pytest.raises(InvalidSetting, match=f"{heartbeat} must be less than group.{protocol}.session.timeout.ms"):
        BrokerConfig({f"group.{protocol}.session.timeout.ms": session})
    with pytest.raises(InvalidSetting, match=f"{heartbeat} must be less than"):
        BrokerConfig({heartbeat: "45000"})
    broker = BrokerConfig({heartbeat: "10"})
    with pytest.raises(
        InvalidSetting,
        match=f"{protocol}.session.timeout.ms must be greater than {protocol}.heartbeat.interval.ms",
    ):
        check_group_config({f"{protocol}.session.timeout.ms": "10"}, broker)
    assert check_group_config({f"{protocol}.session.timeout.ms": "11"}, broker)


@pytest.mark.parametrize("value", ["a\nfencepost.files=1", "a\rb", "a\0b", "a\tb"])
def test_a_cluster_id_is_on_one_line(value: str) -> None:
    """meta.properties would have another id, or other lines, at the next start."""
    with pytest.raises(InvalidSetting, match=r"cluster\.id: Value must be printable text"):
        BrokerConfig({"cluster.id": value})
    assert BrokerConfig({"cluster.id": "MkU3OEVBNTcwNTJENDM2Qk"}).text("cluster.id")
