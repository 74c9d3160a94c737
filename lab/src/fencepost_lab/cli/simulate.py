"""`fencepost simulate`: run simulated clusters from seeds until one shows an anomaly."""

from __future__ import annotations

import logging
import platform
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.arguments import brief_repr, whole_number
from fencepost.cli.names import file_to_write, need_other_file
from fencepost.cli.output import MOST_SECONDS, Json, failures_reported, print_json, print_table, stopped_by_signals
from fencepost.cli.progress import step
from fencepost.counted import counted_noun
from fencepost.small_files import bare_reason, read_small, written_whole

if TYPE_CHECKING:
    from rich.console import Console

    from fencepost_lab.check.simulations import Simulation, SimulationRun

__all__ = ["simulate"]

LINES_AT_MOST = 60


@dataclass(slots=True)
class _Tally:
    """Results of the runs so far."""

    runs: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    simulated_ms: int = 0
    cpu_s: float = 0.0
    found: Any = None
    shrunk: Any = None
    last: Any = None
    seeds: list[int] = field(default_factory=list)
    options: list[str] = field(default_factory=list)


def simulate(
    seed: Annotated[int | None, typer.Option(help="First seed; without --runs the only one.")] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Number of seeds; default 20 without other limits.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0, max=MOST_SECONDS / 60, help="Time for starting runs.")] = None,
    profile: Annotated[str, typer.Option(help="swarm (a mix of all faults), lite (crashes), liveness.")] = "swarm",
    world: Annotated[str, typer.Option(help="clients, spark, or both in turn.")] = "both",
    option: Annotated[
        list[str] | None, typer.Option(help="Set a value instead of drawing it.", metavar="NAME=VALUE")
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(callback=file_to_write, help="Write the history of the anomalous run, or of the last run."),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            callback=file_to_write,
            help="Start at the seed in this file; store the next one after each run.",
        ),
    ] = None,
    plant: Annotated[str | None, typer.Option(help="Add a known defect to the product first.")] = None,
    plants: Annotated[bool, typer.Option("--plants", help="List the known defects.")] = False,
    json: Json = False,
) -> None:
    """Run the broker, clients and the Spark sink in a simulated world, from seeds, and check the results.

    Time, network, disk and processes are simulated; the code is the installed one. The seed of a run determines the
    clients and the faults. At the end of a run all faults stop, and all work must complete. The search ends at the
    first run with an anomaly. That run is reduced while the same check fails, and its history is printed.

    Example: fencepost simulate --minutes 10 --seed 1000

    With `--world clients`, `--history` writes a file for `fencepost check`, which draws it with `--html`.

    The same seed, options and version repeat the run exactly.

    Status: 0 no anomaly; 1 an anomaly; 2 invalid arguments, or a file cannot be written; 130 ended by Ctrl-C.
    """
    from rich.console import Console

    from fencepost_lab.check.plants import PLANTS, planted

    if plants:
        print_table([("NAME", "WHAT IS WRONG"), *((plant.name, plant.summary) for plant in PLANTS.values())])
        return
    if plant is not None and plant not in PLANTS:
        raise typer.BadParameter(f"there is no {plant!r}; --plants lists them", param_hint="--plant")
    console = Console(stderr=True)
    _check_history(history, world, resume)
    seed = _resumed(resume, seed)
    tally = _Tally(options=list(option or []))
    with stopped_by_signals() as stopped, ExitStack() as stack:
        stack.enter_context(_quiet())
        if plant is not None:
            chosen = stack.enter_context(planted(plant))
            world = chosen.world if world == "both" else world
            if world == chosen.world:
                tally.options = [*chosen.options, *tally.options]
        ended_by: int | None = None
        try:
            _search(tally, _pairs(seed, runs, minutes, world, resume), profile)
        except KeyboardInterrupt:  # the results so far are printed below
            ended_by = stopped.by or signal.SIGINT
    _print_result(tally, console, json, stopped=ended_by is not None)
    sys.stdout.flush()
    _write(history, tally)
    if ended_by is not None:
        raise typer.Exit(128 + ended_by)
    raise typer.Exit(0 if tally.found is None else 1)


def _check_history(history: Path | None, world: str, resume: Path | None) -> None:
    """Raise BadParameter if there is no history in this world, or if it would replace the file of --resume."""
    if history is not None and world != "clients":
        raise typer.BadParameter("only the world of clients has one: --world clients", param_hint="--history")
    need_other_file(history, "--history", resume, "--resume")


def _resumed(resume: Path | None, seed: int | None) -> int | None:
    """Return the first seed: the one in the file if it exists, otherwise the given one."""
    if resume is None or not resume.exists():
        return seed if resume is None else seed or 1
    try:
        text = read_small(resume).strip()
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{resume}: {bare_reason(error)}", param_hint="--resume") from error
    found = whole_number(text)
    if found is None or found < 0:
        raise typer.BadParameter(f"{resume} holds no seed, but {brief_repr(text)}", param_hint="--resume")
    return found


