"""Every setting that a broker of Apache Kafka 4.4 knows is honoured, passed over with a word, or refused with the
reason (the golden settings.tsv is asked of its jars); its `server.properties` can be used as it is, stock or full."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from fencepost.broker.embedded import Broker
from fencepost.broker.security.listeners import listeners_of
from fencepost.broker.settings.kafka_only import is_without_effect, refusal_reason
from fencepost.broker.settings.table import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    LISTENER_SETTINGS,
    TOPIC_SETTINGS,
    InvalidSetting,
    Setting,
)
from fencepost.broker.settings.values import BrokerConfig
from fencepost.cli.broker import command
from fencepost.properties import read_properties
from tests.golden.load import settings_of_kafka
from tests.support.raw_client import RawClient


def same(ours: str | None, kafka: str) -> bool:
    """A map in another order is the same."""
    return sorted((ours if ours is not None else "none").split(",")) == sorted(kafka.split(","))


STOCK = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_no_setting_of_kafkas_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    kinds = {"honoured": 0, "passed over": 0, "refused": 0}
    names = [setting.name for setting in settings_of_kafka("broker")]
    for name in names:
        if name in BROKER_SETTINGS or name in LISTENER_SETTINGS:
            kinds["honoured"] += 1
            continue
        caplog.clear()
        if is_without_effect(name, "17"):
            kinds["passed over"] += 1
            assert BrokerConfig({name: "17"}).given == {}
            assert f" {name} " in caplog.text
        else:
            kinds["refused"] += 1
            assert refusal_reason(name)
            with pytest.raises(InvalidSetting, match=re.escape(f"{name!r} cannot be honoured here")):
                BrokerConfig({name: "17"})
    assert sum(kinds.values()) == len(names) > 350
    assert all(count > 50 for count in kinds.values()), kinds


OTHER_DEFAULTS = {
    "queued.max.request.bytes": str(256 << 20),
    "controller.listener.names": None,  # Kafka: required
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "listeners": "",
    "sasl.enabled.mechanisms": "PLAIN",
    "transaction.two.phase.commit.enable": "true",
}
"""Defaults that differ from Kafka's; docs/differences-from-kafka.md gives the reasons."""


@pytest.mark.parametrize(("whose", "ours"), [("broker", BROKER_SETTINGS), ("topic", TOPIC_SETTINGS)])
def test_types_and_defaults_are_kafkas(whose: str, ours: Mapping[str, Setting]) -> None:
    shared = [setting for setting in settings_of_kafka(whose) if setting.name in ours]
    assert len(shared) > 30
    assert [(each.name, ours[each.name].kind.name) for each in shared] == [(each.name, each.kind) for each in shared]
    other = {each.name: ours[each.name].default for each in shared if not same(ours[each.name].default, each.default)}
    assert other == (OTHER_DEFAULTS if whose == "broker" else {})


def test_topics_and_groups_have_what_kafkas_have() -> None:
    assert TOPIC_SETTINGS.keys() == {each.name for each in settings_of_kafka("topic")}
    groups = {each.name for each in settings_of_kafka("group") if each.name.startswith("consumer.")}
    assert groups - GROUP_SETTINGS.keys() == set()


def test_a_broker_starts_with_a_file_that_names_every_setting(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    pairs = {
        each.name: each.default for each in settings_of_kafka("broker") if each.default not in ("none", "required")
    }
    pairs |= {"process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "CONTROLLER"}
    pairs["listeners"] = "PLAINTEXT://127.0.0.1:0"
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
    read = read_properties(file)
    assert read == pairs
    assert len(read) > 280
    assert command._data_directory(read, "") == "/tmp/kafka-logs"
    with Broker(read) as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("t", 1)
    passed_over = [key for key in read if key not in BROKER_SETTINGS]
    assert len(passed_over) > 150
    assert all(f" {key} " in caplog.text for key in passed_over)


def test_a_listener_with_another_mechanism_is_refused() -> None:
    config = BrokerConfig({"listeners": "SASL_PLAINTEXT://:9092", "sasl.enabled.mechanisms": "GSSAPI"})
    with pytest.raises(InvalidSetting, match="listener SASL_PLAINTEXT: GSSAPI is not served; these are: PLAIN, SCRAM"):
        listeners_of(config, "127.0.0.1", 1)


def test_nothing_that_is_honoured_is_passed_over() -> None:
    checked = [name for name in (*BROKER_SETTINGS, *LISTENER_SETTINGS) if not is_without_effect(name, "17")]
    assert checked == [*BROKER_SETTINGS, *LISTENER_SETTINGS]


@pytest.mark.parametrize(
    ("key", "harmless", "refused"),
    [
        ("remote.log.storage.system.enable", "false", "true"),
        ("group.coordinator.rebalance.protocols", "classic,consumer,streams", "classic"),
        ("ssl.keystore.password", "", "a secret"),
        ("ssl.trustmanager.algorithm", "PKIX", "SunX509"),
    ],
)
def test_a_value_that_asks_for_nothing_missing_is_taken(key: str, harmless: str, refused: str) -> None:
    assert BrokerConfig({key: harmless}).given == {}
    with pytest.raises(InvalidSetting, match="cannot be honoured here"):
        BrokerConfig({key: refused})


def test_the_stock_server_properties_is_used_as_it_is(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.WARNING)
    (tmp_path / "server.properties").write_text(STOCK)
    pairs = read_properties(tmp_path / "server.properties")
    assert command._data_directory(pairs, "") == "/tmp/kraft-combined-logs"
    config = BrokerConfig(pairs)
    (listener,) = listeners_of(config, "127.0.0.1", 1)
    assert (listener.name, listener.host, listener.port) == ("PLAINTEXT", "", 9092)
    assert listener.advertised == ("localhost", 9092)
    assert config.number("log.segment.bytes") == 1_073_741_824
    reported = caplog.text
    assert "listener CONTROLLER" in reported
    ignored = [key for key in pairs if key not in BROKER_SETTINGS]
    assert len(ignored) > 10
    assert all(f" {key} " in reported for key in ignored)


def test_several_data_directories_are_refused_unless_one_is_given() -> None:
    with pytest.raises(InvalidSetting, match="has one"):
        command._data_directory({"log.dirs": "/a,/b"}, "")
    assert command._data_directory({"log.dirs": "/a,/b"}, "/c") == "/c"
    assert command._data_directory({"log.dir": "/a"}, "") == "/a"
    assert command._data_directory({"log.dirs": ""}, "/c") == "/c"
    assert command._data_directory({}, "") == ""


def test_listeners_for_the_controller_alone_are_refused() -> None:
    config = BrokerConfig({"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"})
    with pytest.raises(InvalidSetting, match="none is for clients"):
        listeners_of(config, "127.0.0.1", 1)
