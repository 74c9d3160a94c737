"""Spark's sink in the simulated world: seeds that must pass, the same run twice, and defects planted to be found."""

from __future__ import annotations

import pytest

from fencepost_lab.check.net import NetworkFaults
from fencepost_lab.check.plants import PLANTS, planted
from fencepost_lab.check.plants.plant import Patches
from fencepost_lab.check.plants.sink import commits_do_not_look
from fencepost_lab.check.sink_world import FAULT_KINDS, Brokers, SinkFaults, SinkReport, run_sink_world
from fencepost_lab.check.spark_driver import SparkFaults

ROWS = 40
SEEDS = 40  # in which something is looked for that has to happen; each search begins where that is soon


def storm(
    brokers: Brokers,
    *,
    transaction_timeout_ms: int = 20_000,
    crash_interval_ms: float = 0.0,
    damage_chance: float = 0.0,
    late: tuple[float, float] = (0.01, 60_000.0),
) -> SinkFaults:
    """Everything at once. `late`: the chance that a request is late, and its delay in ms at most."""
    return SinkFaults(
        brokers=brokers,
        transaction_timeout_ms=transaction_timeout_ms,
        step_timeout_ms=5_000,
        sinks=1,
        spark=SparkFaults(
            fault_chance=0.15,
            driver_fault_chance=0.3,
            second_driver_chance=0.4,
            speculation_chance=0.3,
            broken_rows_chance=0.1,
            stop_chance=0.1,
            damage_chance=damage_chance,
        ),
        network=NetworkFaults(
            slow_chance=0.05,
            request_lost_chance=0.02,
            reply_lost_chance=0.04,
            late_chance=late[0],
            late_ms_at_most=late[1],
        ),
        crash_interval_ms=crash_interval_ms,
        power_cut_chance=0.5,
        inherits=True,
    )


def check_whole(report: SinkReport) -> None:
    """Nothing was found, and there was something to find: every row is in the output unless a loss was told."""
    assert report.anomalies == []
    if not report.history.lost:
        assert len(report.history.reads) == ROWS * report.faults.sinks
        assert all(batch.committed for batch in report.history.batches)
        assert report.history.decisions


@pytest.mark.parametrize("brokers", Brokers)
@pytest.mark.parametrize("seed", range(1, 4))
def test_the_output_is_the_input_under_drawn_faults(brokers: Brokers, seed: int) -> None:
    """`make soak` draws them from more seeds."""
    check_whole(run_sink_world(seed, rows=ROWS, brokers=brokers))


@pytest.mark.parametrize("brokers", Brokers)
def test_the_output_is_the_input_in_a_storm(brokers: Brokers) -> None:
    strikes: set[str] = set()
    ends: set[str] = set()
    wanted = {"ProcessLost", "SupersededError"}
    inherited = 0
    for seed in range(301, 331):
        report = run_sink_world(seed, rows=ROWS, faults=storm(brokers))
        check_whole(report)
        strikes |= report.happened.keys() & set(FAULT_KINDS.values())
        ends |= report.ends.keys()
        winners = {winner for decision in report.history.decisions for winner in decision.winners}
        inherited += len(winners) - len({transactional_id for transactional_id, *_ in winners})
        if seed > 302 and strikes == set(FAULT_KINDS.values()) and wanted <= ends and inherited:
            break
    assert inherited > 0
    assert strikes == set(FAULT_KINDS.values())
    assert wanted <= ends


@pytest.mark.parametrize("brokers", Brokers)
def test_the_output_is_the_input_when_the_broker_loses_power(brokers: Brokers) -> None:
    report = run_sink_world(401, rows=ROWS, faults=storm(brokers, crash_interval_ms=3_000.0))
    check_whole(report)
    assert report.happened["crashes"] > 1


@pytest.mark.parametrize("brokers", Brokers)
def test_the_output_is_the_input_when_checkpoints_lose_batches_and_are_repaired(brokers: Brokers) -> None:
    reported: set[str] = set()
    wanted = {"BatchChangedError", "CheckpointRolledBackError"}
    for seed in range(501, 531):
        report = run_sink_world(seed, rows=ROWS, faults=storm(brokers, damage_chance=0.5))
        check_whole(report)
        reported |= report.ends.keys()
        if seed > 502 and wanted <= reported:
            break
    assert wanted <= reported


