"""Known defects, planted: the simulator finds them again. `fencepost simulate --plants` lists all."""

from __future__ import annotations

import pytest

from fencepost_lab.check.options import Profile
from fencepost_lab.check.plants import PLANTS
from fencepost_lab.check.simulations import SIMULATIONS
from tests.support.plants_table import DOCUMENT, Found, find, rows_of

QUICKLY_FOUND = {
    "abort-marker-for-a-commit": ("lost_write", 159),
    "aborted-offsets-kept": ("copied_never", 64),
    "aborted-ranges-hidden": ("aborted_read", 159),
    "answers-before-the-sync": ("lost_write", 9),
    "commit-does-not-flush": ("lost_write", 159),
    "commit-marker-for-an-abort": ("aborted_read", 159),
    "completed-with-the-first-marker": ("stuck", 159),
    "enlisting-is-forgotten": ("stuck", 159),
    "high-watermark-before-the-sync": ("divergence", 34),
    "marker-lost": ("stuck", 159),
    "pending-offsets-count": ("copied_never", 64),
    "crc-not-checked": ("untold_loss", 159),
    "coordinators-counted-by-the-settings": ("stuck", 159),
    "lost-offsets-given-out-again": ("untold_loss", 89),
    "readers-do-not-wait-for-markers": ("commit_not_seen", 1),
    "producer-state-lost-at-the-start": ("duplicate", 9),
    "sequence-window-of-none": ("duplicate", 34),
    "start-aborts-what-is-open": ("fenced_by_nobody", 10),
    "stable-offset-off-by-one": ("copied_of_nothing", 134),
    "timeout-commits": ("copied_never", 4),
}
"""Name to a check that complains, and a seed that shows it in a short run. A change anywhere makes another run of each:
then it is looked for in the seeds behind."""


@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_a_planted_defect_is_found(name: str) -> None:
    check, first = QUICKLY_FOUND[name]
    assert find(PLANTS[name], range(first, first + 20), check) is not None


def test_the_runs_that_find_a_defect_are_counted() -> None:
    plant = PLANTS["commit-marker-for-an-abort"]
    found = find(plant, range(159, 179), "aborted_read")
    assert isinstance(found, Found)
    assert found.runs >= 1
    assert "aborted_read" in found.checks
    assert find(plant, range(159, 160), "a check that is not there") is None


@pytest.mark.parametrize("name", PLANTS)
def test_what_a_plant_wants_to_be_drawn_can_be(name: str) -> None:
    plant = PLANTS[name]
    (simulation,) = (candidate for candidate in SIMULATIONS if candidate.name == plant.world)
    simulation.changed(simulation.draw(1, Profile.SWARM), plant.options)  # raises for what is no option


def test_every_planted_defect_is_in_the_documentation() -> None:
    text = DOCUMENT.read_text()
    assert rows_of(text)
    assert rows_of(text).keys() <= PLANTS.keys()
    assert [name for name in PLANTS if f"`{name}`" not in text] == []
