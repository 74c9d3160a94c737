"""Every setting that a broker of Apache Kafka 4.3.1 knows is honoured, passed over with a word, or refused with the
reason; its stock `server.properties` can be used as it is."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from fencepost.broker.security.listeners import listeners_of
from fencepost.broker.settings.kafka_only import is_without_effect, why_refused
from fencepost.broker.settings.table import BROKER_SETTINGS, LISTENER_SETTINGS, InvalidSetting
from fencepost.broker.settings.values import BrokerConfig
from fencepost.cli import broker as command
from fencepost.cli.properties import read_properties

NAMES = (Path(__file__).parents[3] / "golden" / "broker_settings.txt").read_text().split()

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
    for name in NAMES:
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
            assert why_refused(name)
            with pytest.raises(InvalidSetting, match=re.escape(f"{name!r} cannot be honoured here")):
                BrokerConfig({name: "17"})
    assert sum(kinds.values()) == len(NAMES) > 330
    assert all(count > 50 for count in kinds.values()), kinds


def test_nothing_that_is_honoured_is_passed_over() -> None:
    checked = [name for name in (*BROKER_SETTINGS, *LISTENER_SETTINGS) if not is_without_effect(name, "17")]
    assert checked == [*BROKER_SETTINGS, *LISTENER_SETTINGS]


@pytest.mark.parametrize(
    ("key", "harmless", "refused"),
    [
        ("remote.log.storage.system.enable", "false", "true"),
        ("group.coordinator.rebalance.protocols", "classic,consumer,streams", "classic"),
        ("queued.max.request.bytes", "-1", "1000000"),
        ("security.inter.broker.protocol", "PLAINTEXT", "SSL"),
        ("ssl.client.auth", "none", "required"),
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
    told = caplog.text
    assert "listener CONTROLLER" in told
    ignored = [key for key in pairs if key not in BROKER_SETTINGS]
    assert len(ignored) > 10
    assert all(f" {key} " in told for key in ignored)


def test_several_data_directories_are_refused_unless_one_is_given() -> None:
    with pytest.raises(InvalidSetting, match="has one"):
        command._data_directory({"log.dirs": "/a,/b"}, "")
    assert command._data_directory({"log.dirs": "/a,/b"}, "/c") == "/c"
    assert command._data_directory({"log.dir": "/a"}, "") == "/a"
    assert command._data_directory({}, "") == ""


def test_listeners_for_the_controller_alone_are_refused() -> None:
    config = BrokerConfig({"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"})
    with pytest.raises(InvalidSetting, match="none is for clients"):
        listeners_of(config, "127.0.0.1", 1)
