"""The simulated world: seeds that must pass, the same run twice, and defects planted to be found."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from fencepost.broker.topics.cleaner import Cleaner
from fencepost_lab.check.history import Outcome
from fencepost_lab.check.net import Network, NetworkFaults
from fencepost_lab.check.options import Profile, SimulationOptions
from fencepost_lab.check.plants import PLANTS, planted
from fencepost_lab.check.process import Process
from fencepost_lab.check.scheduler import Scheduler
from fencepost_lab.check.world import SimulationReport, run_world

STORMY = SimulationOptions(
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


def ends(report: SimulationReport) -> Counter[Outcome]:
    return Counter(transaction.outcome for transaction in report.history.transactions)


def test_nothing_goes_wrong_under_drawn_faults() -> None:
    outcomes: Counter[Outcome] = Counter()
    reads = 0
    for seed in range(1, 7):
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
        report = run_world(102, STORMY.changed([f"group_protocol={protocol}"]))
        assert report.anomalies == []
        assert report.happened["crashes"] >= 1
        words.update(word for line in report.trace for word in line.split()[1:4])
        assert ends(report)[Outcome.COMMITTED] > 10
        assert ends(report)[Outcome.ABORTED] > 5
    assert all(words[word] for word in ("lost", "late", "kill", "pause", "cancel", "crash", "failed:"))


@pytest.mark.parametrize("profile", [Profile.LITE, Profile.LIVENESS])
def test_other_profiles_end_well(profile: Profile) -> None:
    reads = 0
    for seed in (11, 12, 13):
        report = run_world(seed, SimulationOptions.draw(seed, profile).changed(["storm_ms=1000"]))
        assert report.anomalies == []
        reads += len(report.history.reads)
    assert reads > 20


FAILING = SimulationOptions(
    storm_ms=3_000,
    copiers=1,
    full_chance=0.15,
    read_only_chance=0.15,
    descriptors_chance=0.15,
    write_error_chance=0.15,
    read_error_chance=0.15,
    sync_error_chance=0.15,
    clock_jump_chance=0.15,
)


def test_nothing_goes_wrong_on_a_machine_that_fails() -> None:
    chosen = FAILING.shown().items() - SimulationOptions().shown().items()
    kinds = {name.removesuffix("_chance") for name, _ in chosen if "_chance" in name}
    assert len(kinds) == 7
    untold = {*kinds, "sync failed", "broker stops"}
    for seed in range(1, 11):
        report = run_world(seed, FAILING)
        assert report.anomalies == []
        assert ends(report)[Outcome.COMMITTED] > 20
        untold = {word for word in untold if not any(word in line for line in report.trace)}
        if not untold:
            break
    assert untold == set()


def test_batches_are_halved_and_keep_their_places() -> None:
    acknowledged = refused = 0
    for seed in (4, 9, 25):
        report = run_world(
            seed, SimulationOptions.draw(seed).changed(["shrink_interval_ms=150", "feeders=2", "storm_ms=3000"])
        )
        assert report.anomalies == []
        acknowledged += sum(sent.acknowledged for sent in report.history.sent)
        refused += sum(not sent.acknowledged for sent in report.history.sent)
    assert acknowledged > 100
    assert refused > 5


def test_operators_change_topics_during_the_storm() -> None:
    report = run_world(1, SimulationOptions(storm_ms=4_000, copiers=1, operators=5, crash_interval_ms=2_000))
    assert report.anomalies == []
    done = {line.split(maxsplit=2)[2] for line in report.trace if line.split()[1] in {f"o{n}" for n in range(5)}}
    assert {"replace a topic", "change settings", "add a partition"} <= done


def test_calls_are_cancelled_at_each_of_their_suspensions() -> None:
    report = run_world(6, SimulationOptions(storm_ms=3_000, copiers=1, cancel_chance=0.4))
    assert report.anomalies == []
    numbers = {line.rsplit(maxsplit=1)[1] for line in report.trace if "at its suspension" in line}
    assert {"1", "2", "3"} <= numbers
    assert any("TaskCancelled" in line for line in report.trace)
    assert report.happened["calls cancelled"] == sum(" will cancel " in line for line in report.trace)


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
    assert report.happened["crashes"] >= 2


def test_the_same_seed_is_the_same_run() -> None:
    first, second, other = (run_world(seed, STORMY) for seed in (7, 7, 8))
    assert first.trace == second.trace
    assert len(first.trace) > 50
    assert (first.history, first.simulated_ms) == (second.history, second.simulated_ms)
    assert first.trace != other.trace


def test_a_process_that_was_taken_for_dead_is_gone_when_its_work_has_ended() -> None:
    scheduler = Scheduler()
    network = Network(scheduler, Random(1), NetworkFaults(), lambda kind, line: None)
    process = Process("c0", network, Random(1), "broker:9092", lambda what, result: None)
    beats: list[int] = []

    async def beat() -> None:
        while True:
            await process.runtime.sleep_ms(100)
            beats.append(scheduler.now_ms())

    async def work() -> None:
        process.runtime.spawn(beat())
        await process.runtime.sleep_ms(1_050)

    process.start("life", work)
    process.lose()
    until_ms = scheduler.now_ms() + 60_000
    scheduler.call_at(until_ms, lambda: None)
    scheduler.run_until(lambda: scheduler.now_ms() >= until_ms, within_ms=60_001)
    assert len(beats) == 10
    assert not process.alive


def test_every_transaction_version_and_group_protocol_is_drawn() -> None:
    drawn = [SimulationOptions.draw(seed) for seed in range(1, 101)]
    assert {options.transaction_version for options in drawn} == {0, 1, 2}
    assert {options.group_protocol for options in drawn} == {"classic", "consumer", "mixed"}


def test_options_can_be_given() -> None:
    changed = SimulationOptions.draw(3).changed(["producers=1", "compacted=True", "slow_chance=0.5"])
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
