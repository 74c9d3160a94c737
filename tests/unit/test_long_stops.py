"""The judge of `python -m tests.support.long_stops`: each contradiction and each difference is a finding."""

from __future__ import annotations

from collections import Counter

import pytest

from fencepost_lab.check.history import Outcome
from tests.support.long_stop_clients import POLLED, Worker
from tests.support.long_stops import MEMBERS, Seen, findings, lost_and_doubled


def seen(name: str = "fencepost") -> Seen:
    """Return a round in which each outcome is true and a group was given every committed record."""
    outcomes = {"1": Outcome.COMMITTED, "2": Outcome.ABORTED, "3": Outcome.UNKNOWN, "4": Outcome.UNKNOWN}
    found = Seen(name, [Worker("w", outcomes)], Counter(f"w-{number}-{index}" for number in "13" for index in range(3)))
    found.delivered["g"] = Counter(found.committed)
    found.back = {"g": 1.0, "w": 1.0}
    return found


def lost(round_: Seen) -> None:
    for index in range(3):
        del round_.committed[f"w-1-{index}"], round_.delivered["g"][f"w-1-{index}"]


def torn(round_: Seen) -> None:
    del round_.committed["w-3-1"], round_.delivered["g"]["w-3-1"]


def came_back(round_: Seen) -> None:
    for index in range(3):
        round_.committed[f"w-2-{index}"] = round_.delivered["g"][f"w-2-{index}"] = 1


def doubled(round_: Seen) -> None:
    round_.committed["w-1-0"] = 2


def not_delivered(round_: Seen) -> None:
    del round_.delivered["g"]["w-1-0"]


def delivered_uncommitted(round_: Seen) -> None:
    round_.delivered["g"]["w-2-0"] = 1


def broken(round_: Seen) -> None:
    round_.workers[0].broken = RuntimeError("ended")


def test_a_round_without_contradictions_has_no_finding() -> None:
    assert list(lost_and_doubled(seen())) == []
    assert findings([seen()], [seen("kafka")]) == []


@pytest.mark.parametrize(
    "change",
    [lost, torn, came_back, doubled, not_delivered, delivered_uncommitted, broken],
    ids=lambda defect: defect.__name__,
)
def test_a_contradiction_is_a_finding(change: object) -> None:
    round_ = seen()
    change(round_)  # type: ignore[operator]
    assert len(list(lost_and_doubled(round_))) == 1
    assert findings([round_], [seen("kafka")]) == list(lost_and_doubled(round_))


def test_differences_are_findings() -> None:
    ours = seen()
    ours.workers[0].errors["commit: OUT_OF_ORDER_SEQUENCE_NUMBER"] = 1
    ours.workers[0].errors["commit: _TIMED_OUT"] = 1
    ours.back["g"] = 100.0
    ours.delivered["g"] = Counter({f"{name}": 2 for name in range(MEMBERS * POLLED + 1)})
    ours.committed = Counter(dict.fromkeys(ours.delivered["g"], 1))
    ours.workers[0].outcomes.clear()
    reported = findings([ours], [seen("kafka")])
    assert [text.partition(" ")[0] for text in reported] == ["w:", "g", "g"]
    assert "OUT_OF_ORDER" in reported[0] and "is back after" in reported[1] and "given 201 records again" in reported[2]
