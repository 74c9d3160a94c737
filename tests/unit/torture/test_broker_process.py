"""A Kafka that is run by a command: started, killed, started again on its data."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import fencepost
from fencepost_lab.torture.broker_process import CommandBroker
from fencepost_lab.torture.child_process import StartupError, free_port


def is_running(broker: CommandBroker) -> bool:
    return broker.pid is not None


def test_a_command_is_killed_and_started_again_on_its_data(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    command = f"'{sys.executable}' -m fencepost broker --listen {address} --data-dir '{tmp_path}/data'"
    broker = CommandBroker(command, address, tmp_path / "log")
    broker.start()
    try:
        first = broker.pid
        with fencepost.Producer(address) as producer:
            producer.send("orders", b"book").result()
        broker.kill()
        killed = broker.pid
        broker.start()
        assert killed is None
        assert broker.pid not in (None, first)
        with fencepost.Consumer(address, auto_offset_reset="earliest") as consumer:
            consumer.assign([("orders", 0)])
            assert [record.value for record in consumer.poll(20_000)] == [b"book"]
    finally:
        broker.stop()
    assert not is_running(broker)


def test_a_command_that_ends_is_told_with_its_log(tmp_path: Path) -> None:
    broker = CommandBroker("no-such-kafka", f"127.0.0.1:{free_port()}", tmp_path / "log")
    with pytest.raises(StartupError, match=r"'no-such-kafka' does not listen on .*its log is"):
        broker.start()
    assert "no-such-kafka" in (tmp_path / "log").read_text()