def _write(path: Path | None, tally: _Tally) -> None:
    """Write the history of the shown run, in the format of `fencepost check`."""
    from fencepost_lab.check.history.file import lines_of

    run: SimulationRun | None = tally.shrunk or tally.last
    if path is None or run is None or run.history is None:
        return
    with failures_reported(status=2), written_whole(path) as file:
        file.writelines(f"{line}\n".encode() for line in lines_of(run.history.operations()))
    sys.stderr.write(f"{path} is the history of seed {run.seed}; fencepost check {path} --html {path}.html draws it\n")


def _pairs(
    seed: int | None, runs: int | None, minutes: float | None, world: str, resume: Path | None
) -> Iterator[tuple[Simulation, int]]:
    """Yield each world with each seed, up to the limits."""
    from fencepost_lab.check.simulations import SIMULATIONS

    chosen = [simulation for simulation in SIMULATIONS if world in (simulation.name, "both")]
    if not chosen:
        raise typer.BadParameter("must be clients, spark or both", param_hint="--world")
    if runs is None and minutes is None:
        runs = 20 if seed is None else 1
    first = 1 if seed is None else seed
    until = None if minutes is None else time.monotonic() + 60 * minutes
    number = first
    while runs is None or number < first + runs:
        for simulation in chosen:
            if until is not None and time.monotonic() > until:
                return
            yield simulation, number
        number += 1
        if resume is not None:
            with failures_reported(status=2), written_whole(resume) as file:
                file.write(f"{number}\n".encode())


def _search(tally: _Tally, pairs: Iterator[tuple[Simulation, int]], profile: str) -> None:
    from fencepost_lab.check.options import Profile
    from fencepost_lab.check.simulations import shrink

    try:
        chosen = Profile(profile)
    except ValueError:
        raise typer.BadParameter("must be swarm, lite or liveness", param_hint="--profile") from None
    began = time.process_time()
    for simulation, seed in pairs:
        step(f"{counted_noun(tally.runs, 'run')}, {tally.simulated_ms / 60_000:.1f} simulated minutes; seed {seed}")
        try:
            options = simulation.changed(simulation.draw(seed, chosen), tally.options)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--option") from None
        tally.last = run = simulation.run(seed, options)
        tally.runs += 1
        tally.seeds = [*tally.seeds[:1], seed]
        tally.happened.update(run.happened)
        tally.simulated_ms += run.simulated_ms
        tally.cpu_s = time.process_time() - began
        if run.anomalies:
            tally.found = run
            step(f"seed {seed}: {', '.join(sorted(run.checks))}; looking for a smaller run")
            _, tally.shrunk = shrink(simulation, run, options)
            return


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the logs of broker and clients, because the faults cause many."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _print_result(tally: _Tally, console: Console, json: bool, *, stopped: bool) -> None:
    if json:
        print_json(
            {
                "runs": tally.runs,
                "simulated_ms": tally.simulated_ms,
                "cpu_s": round(tally.cpu_s, 1),
                "happened": dict(sorted(tally.happened.items())),
                "stopped": stopped,
                "version": version("fencepost"),
                "found": None if tally.found is None else _as_json(tally.found),
                "shrunk": None if tally.shrunk is None else _as_json(tally.shrunk),
            }
        )
        return
    words = "stopped after " if stopped else ""
    _print(
        f"{words}{counted_noun(tally.runs, 'run')}{_seeds(tally)}, {tally.simulated_ms / 60_000:.1f} "
        "simulated minutes, "
        f"{tally.cpu_s:.1f} s of CPU: {'an anomaly' if tally.found else 'no anomaly'}"
    )
    if tally.happened:
        _print(", ".join(f"{what}: {count}" for what, count in sorted(tally.happened.items())))
    if tally.found is not None:
        _show("found", tally.found)
        if tally.shrunk is not None:
            _show("smaller, with the same complaint", tally.shrunk)
            _history(tally.shrunk)


def _seeds(tally: _Tally) -> str:
    return f" (seeds {tally.seeds[0]} to {tally.seeds[-1]})" if tally.seeds else ""


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


def _as_json(run: SimulationRun) -> dict[str, Any]:
    return {
        "world": run.world,
        "seed": run.seed,
        "options": run.options,
        "anomalies": [{"check": anomaly.check, "detail": anomaly.detail} for anomaly in run.anomalies],
        "trace": list(run.trace),
    }


def _show(title: str, run: SimulationRun) -> None:
    given = {name: value for name, value in run.options.items() if value}
    where = f"world {run.world}, seed {run.seed}, fencepost {version('fencepost')}, Python {platform.python_version()}"
    _print(f"\n{title}: {where}")
    _print("  " + ", ".join(f"{name}={value}" for name, value in given.items()))
    for anomaly in run.anomalies[:5]:
        _print(f"  {anomaly.check}: {anomaly.detail}")
    if len(run.anomalies) > 5:
        _print(f"  and {len(run.anomalies) - 5} more")


def _history(run: SimulationRun) -> None:
    again = " ".join(f"--option {name}={value}" for name, value in run.options.items())
    _print(f"\nagain: fencepost simulate --world {run.world} --seed {run.seed} {again}")
    left_out = len(run.trace) - LINES_AT_MOST
    if left_out > 0:
        _print(f"... {counted_noun(left_out, 'event')} before")
    for line in run.trace[-LINES_AT_MOST:]:
        _print(line)
