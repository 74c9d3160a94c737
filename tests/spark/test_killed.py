"""A stream from topic to topic, killed at chosen steps of the protocol and started again: every record once.

Also when a process of the killed driver goes on after another has long taken over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.spark.copying import RECORDS, Copy, SharedDriver, make_copy
from tests.spark.doomed import Kill, Killed

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]


# Which step, when, at its how-many-eth time. A batch has one Claim, three BeginTask, one WriteDecision, and
# EndTransactions in Open (from the second batch on) and in Commit.
KILLS = [
    Kill("WriteDecision", "after", 2),
    Kill("WriteDecision", "before", 3),
    Kill("EndTransactions", "after", 1),
    Kill("EndTransactions", "before", 3),
    Kill("BeginTask", "after", 5),
    Kill("Claim", "after", 2),
    Kill("ReadDecisions", "after", 3),
    Kill("ListTransactions", "after", 2),  # of what the first batch's losers left
]
ZOMBIES = [
    Kill("WriteDecision", "before", 2, zombie=True),
    Kill("EndTransactions", "before", 3, zombie=True),
    Kill("ReadDecisions", "before", 2, zombie=True),
    Kill("ListTransactions", "before", 2, zombie=True),
]
# Level A keeps its winners. Below B all is whole as long as the restart comes before the transactions time out: these
# arms come first, and are killed last.
OF_AN_ARM = {
    "kafka 2.8": [
        Kill("RegisterTask", "after", 5),
        Kill("AskWinners", "after", 2),
        Kill("WriteDecision", "after", 2),
        Kill("EndTransactions", "before", 3),
        Kill("AskWinners", "before", 2, zombie=True),
        Kill("WriteDecision", "before", 2, zombie=True),
    ],
    "kafka 3.3": [
        Kill("BeginTask", "after", 5),
        Kill("WriteDecision", "after", 2),
        Kill("EndTransactions", "before", 3),
        Kill("WriteDecision", "before", 2, zombie=True),
    ],
    "kafka without two-phase commit": [
        Kill("DescribeWinners", "after", 2),
        Kill("WriteDecision", "after", 2),
        Kill("EndTransactions", "before", 3),
    ],
    "fencepost of transaction.version 0": [
        Kill("BeginTask", "after", 5),
        Kill("WriteDecision", "after", 2),
        Kill("Claim", "after", 2),
        Kill("EndTransactions", "before", 3),
        Kill("WriteDecision", "before", 2, zombie=True),
    ],
    "fencepost": [
        *KILLS,
        Kill("KeepWinners", "before", 2),
        Kill("KeepWinners", "after", 2),
        *ZOMBIES,
        Kill("KeepWinners", "before", 2, zombie=True),
    ],
    "fencepost in Arrow": [
        Kill("BeginTask", "after", 5),
        Kill("KeepWinners", "after", 2),
        Kill("WriteDecision", "before", 3),
        Kill("EndTransactions", "after", 1),
    ],
    "kafka": [*KILLS, *ZOMBIES],
}


def cases(*, zombie: bool) -> list[object]:
    return [
        pytest.param(arm, kill, id=f"{arm}-{kill}", marks=[pytest.mark.kafka] if "kafka" in arm else [])
        for arm, kills in OF_AN_ARM.items()
        for kill in kills
        if kill.zombie is zombie
    ]


@pytest.fixture(scope="module")
def killed(
    request: pytest.FixtureRequest, shared_driver: SharedDriver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Killed]:
    """Only what this run of pytest asks for."""

    def make(arm: str) -> Copy:
        return make_copy(request, arm, tmp_path_factory.mktemp("copy"), shared_driver)

    asked = {item.name.partition("[")[2].removesuffix("]") for item in request.session.items}
    keys = [(arm, kill) for arm, kills in OF_AN_ARM.items() for kill in kills if f"{arm}-{kill}" in asked]
    made = Killed(reversed(keys), make, tmp_path_factory.mktemp("doomed"))
    yield made
    made.close()


@pytest.mark.parametrize(("arm", "kill"), cases(zombie=True))
def test_a_zombie_that_goes_on_after_the_restart_changes_nothing(killed: Killed, arm: str, kill: Kill) -> None:
    copy = killed.take(arm, kill)
    copy.run_to_the_end(rows_per_batch="1500")
    (copy.folder / "go").touch()
    until = time.monotonic() + 300
    while not (copy.folder / "zombie.done").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert (copy.folder / "zombie.done").exists(), "the zombie did not go on"
    copy.produce(RECORDS, 100)
    copy.run_to_the_end()
    copy.check(RECORDS + 100)


@pytest.mark.parametrize(("arm", "kill"), cases(zombie=False))
def test_killed_at_a_step_and_restarted(killed: Killed, arm: str, kill: Kill) -> None:
    copy = killed.take(arm, kill)
    copy.produce(RECORDS, 100)
    # With other numbers of tasks and slots: the batch that is replayed is cut otherwise than it was before the kill.
    copy.run_to_the_end(tasks="5", rows_per_batch="1500")
    copy.check(RECORDS + 100)
