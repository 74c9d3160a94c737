"""Several tasks that share a consumer, and a producer: what is judged of them, and that the judge sees mistakes."""

from __future__ import annotations

import gc
import warnings
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.client.types import TopicPartition
from fencepost_lab.check.actors.crowd import (
    ReadersLife,
    ReportedPosition,
    SendersLife,
    judge_readers,
    judge_senders,
    run_all,
)
from fencepost_lab.check.history import RecordRead
from fencepost_lab.check.options import Profile, SimulationOptions
from fencepost_lab.check.plants import PLANTS
from fencepost_lab.check.process import Process
from fencepost_lab.check.world import run_world
from tests.support.plants_table import find

PARTITION = TopicPartition("t", 0)
LOG = [RecordRead("judge", "t", 0, offset, f"v{offset}") for offset in (0, 1, 3, 4)]


def story(*offsets: int, complete: bool = False) -> ReadersLife:
    life = ReadersLife("r", complete=complete)
    life.given[PARTITION] = [(offset, f"v{offset}") for offset in offsets]
    return life


@pytest.mark.parametrize(
    ("life", "detail"),
    [
        (story(0, 1, 3), None),
        (story(0, 1, 3, 4, complete=True), None),
        (story(0, 1, 3, complete=True), "never given out: [4]"),
        (story(0, 3), "never given out: [1]"),
        (story(0, 1, 1), "given out twice"),
        (story(1, 0), "given out twice, or out of order"),
        (story(0, 1, 2), "not in the log"),
    ],
)
def test_what_readers_were_given_is_compared_with_the_log(life: ReadersLife, detail: str | None) -> None:
    found = judge_readers([life], LOG, compacted=False)
    assert [anomaly.check for anomaly in found] == ([] if detail is None else ["given_once"])
    assert detail is None or detail in found[0].detail


def test_a_position_may_be_behind_gaps_and_not_behind_records() -> None:
    life = story(0, 1)
    life.reports = [ReportedPosition(PARTITION, 1, 1, "positions()"), ReportedPosition(PARTITION, 3, 2, "positions()")]
    assert judge_readers([life], LOG, compacted=False) == []
    life.reports.append(ReportedPosition(PARTITION, 4, 2, "committed()"))
    (found,) = judge_readers([life], LOG, compacted=False)
    assert found.check == "position_ahead"
    assert "committed() returned t-0@4 before [3] were handed out" in found.detail


def test_a_sender_that_was_told_wrongly_is_found() -> None:
    life = SendersLife("n", refused=["v1", "elsewhere"])
    (found,) = judge_senders([life], LOG)
    assert (found.check, "v1" in found.detail) == ("refused_and_there", True)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_crowd_is_given_everything_once(seed: int) -> None:
    options = SimulationOptions.draw(seed, Profile.SWARM).changed(["crowds=1", "storm_ms=500", "cancel_chance=0.15"])
    report = run_world(seed, options)
    assert report.anomalies == []
    assert report.happened["calls refused beside others"] > 10
    assert report.happened["calls cancelled"] > 5


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("cancelled-poll-undoes-another", "given_once"),
        ("polls-of-several-tasks-at-once", "given_once"),
        ("a-woken-poll-keeps-its-turn", "refused_for_nothing"),
        ("undelivered-records-count-as-read", "position_ahead"),
        ("flush-ends-with-the-first-answer", "fate_unknown"),
    ],
)
def test_a_mistake_that_a_crowd_meets_is_found(name: str, check: str) -> None:
    assert find(PLANTS[name], range(1, 13), check) is not None


def test_a_process_that_ends_at_once_leaves_no_coroutine_behind() -> None:
    """A coroutine that nobody awaits is a warning on standard error of `fencepost simulate`."""
    spawned: list[Any] = []
    process = cast(Process, SimpleNamespace(clock=SimpleNamespace(spawn=spawned.append)))

    async def work() -> None:
        """Never begun."""

    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        waiting = run_all(process, [work, work])
        waiting.send(None)
        waiting.close()
        assert len(spawned) == 2
        while spawned:
            spawned.pop().close()
        gc.collect()
    assert [str(warning.message) for warning in reported] == []
