"""The two disks: the real one keeps few descriptors and tells of failures; the one in memory forgets as a disk may."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.broker.disk.files import Files
from fencepost.broker.disk.system_files import SystemFiles
from fencepost.broker.log import Appended, LogConfig, PartitionLog
from fencepost_lab.check.disk import MemoryDisk, PowerCut
from tests.support.batches import batch

Maker = Callable[[Path], Files]


def system(path: Path) -> Files:
    return SystemFiles(str(path))


def memory(_: Path) -> Files:
    return MemoryDisk()


@pytest.mark.parametrize("make", [system, memory])
def test_both_disks_do_the_same(make: Maker, tmp_path: Path) -> None:
    files = make(tmp_path)
    files.makedirs("a/b")
    file = files.open("a/b/x")
    file.append(b"one", bytearray(b"two"), memoryview(b"three"))
    file.append()
    file.write_at(3, b"TWO")
    assert file.size() == 11
    assert file.read(2, 5) == b"eTWOt"
    assert file.read(9, 100) == b"ee"
    assert file.read(11, 1) == b""
    file.truncate(4)
    file.append(b"!")
    file.sync()
    assert files.read_bytes("a/b/x") == b"oneT!"
    assert files.open("a/b/x").size() == 5
    files.write_atomic("a/y", b"old")
    files.write_atomic("a/y", b"new")
    assert files.read_bytes("a/y") == b"new"
    assert files.listdir("a") == ["b", "y"]
    assert files.listdir("nowhere") == []
    files.rename("a/b", "a/c")
    assert (files.exists("a/b/x"), files.exists("a/c/x"), files.exists("a/c")) == (False, True, True)
    files.remove("a/c/x")
    files.remove("a/c/x")
    assert files.listdir("a/c") == []
    files.remove_tree("a")
    assert not files.exists("a")
    with pytest.raises(FileNotFoundError):
        files.open("a/z")
    with pytest.raises(FileNotFoundError):
        files.read_bytes("a/z")


def test_descriptors_are_bounded_and_come_back(tmp_path: Path) -> None:
    files = SystemFiles(str(tmp_path), max_open=8)
    config = LogConfig(fsync="never", segment_bytes=300)
    logs = [PartitionLog.open(files, f"t-{n}", config, 0) for n in range(30)]
    for turn in range(10):
        for log in logs:
            answer = log.append(batch(b"x" * 100), 0)
            assert isinstance(answer, Appended) and answer.base_offset == turn
        assert files.open_count <= 8
    held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd.isdigit() and _linked(fd)]
    assert sum(name.startswith(str(tmp_path)) for name in held) <= 8
    for log in logs:
        assert sum(len(log.read(o, 1).records) for o in range(10)) == log.size_bytes
    for log in logs:
        log.close()
    assert files.open_count == 0


def _linked(fd: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{fd}")


def test_syncing_in_another_thread_while_descriptors_come_and_go(tmp_path: Path) -> None:
    files = SystemFiles(str(tmp_path), max_open=2)
    opened = [files.open(f"f{n}") for n in range(6)]
    errors: list[OSError] = []
    stop = threading.Event()

    def syncing() -> None:
        while not stop.is_set():
            try:
                for file in opened:
                    file.sync()
            except OSError as error:
                errors.append(error)
                return

    thread = threading.Thread(target=syncing)
    thread.start()
    for _ in range(300):
        for number, file in enumerate(opened):
            file.append(b"%d" % number)
    stop.set()
    thread.join()
    assert errors == []
    assert [file.read(0, 1000) for file in opened] == [b"%d" % n * 300 for n in range(6)]


def test_a_write_that_fails_leaves_the_size(tmp_path: Path) -> None:
    file = SystemFiles(str(tmp_path)).open("x")
    file.append(b"kept")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            file.append(b"0123456789")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert file.size() == 4
    file.append(b"!")
    file.truncate(file.size())
    assert (tmp_path / "x").read_bytes() == b"kept!"


def test_the_memory_disk_keeps_what_was_synced_and_may_lose_the_rest() -> None:
    outcomes = set()
    for seed in range(200):
        disk = MemoryDisk()
        file = disk.open("x")
        file.append(b"s" * 600)
        file.sync()
        file.append(b"u" * 2000)
        disk.open("y").append(b"unnamed")
        disk.crash(seed)
        data = disk.read_bytes("x")
        assert data[:600] == b"s" * 600
        assert set(data[600:]) <= {ord("u"), 0}
        outcomes.add((len(data), 0 in data, disk.exists("y")))
        with pytest.raises(OSError, match="before the crash"):
            file.read(0, 1)
    assert {length for length, _, _ in outcomes} >= {600, 2600}
    assert any(holes for _, holes, _ in outcomes)
    assert {named for _, _, named in outcomes} == {True, False}


def test_the_memory_disk_forgets_what_a_failed_sync_was_to_keep() -> None:
    disk = MemoryDisk()
    file = disk.open("x")
    file.sync()
    file.append(b"lost")
    disk.fail_next_sync()
    with pytest.raises(OSError, match="failed to sync"):
        file.sync()
    file.sync()
    assert file.read(0, 10) == b"lost"
    disk.crash(1)
    assert disk.read_bytes("x") == b""


def test_the_memory_disk_stops_where_it_is_told() -> None:
    disk = MemoryDisk()
    file = disk.open("x")
    disk.power_cut_after(2)
    file.append(b"1")
    file.append(b"2")
    for _ in range(2):
        with pytest.raises(PowerCut):
            file.append(b"3")
    with pytest.raises(PowerCut):
        file.sync()
    disk.crash(0)
    assert b"123".startswith(disk.read_bytes("x")) if disk.exists("x") else True


def without_a_directory_sync(files: Files, patches: pytest.MonkeyPatch) -> None:
    """Let every sync of a directory fail."""

    def refuse(path: str) -> None:
        raise OSError(errno.EIO, "the directory cannot be synced", path)

    if isinstance(files, MemoryDisk):
        patches.setattr(files, "sync_directory", refuse)
        return
    fsync = os.fsync

    def refuse_directories(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            refuse("")
        fsync(descriptor)

    patches.setattr(os, "fsync", refuse_directories)


@pytest.mark.parametrize("make", [system, memory])
def test_a_replacement_whose_name_cannot_be_synced_is_undone(
    make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = make(tmp_path)
    files.write_atomic("old", b"1")
    without_a_directory_sync(files, monkeypatch)
    with pytest.raises(OSError, match="sync"):
        files.write_atomic("old", b"22")
    assert files.read_bytes("old") == b"1"
    with pytest.raises(OSError, match="sync"):
        files.write_atomic("new", b"22")
    assert not files.exists("new")
    assert files.listdir("") == ["old"]


def test_a_replacement_without_a_descriptor_for_the_directory_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SystemFiles(str(tmp_path))
    files.write_atomic("x", b"1")
    open_ = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if os.path.isdir(path):
            raise OSError(errno.EMFILE, "too many open files")
        return open_(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="too many"):
        files.write_atomic("x", b"22")
    assert files.read_bytes("x") == b"1"
    assert files.listdir("") == ["x"]


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.ELOOP])
def test_a_file_that_cannot_be_looked_at_is_not_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    files = SystemFiles(str(tmp_path))
    assert not files.exists("x") and not files.exists("x/y")
    files.write_atomic("x", b"1")
    assert files.exists("x") and not files.exists("x/y")

    def refuse(path: str) -> os.stat_result:
        raise OSError(code, os.strerror(code), path)

    with monkeypatch.context() as patches:
        patches.setattr(os, "stat", refuse)
        with pytest.raises(OSError, match="x"):
            files.exists("x")


def test_a_removed_file_is_not_created_again_by_its_reader(tmp_path: Path) -> None:
    files = SystemFiles(str(tmp_path), max_open=1)
    file = files.open("x")
    file.append(b"1")
    files.rename("x", "y")
    file.release()
    with pytest.raises(FileNotFoundError):
        file.read(0, 1)
    assert files.listdir("") == ["y"]
