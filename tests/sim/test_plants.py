"""Known defects, planted: the simulator finds each in a few runs. `fencepost simulate --plants` lists all."""

from __future__ import annotations

import pytest

from fencepost.check.plants import PLANTS, planted
from fencepost.check.world import run_world

QUICKLY_FOUND = {
    "abort-marker-for-a-commit": "lost_write",
    "aborted-offsets-kept": "lost_offset",
    "aborted-ranges-hidden": "aborted_read",
    "commit-does-not-flush": "lost_write",
    "commit-marker-for-an-abort": "aborted_read",
    "completed-with-the-first-marker": "stuck",
    "enlisting-is-forgotten": "stuck",
    "every-sequence-accepted": "duplicate",
    "keep-aborts": "prepared_lost",
    "kept-is-always-committed": "aborted_read",
    "marker-lost": "lost_write",
    "pending-offsets-count": "lost_offset",
    "stable-offset-off-by-one": "copied_of_nothing",
    "timeout-commits": "aborted_read",
}
"""Name to a check that complains. Seeds are searched, because a change anywhere makes another run of each."""


@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_a_planted_defect_is_found(name: str) -> None:
    found: set[str] = set()
    with planted(name):
        for seed in range(1, 21):
            found |= {anomaly.check for anomaly in run_world(seed).anomalies}
            if QUICKLY_FOUND[name] in found:
                return
    pytest.fail(f"{name}: only {sorted(found)} complained")


def test_planted_defects_are_those_of_the_table() -> None:
    assert QUICKLY_FOUND.keys() <= PLANTS.keys()
