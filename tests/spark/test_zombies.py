"""A process of a killed driver goes on when another has long taken over: nothing changes, every record once."""

from __future__ import annotations

import time

import pytest

from tests.spark.copying import RECORDS, Copy

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("step", "nth"), [("WriteDecision", 2), ("EndTransactions", 3), ("ReadDecisions", 2), ("ListTransactions", 2)]
)
def test_a_zombie_that_goes_on_after_the_restart_changes_nothing(copy: Copy, step: str, nth: int) -> None:
    copy.produce(0, RECORDS)
    process = copy.run({"step": step, "when": "before", "nth": nth, "mode": "zombie"})
    assert process.wait(600) == -9, copy.output.read_text()[-6000:]
    copy.run_to_the_end()
    (copy.folder / "go").touch()
    until = time.monotonic() + 300
    while not (copy.folder / "zombie.done").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert (copy.folder / "zombie.done").exists(), "the zombie did not go on"
    copy.produce(RECORDS, 100)
    copy.run_to_the_end()
    copy.check(RECORDS + 100)


@pytest.mark.parametrize("copy", ["fencepost"], indirect=True)
def test_a_zombie_that_keeps_winners_after_the_restart_changes_nothing(copy: Copy) -> None:
    test_a_zombie_that_goes_on_after_the_restart_changes_nothing(copy, "KeepWinners", 2)
