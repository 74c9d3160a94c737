"""The simulated world: seeds that must pass, the same run twice, and defects planted to be found.

`seeds.txt` holds seeds that failed once, each with its cause; they are run as well.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.topics.cleaner import Cleaner
from fencepost.check.history import Outcome
from fencepost.check.options import Options, Profile
from fencepost.check.plants import PLANTS, planted
from fencepost.check.world import Report, run_world

SEEDS_FILE = Path(__file__).with_name("seeds.txt")

STORMY = Options(
    storm_ms=3_000,
    producers=3,
    copiers=2,
    watchers=1,
    request_lost_chance=0.02,
    reply_lost_chance=0.04,
    late_chance=0.01,
    slow_chance=0.02,
    crash_interval_ms=1_500,
    power_cut_chance=0.3,
    kill_chance=0.2,
    pause_chance=0.2,
    cancel_chance=0.05,
    raise_chance=0.02,
)


def known_seeds() -> list[int]:
    """The numbers at the line starts of seeds.txt."""
    lines = SEEDS_FILE.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def ends(report: Report) -> Counter[Outcome]:
    return Counter(transaction.outcome for transaction in report.history.transactions)


def test_nothing_goes_wrong_under_drawn_faults() -> None:
    outcomes: Counter[Outcome] = Counter()
    reads = 0
    for seed in [*range(1, 7), *known_seeds()]:
        report = run_world(seed)
        assert report.anomalies == [], seed
        outcomes += ends(report)
        reads += len(report.history.reads)
    assert outcomes[Outcome.COMMITTED] > 50
    assert outcomes[Outcome.ABORTED] > 20
    assert reads > 300


def test_nothing_goes_wrong_in_a_storm() -> None:
    words: Counter[str] = Counter()
    for protocol in ("classic", "consumer"):
        report = run_world(101, STORMY.changed([f"group_protocol={protocol}"]))
        assert report.anomalies == []
        assert report.crashes >= 1
        words.update(word for line in report.trace for word in line.split()[1:4])
        assert ends(report)[Outcome.COMMITTED] > 20
        assert ends(report)[Outcome.ABORTED] > 10
    assert all(words[word] for word in ("lost", "late", "kill", "pause", "cancelled", "crash", "failed:"))


@pytest.mark.parametrize("profile", [Profile.LITE, Profile.LIVENESS])
def test_other_profiles_end_well(profile: Profile) -> None:
    report = run_world(11, Options.draw(11, profile).changed(["storm_ms=1000"]))
    assert report.anomalies == []
    assert report.history.reads


def test_compaction_under_crashes_and_power_cuts_takes_nothing_that_counts() -> None:
    compactions = 0
    real = Cleaner._finished

    def counting(self: Cleaner, *arguments: Any) -> None:
        nonlocal compactions
        compactions += 1
        real(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cleaner, "_finished", counting)
        report = run_world(201, STORMY.changed(["compacted=True", "storm_ms=6000"]))
    assert report.anomalies == []
    assert compactions > 10
    assert report.crashes >= 2


def test_the_same_seed_is_the_same_run() -> None:
    first, second, other = (run_world(seed, STORMY) for seed in (7, 7, 8))
    assert first.trace == second.trace
    assert len(first.trace) > 50
    assert (first.history, first.simulated_ms) == (second.history, second.simulated_ms)
    assert first.trace != other.trace


def test_options_can_be_given() -> None:
    changed = Options.draw(3).changed(["producers=1", "compacted=True", "slow_chance=0.5"])
    assert (changed.producers, changed.compacted, changed.slow_chance) == (1, True, 0.5)
    with pytest.raises(ValueError, match="no option 'slow'"):
        changed.changed(["slow=1"])
    with pytest.raises(ValueError, match="producers is a int, not 'many'"):
        changed.changed(["producers=many"])


def test_a_plant_is_taken_out_again() -> None:
    before = Cleaner._finished
    assert PLANTS
    for name in PLANTS:
        with planted(name):
            pass
    assert Cleaner._finished is before
