"""Processes that take no processor time, as on a machine that stalls."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import until

__all__ = ["stand_still", "standing_still"]


def stand_still(pid: int) -> None:
    """Stop the process, and return when each of its threads is stopped: the signal takes effect a moment later."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: all(_is_stopped(task) for task in Path(f"/proc/{pid}/task").iterdir()))


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Stop the process within the block: what it is sent waits in its sockets."""
    stand_still(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _is_stopped(task: Path) -> bool:
    try:
        state = (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True  # the thread has ended
    return state in "TtZX"
