"""Known defects, planted: the simulator finds them again. `fencepost simulate --plants` lists all."""

from __future__ import annotations

import pytest

from fencepost.check.options import Profile
from fencepost.check.plants import PLANTS
from fencepost.check.simulations import SIMULATIONS
from tests.support.plants_table import DOCUMENT, Found, find, rows_of

QUICKLY_FOUND = {
    "abort-marker-for-a-commit": "lost_write",
    "aborted-offsets-kept": "copied_never",
    "aborted-ranges-hidden": "aborted_read",
    "answers-before-the-sync": "lost_write",
    "commit-does-not-flush": "lost_write",
    "commit-marker-for-an-abort": "aborted_read",
    "completed-with-the-first-marker": "stuck",
    "enlisting-is-forgotten": "stuck",
    "high-watermark-before-the-sync": "divergence",
    "marker-lost": "stuck",
    "pending-offsets-count": "copied_never",
    "crc-not-checked": "untold_loss",
    "coordinators-counted-by-the-settings": "stuck",
    "lost-offsets-given-out-again": "untold_loss",
    "producer-state-lost-at-the-start": "duplicate",
    "sequence-window-of-none": "duplicate",
    "start-aborts-what-is-open": "fenced_by_nobody",
    "stable-offset-off-by-one": "copied_of_nothing",
    "timeout-commits": "copied_never",
}
"""Name to a check that complains. Seeds are searched, because a change anywhere makes another run of each."""


@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_a_planted_defect_is_found(name: str) -> None:
    assert find(PLANTS[name], range(1, 21), QUICKLY_FOUND[name]) is not None


def test_the_runs_that_find_a_defect_are_counted() -> None:
    plant = PLANTS["commit-marker-for-an-abort"]
    found = find(plant, range(1, 21), "aborted_read")
    assert isinstance(found, Found)
    assert found.runs >= 1
    assert "aborted_read" in found.checks
    assert find(plant, range(1, 2), "a check that is not there") is None


@pytest.mark.parametrize("name", PLANTS)
def test_what_a_plant_wants_to_be_drawn_can_be(name: str) -> None:
    plant = PLANTS[name]
    (simulation,) = (one for one in SIMULATIONS if one.name == plant.world)
    simulation.changed(simulation.draw(1, Profile.SWARM), plant.options)  # raises for what is no option


def test_every_planted_defect_is_in_the_documentation() -> None:
    text = DOCUMENT.read_text()
    assert rows_of(text)
    assert rows_of(text).keys() <= PLANTS.keys()
    assert [name for name in PLANTS if f"`{name}`" not in text] == []
