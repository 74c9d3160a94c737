"""Holds of a client that are over, and those that the garbage collector takes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from fencepost.client.net.turn import Turn
from fencepost.errors import UsageError


class Task:
    """One with a reference to what it holds, as the traceback of its exception has."""

    def __init__(self) -> None:
        self.holds: list[object] = []

    def get_name(self) -> str:
        return "one of many"


def collect_in_the_middle() -> None:
    """The collector comes at each of the next allocations of a call, and finds holds of calls that failed."""
    tasks = [Task()]
    turn = Turn(lambda: tasks[-1])
    for allocation in range(30):
        gc.collect()
        gc.disable()
        for _ in range(50):
            hold = turn.take("seek")
            tasks[-1].holds.append(hold)
            hold.ended = True
            del hold
            tasks[-1] = Task()
        gc.set_threshold(gc.get_count()[0] + allocation)
        gc.enable()
        turn.take("seek").ended = True


def test_holds_that_are_collected_while_they_are_looked_at() -> None:
    """In a process of its own, which used to end by a segmentation fault; freed memory is overwritten there."""
    code = "from tests.unit.client.net.test_turn import collect_in_the_middle as run; run()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_hold_that_is_over_is_forgotten_and_one_that_is_not_keeps_others_out() -> None:
    first, second = Task(), Task()
    now = [first]
    turn = Turn(lambda: now[0])
    for _ in range(10):
        turn.take("poll").ended = True
    assert len(turn._holds) == 1
    held = turn.take("poll")
    now[0] = second
    with pytest.raises(UsageError, match="another task is using this consumer: task 'one of many' is in poll"):
        turn.take("commit")
    del held
    turn.take("commit").ended = True
