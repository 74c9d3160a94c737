"""A stream from topic to topic, killed at chosen steps of the protocol and started again: every record once."""

from __future__ import annotations

import pytest

from tests.spark.copying import RECORDS, Copy

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


# Which step, when, at its how-many-eth time. A batch has one Claim, three BeginTask, one WriteDecision, and
# EndTransactions in Open (from the second batch on) and in Commit.
KILLS = [
    ("WriteDecision", "after", 2),
    ("WriteDecision", "before", 3),
    ("EndTransactions", "after", 1),
    ("EndTransactions", "before", 3),
    ("BeginTask", "after", 5),
    ("Claim", "after", 2),
    ("ReadDecisions", "after", 3),
    ("ListTransactions", "after", 2),  # of what the first batch's losers left
]


@pytest.mark.parametrize(("step", "when", "nth"), KILLS)
def test_killed_at_a_step_and_restarted(copy: Copy, step: str, when: str, nth: int) -> None:
    copy.produce(0, RECORDS)
    process = copy.run({"step": step, "when": when, "nth": nth, "mode": "all"})
    assert process.wait(600) == -9, copy.output.read_text()[-6000:]
    assert (copy.folder / "killed").exists()
    copy.produce(RECORDS, 100)
    # With other numbers of tasks and slots: the batch that is replayed is cut otherwise than it was before the kill.
    copy.run_to_the_end(tasks="5")
    copy.check(RECORDS + 100)


@pytest.mark.parametrize("copy", ["fencepost"], indirect=True)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_keeping_the_winners_at_the_strongest_level(copy: Copy, when: str) -> None:
    test_killed_at_a_step_and_restarted(copy, "KeepWinners", when, 2)


@pytest.mark.kafka
@pytest.mark.parametrize("copy", ["kafka without two-phase commit"], indirect=True)
@pytest.mark.parametrize(
    ("step", "when", "nth"),
    [("DescribeWinners", "after", 2), ("WriteDecision", "after", 2), ("EndTransactions", "before", 3)],
)
def test_killed_at_a_step_and_restarted_in_time(copy: Copy, step: str, when: str, nth: int) -> None:
    """Level C: whole, as long as the restart comes before the transactions time out."""
    test_killed_at_a_step_and_restarted(copy, step, when, nth)
