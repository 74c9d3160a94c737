"""Something else than a file in the place of each of the broker's files: the start ends, and names the place."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from fencepost.broker.disk.system_files import SystemFiles
from fencepost.broker.disk.two_copies import UnusableDirectory
from fencepost.protocol.codes import ErrorCode
from fencepost_lab.check.disk import MemoryDisk
from tests.support.broker_driver import BrokerDriver, batch, produce
from tests.unit.broker.coordinator.test_damaged_internal_topics import CONFIG, create, end, init, write


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.mkdir()


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        descriptor = os.open(path.parent, os.O_RDONLY)  # a socket's path has at most 107 bytes
        try:
            sock.bind(f"/proc/self/fd/{descriptor}/{path.name}")
        finally:
            os.close(descriptor)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _filled(directory: Path) -> list[str]:
    driver = BrokerDriver(CONFIG, cast(MemoryDisk, SystemFiles(str(directory), durable=False)))
    create(driver)
    assert driver.ask(produce("t", batch(b"a")), 9).partitions[0].error_code == ErrorCode.NONE
    _, *pair = init(driver, "x")
    write(driver, "x", (pair[0], pair[1]), b"b")
    assert end(driver, "x", (pair[0], pair[1]), True) == ErrorCode.NONE
    driver.core.close()
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def _start(directory: Path, outcome: list[Exception | None]) -> None:
    files = SystemFiles(str(directory), durable=False)
    try:
        BrokerDriver(CONFIG, cast(MemoryDisk, files))
        outcome.append(None)
    except Exception as error:  # noqa: BLE001 - the test judges it
        outcome.append(error)
    finally:
        files.close()


@pytest.mark.parametrize("put", [_fifo, _directory, _socket, _loop, _device])
def test_the_start_ends_and_names_it(
    put: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = _filled(tmp_path / "made")
    assert len(names) > 15
    problems, silent = [], set()
    for name in names:
        directory = tmp_path / "started"
        shutil.copytree(tmp_path / "made", directory)
        (directory / name).unlink()
        put(directory / name)
        caplog.clear()
        outcome: list[Exception | None] = []
        thread = threading.Thread(target=_start, args=(directory, outcome), daemon=True)
        thread.start()
        thread.join(60)
        if not outcome:
            problems.append(f"{name}: the start hangs")
        elif outcome[0] is not None and not (
            isinstance(outcome[0], OSError | UnusableDirectory) and Path(name).name in str(outcome[0])
        ):
            problems.append(f"{name}: {outcome[0]!r}")
        elif outcome[0] is None and put in (_fifo, _socket, _device) and f"{name}'" not in caplog.text:
            silent.add(Path(name).name)
        shutil.rmtree(directory)
    assert problems == []
    assert silent <= {".kafka_cleanshutdown", "leader-epoch-checkpoint"}  # whose contents the broker does not read
