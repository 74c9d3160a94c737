"""The threads that wait for the disk, also when the program ends and Python starts none any more."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fencepost.broker.disk.files import File
from fencepost.broker.disk.sync_threads import SyncThreads
from fencepost_lab.check.disk import MemoryDisk

AT_THE_END = "cannot schedule new futures after interpreter shutdown"


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let no pool take work any more; the text is that of its refusal."""

    def refuse(text: str) -> None:
        def submit(*_: Any, **__: Any) -> Any:
            raise RuntimeError(text)

        monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)

    return refuse


def files() -> list[File]:
    disk = MemoryDisk()
    disk.makedirs("t-0")
    opened_files = [disk.open(f"t-0/{number}") for number in range(10)]
    disk.fail_next_sync(OSError(errno.EIO, "input/output error"))
    return list(opened_files)


def test_at_the_programs_end_everything_is_done_at_once(refusing: Callable[[str], None]) -> None:
    threads = SyncThreads()
    refusing(AT_THE_END)
    done: list[str] = []

    def failing() -> None:
        raise OSError(errno.ENOSPC, "no space left")

    failed = asyncio.run(threads.sync(files()))
    assert [error.errno for _, error in failed] == [errno.EIO]
    assert asyncio.run(threads.write(lambda: done.append("step"))) is None
    error = asyncio.run(threads.write(failing))
    assert isinstance(error, OSError) and error.errno == errno.ENOSPC
    closed = threads.do_all([lambda: done.append("one"), failing, lambda: done.append("two")])
    assert [None if each is None else each.errno for each in closed] == [None, errno.ENOSPC, None]
    assert done == ["step", "one", "two"]


def test_without_memory_for_a_thread_nothing_is_done(refusing: Callable[[str], None]) -> None:
    threads = SyncThreads()
    refusing("can't start new thread")
    with pytest.raises(RuntimeError, match="can't start"):
        asyncio.run(threads.sync(files()))
