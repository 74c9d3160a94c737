"""A data directory that is taken away under a running broker: told by name, and nothing is acknowledged after that."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fencepost
from fencepost.broker.disk.directory_checks import DirectoryGone, check_directory, lock_directory
from fencepost.errors import KafkaError
from tests.support.group_member import until


def removed(directory: Path) -> None:
    shutil.rmtree(directory)


def emptied(directory: Path) -> None:
    removed(directory)
    directory.mkdir()


def emptied_within(directory: Path) -> None:
    for entry in directory.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def moved(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))


def under_another(directory: Path) -> None:
    moved(directory)
    shutil.copytree(directory.with_name("elsewhere"), directory)


WAYS = (removed, emptied, emptied_within, moved, under_another)


@pytest.mark.parametrize("fsync", ["never", "commit"])
@pytest.mark.parametrize("take_away", WAYS)
def test_the_broker_ends_and_says_which_directory(
    tmp_path: Path, take_away: Callable[[Path], None], fsync: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "data"
    broker = fencepost.Broker(data_dir=str(directory), fsync=fsync).start()
    with caplog.at_level(logging.CRITICAL, "fencepost.broker"):
        take_away(directory)
        error = broker.wait_for_failure()
    assert isinstance(error, DirectoryGone)
    assert str(directory) in str(error)
    (reported,) = caplog.records
    assert str(directory) in reported.getMessage()
    with pytest.raises(DirectoryGone):
        broker.stop()


def test_what_waits_for_a_sync_is_not_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look that the broker takes now and then."""
    monkeypatch.setattr("fencepost.broker.server._LOOK_S", 3600)
    directory = tmp_path / "data"
    broker = fencepost.Broker(data_dir=str(directory), fsync="commit").start()
    with fencepost.Producer(broker.bootstrap_servers, delivery_timeout_ms=2000, linger_ms=0) as producer:
        assert producer.send("orders", b"1").result().offset == 0
        shutil.rmtree(directory)
        with pytest.raises(KafkaError):
            producer.send("orders", b"2").result()
    assert isinstance(broker.wait_for_failure(), DirectoryGone)
    with pytest.raises(DirectoryGone):
        broker.stop()


def test_the_command_ends_with_a_line_and_status_1(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    command = [sys.executable, "-m", "fencepost", "broker", "--listen", "127.0.0.1:0", "--data-dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert "listening on" in broker.stdout.readline()
        shutil.rmtree(directory)
        _, reported = broker.communicate(timeout=60)
    assert broker.returncode == 1
    assert reported.count(str(directory)) == 1
    assert "Traceback" not in reported


def test_a_directory_that_cannot_be_asked_for_is_not_taken_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meta.properties.copy").touch()  # of the two one is enough
    descriptor = lock_directory(str(tmp_path))
    try:
        check_directory(str(tmp_path), descriptor)
        monkeypatch.setattr(os, "stat", lambda path: (_ for _ in ()).throw(PermissionError(path)))
        check_directory(str(tmp_path), descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("within", [False, True])
def test_one_partition_that_is_taken_away_takes_no_more_records(
    tmp_path: Path, within: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files are open and would go on to take them; the others of the broker go on."""
    directory = tmp_path / "data"
    with (
        fencepost.Broker(data_dir=str(directory)) as broker,
        fencepost.Admin(broker.bootstrap_servers) as admin,
        fencepost.Producer(broker.bootstrap_servers, delivery_timeout_ms=1500, linger_ms=0) as producer,
    ):
        admin.create_topic("orders", 2, 1)
        for partition in (0, 1):
            assert producer.send("orders", b"1", partition=partition).result().offset == 0
        (emptied_within if within else removed)(directory / "orders-0")
        with caplog.at_level(logging.CRITICAL, "fencepost.broker"):
            until(lambda: any(record.levelno == logging.CRITICAL for record in caplog.records))
        (reported,) = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
        assert reported.startswith("orders-0/") and "was removed while the broker ran" in reported
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            producer.send("orders", b"2", partition=0).result()
        assert producer.send("orders", b"2", partition=1).result().offset == 1


def test_an_internal_partition_that_is_taken_away_ends_the_broker(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    broker = fencepost.Broker(data_dir=str(directory), fsync="never").start()
    with fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        (folder,) = directory.glob("__transaction_state-*")
        removed(folder)
        error = broker.wait_for_failure()
    assert isinstance(error, DirectoryGone)
    assert folder.name in str(error)
    with pytest.raises(DirectoryGone):
        broker.stop()
