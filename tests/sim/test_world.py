"""The simulated world: seeds that must pass, the same run twice, and defects planted to be found.

`seeds.txt` holds every seed that ever failed, with its cause; they are run as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.coordinator.group.replay import GroupStore
from fencepost.broker.log import Appended
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.topics.cleaner import Cleaner
from fencepost.check.disk import MemoryDisk
from fencepost.check.history import Outcome
from fencepost.check.scheduler import SimulationStuck
from fencepost.check.world import Faults, Report, run_world
from fencepost.errors import KafkaError

SEEDS_FILE = Path(__file__).with_name("seeds.txt")
STEPS = 1_000

STORMY = Faults(
    request_lost_chance=0.02,
    reply_lost_chance=0.04,
    slow_chance=0.02,
    crash_interval_ms=1_500,
    power_cut_chance=0.3,
    producer_death_chance=0.02,
)


def known_seeds() -> list[int]:
    """The numbers at the line starts of seeds.txt."""
    lines = SEEDS_FILE.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("seed", [*range(1, 13), *known_seeds()])
def test_random_transactions_are_exactly_once_under_drawn_faults(seed: int) -> None:
    report = run_world(seed, steps=STEPS)
    assert report.anomalies == []
    assert report.steps == STEPS
    outcomes = Counter(transaction.outcome for transaction in report.history.transactions)
    assert outcomes[Outcome.COMMITTED] > 50
    assert outcomes[Outcome.ABORTED] > 20
    assert len(report.history.reads) > 300


@pytest.mark.parametrize("seed", range(101, 105))
def test_random_transactions_are_exactly_once_in_a_storm(seed: int) -> None:
    report = run_world(seed, steps=STEPS, faults=STORMY)
    assert report.anomalies == []
    assert report.crashes >= 3
    assert sum("lost" in line for line in report.trace) > 20


@pytest.mark.parametrize("seed", range(201, 205))
def test_compaction_under_crashes_and_power_cuts_takes_nothing_that_counts(seed: int) -> None:
    compactions = 0
    real = Cleaner._finished

    def counting(self: Cleaner, *arguments: Any) -> None:
        nonlocal compactions
        compactions += 1
        real(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cleaner, "_finished", counting)
        report = run_world(seed, steps=STEPS, faults=STORMY, compacted=True)
    assert report.anomalies == []
    assert compactions > 20
    assert report.crashes >= 3


def test_the_same_seed_is_the_same_run() -> None:
    first, second, other = (run_world(seed, steps=300, faults=STORMY) for seed in (7, 7, 8))
    assert first.trace == second.trace
    assert len(first.trace) > 50
    assert (first.history, first.simulated_ms) == (second.history, second.simulated_ms)
    assert first.trace != other.trace


def found_in(seeds: range) -> set[str]:
    """The checks that complain in any of the runs; a run that cannot end, or cannot be read to its end, is "stuck"."""
    found = set()
    for seed in seeds:
        try:
            # Without a defect they end within 15 s of simulated time; with one, some would go on for hours.
            report: Report = run_world(seed, steps=400, faults=STORMY, within_ms=60_000)
        except (SimulationStuck, KafkaError):
            found.add("stuck")
        else:
            found |= {anomaly.check for anomaly in report.anomalies}
    return found


def a_disk_that_lies_about_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryDisk, "sync", lambda self, node, path: None)


def a_broker_that_takes_every_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    def anything_goes(*args: Any, **kwargs: Any) -> None:
        return None

    monkeypatch.setattr("fencepost.broker.log.producers.table.check_batch", anything_goes)


def a_broker_that_hides_what_was_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionLog, "aborted_between", lambda self, start, end: [])


def a_broker_that_forgets_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    original = GroupStore.complete_transaction

    def aborting(self: GroupStore, producer_id: int, producer_epoch: int, commit: bool, offsets_partition: int) -> int:
        return original(self, producer_id, producer_epoch, False, offsets_partition)

    monkeypatch.setattr(GroupStore, "complete_transaction", aborting)


def a_broker_that_loses_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PartitionLog.append_marker

    def sometimes(self: PartitionLog, *args: Any, **kwargs: Any) -> Any:
        if self.log_end_offset % 7 == 3:
            return Appended(self.log_end_offset, self.log_end_offset, -1, 0)  # said, and not done
        return original(self, *args, **kwargs)

    monkeypatch.setattr(PartitionLog, "append_marker", sometimes)


PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = [
    (a_disk_that_lies_about_syncing, {"lost_write", "stuck"}),  # or it is known that something is damaged, and refused
    (a_broker_that_takes_every_sequence, {"duplicate"}),
    (a_broker_that_hides_what_was_aborted, {"aborted_read"}),
    (a_broker_that_forgets_offsets, {"lost_offset"}),
    (a_broker_that_loses_markers, {"lost_write", "stuck", "torn"}),
]


@pytest.mark.parametrize(("plant", "expected"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert found_in(range(200, 206)) & expected


def test_nothing_is_found_where_nothing_is_planted() -> None:
    assert found_in(range(200, 206)) == set()