@pytest.mark.parametrize(("brokers", "first"), [(Brokers.KEEPS_PREPARED, 6), (Brokers.ONE_PHASE, 8)])
def test_a_batch_that_took_longer_than_its_transactions_may_is_repeated(brokers: Brokers, first: int) -> None:
    for seed in range(first, first + SEEDS):
        report = run_sink_world(seed, rows=ROWS, faults=storm(brokers, transaction_timeout_ms=3_000))
        check_whole(report)
        if "BatchTimedOutError" in report.ends:
            return
    pytest.fail("no batch took that long")


def test_a_decided_transaction_that_timed_out_is_lost_aloud() -> None:
    """Without two-phase commit, and with a transaction timeout that is shorter than the pause of a commit worker."""
    patches = Patches()
    commits_do_not_look(patches)  # so that it happens often enough
    lost = 0
    try:
        for seed in range(12, 12 + SEEDS):
            report = run_sink_world(seed, rows=ROWS, faults=storm(Brokers.ONE_PHASE, transaction_timeout_ms=3_000))
            assert report.anomalies == []
            lost += bool(report.history.lost)
            if lost:
                break
    finally:
        patches.undo()
    assert lost > 0


def test_nothing_is_lost_where_no_transaction_times_out() -> None:
    for seed in range(1, 4):
        report = run_sink_world(seed, rows=ROWS, faults=storm(Brokers.ONE_PHASE, transaction_timeout_ms=900_000))
        check_whole(report)
        assert not report.history.lost


def test_the_same_seed_is_the_same_run() -> None:
    faults = storm(Brokers.KEEPS_PREPARED, crash_interval_ms=3_000.0)
    first, second, other = (run_sink_world(seed, rows=ROWS, faults=faults) for seed in (7, 7, 8))
    assert first.trace == second.trace
    assert len(first.trace) > 200
    assert (first.history, first.simulated_ms) == (second.history, second.simulated_ms)
    assert first.trace != other.trace


# The check that reports each defect, with brokers and a seed that show it. A change anywhere makes another run of each
# seed: then the search continues with the next seeds.
PLANTED: list[tuple[str, Brokers, int, str]] = [
    ("commit-worker-claims", Brokers.KEEPS_PREPARED, 5, "sink_duplicate"),
    ("decisions-read-before-the-claim", Brokers.KEEPS_PREPARED, 7, "sink_duplicate"),
    ("abort-does-not-ask", Brokers.TWO_PHASE, 4, "sink_contradiction"),
    ("task-ids-made-of-partitions", Brokers.KEEPS_PREPARED, 2, "sink_contradiction"),
    ("task-ids-inherited-by-two", Brokers.KEEPS_PREPARED, 10, "sink_contradiction"),
    ("ends-not-waited-for", Brokers.ONE_PHASE, 13, "sink_missing"),
    ("decision-without-fencing", Brokers.KEEPS_PREPARED, 7, "sink_duplicate"),
    ("task-ids-free-at-once", Brokers.KEEPS_PREPARED, 1, "sink_missing"),
    ("decision-written-last", Brokers.KEEPS_PREPARED, 5, "sink_duplicate"),
    ("batch-known-by-its-number", Brokers.KEEPS_PREPARED, 2, "sink_missing"),
    ("loss-not-told", Brokers.ONE_PHASE, 45, "sink_missing"),
]
FEW_ROWS = 20  # in which each of them shows
DAMAGED = ("batch-known-by-its-number",)
# These show where a late InitProducerId arrives while another use of the id is open.
LATE = dict.fromkeys(
    ("task-ids-made-of-partitions", "task-ids-inherited-by-two", "task-ids-free-at-once"), (0.15, 3_000.0)
)


def test_every_plant_of_the_sink_is_tried() -> None:
    assert {name for name, *_ in PLANTED} == {plant.name for plant in PLANTS.values() if plant.world == "spark"}


@pytest.mark.parametrize(("name", "brokers", "first", "check"), PLANTED)
def test_a_planted_defect_is_found(name: str, brokers: Brokers, first: int, check: str) -> None:
    faults = storm(brokers, damage_chance=0.5 * (name in DAMAGED), late=LATE.get(name, (0.01, 60_000.0)))
    with planted(name):
        for seed in range(first, first + SEEDS):
            report = run_sink_world(seed, rows=FEW_ROWS, faults=faults)
            if any(anomaly.check == check for anomaly in report.anomalies):
                return
    pytest.fail(f"not found in {SEEDS} seeds from {first} on")
