"""`fencepost simulate`: what it prints, how it ends, and that a found run can be had again and made smaller."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.main import main
from fencepost_lab.check import simulations
from fencepost_lab.check.options import Profile
from fencepost_lab.check.plants import PLANTS, planted
from fencepost_lab.check.simulations import SIMULATIONS, SimulationRun, shrink

CLIENTS, SPARK = SIMULATIONS
BAD = "commit-marker-for-an-abort"
SMALL = ["--world", "clients", "--option", "copiers=0", "--option", "storm_ms=500"]


def status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *arguments])
    return int(ended.value.code or 0)


def test_seeds_without_an_anomaly_end_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*SMALL, "--seed", "5", "--runs", "2", "--json") == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["runs"], reported["found"], reported["stopped"]) == (2, None, False)
    assert reported["simulated_ms"] >= 1_000
    assert reported["happened"]["transactions"] > 1


def test_what_happened_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("--world", "both", "--seed", "5", "--option", "crash_interval_ms=300") == 0
    reported = dict(re.findall(r"([a-z][a-z ]*): (\d+)", capsys.readouterr().out.splitlines()[1]))
    assert all(int(reported[what]) for what in ("batches", "crashes", "requests lost", "transactions"))


@pytest.mark.parametrize("world", ["clients", "spark"])
def test_simulated_time_counts_from_the_start_of_the_run(world: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The simulated clock shows a date of our days, which is no length of time."""
    assert status("--world", world, "--seed", "5", "--runs", "1", "--json") == 0
    assert 0 < json.loads(capsys.readouterr().out)["simulated_ms"] < 86_400_000


def test_an_anomaly_ends_with_1_and_the_shrunk_run_can_be_had_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*SMALL, "--seed", "1", "--plant", BAD) == 1
    reported = capsys.readouterr().out
    assert "aborted_read" in reported
    again = next(line for line in reported.splitlines() if line.startswith("again: ")).split()[3:]
    assert status(*again, "--plant", BAD, "--json") == 1
    found = json.loads(capsys.readouterr().out)["found"]
    assert found["trace"][-1] in reported
    assert found["options"]["request_lost_chance"] == 0


def test_the_shown_runs_history_is_written_and_its_check_complains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    for plant, ended in (([], 0), (["--plant", BAD], 1)):
        assert status(*SMALL, "--seed", "1", "--history", str(path), *plant) == ended
        assert str(path) in capsys.readouterr().err
        with pytest.raises(SystemExit) as checked:
            main(["check", str(path), "--html", str(path.with_suffix(".html"))])
        assert checked.value.code == ended
        assert ("aborted_read" in capsys.readouterr().out) == bool(ended)
        assert path.with_suffix(".html").stat().st_size > 1_000


def test_a_search_goes_on_where_the_last_one_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "next"
    for following in ("3", "5"):
        assert status(*SMALL, "--option", "storm_ms=1", "--resume", str(path), "--runs", "2") == 0
        assert path.read_text() == f"{following}\n"
        assert f"(seeds {int(following) - 2} to {int(following) - 1})" in capsys.readouterr().out
    path.write_text("none\n")
    assert status(*SMALL, "--resume", str(path)) == 2
    assert "holds no seed" in capsys.readouterr().err
    path.write_bytes(b"\xff\n")
    assert status(*SMALL, "--resume", str(path)) == 2
    assert "can't decode" in capsys.readouterr().err


def test_plants_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("--plants") == 0
    reported = capsys.readouterr().out
    assert len(PLANTS) >= 40
    assert all(name in reported for name in PLANTS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--plant", "nothing"], "--plants lists them"),
        (["--world", "both", "--history", "h"], "only the world of clients has one"),
        (["--world", "flat"], "clients, spark or both"),
        (["--profile", "wild"], "swarm, lite or liveness"),
        (["--world", "clients", "--option", "colour=red"], "there is no option 'colour'"),
        (["--world", "spark", "--option", "sinks=many"], "sinks is a int"),
        (["--world", "spark", "--option", "brokers=strong"], "'strong' is not a valid Brokers"),
    ],
)
def test_bad_options_end_with_2(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*arguments) == 2
    assert words in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_ctrl_c_tells_what_was_seen_so_far(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = CLIENTS.run
    runs: list[SimulationRun] = []

    def twice(seed: int, options: Any) -> SimulationRun:
        if len(runs) == 2:
            raise KeyboardInterrupt
        runs.append(real(seed, options))
        return runs[-1]

    monkeypatch.setattr(CLIENTS, "run", twice)
    assert status(*SMALL, "--runs", "9") == 130
    assert "stopped after 2 runs" in capsys.readouterr().out


def test_minutes_end_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*SMALL, "--minutes", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 0


def test_a_found_run_is_made_smaller_while_the_same_check_complains() -> None:
    with planted(BAD):
        given = ["storm_ms=200", "copiers=0", "watchers=1", "producers=2", "compacted=False"]
        runs = (
            (options, CLIENTS.run(seed, options))
            for seed in range(3, 30)
            for options in [CLIENTS.changed(CLIENTS.draw(seed, Profile.LIVENESS), given)]
        )
        options, found = next((options, run) for options, run in runs if run.checks)
        tries: list[None] = []
        smaller, run = shrink(CLIENTS, found, options, lambda: tries.append(None))
    assert run.checks & found.checks
    assert 0 < len(tries) <= simulations.SHRINKING_RUNS_AT_MOST
    assert smaller.crash_interval_ms == smaller.kill_chance == smaller.cancel_chance == 0.0
    assert smaller.watchers == 0
    assert smaller.producers == 1  # its trace may be longer all the same: without faults more gets done


def test_the_sink_is_simulated_too() -> None:
    options = SPARK.changed(SPARK.draw(4, Profile.LITE), ["sinks=1"])
    run = SPARK.run(4, options)
    assert (run.world, run.anomalies) == ("spark", [])
    assert run.options["network.request_lost_chance"] == 0
    fewer = list(SPARK.smaller(SPARK.changed(options, ["spark.fault_chance=0.1"])))
    assert any(smaller.spark.fault_chance == 0 for smaller in fewer)
