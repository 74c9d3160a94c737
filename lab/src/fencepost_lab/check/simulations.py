"""The simulated worlds of `fencepost simulate`: draw, run, shrink, and search through seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from random import Random
from typing import Any, Final, Protocol, TypeVar

from fencepost_lab.check.history import Anomaly, Summary
from fencepost_lab.check.machine import MachineFaults
from fencepost_lab.check.net import NetworkFaults
from fencepost_lab.check.options import Profile, SimulationOptions
from fencepost_lab.check.scheduler import SimulationStuck
from fencepost_lab.check.sink_world import SinkFaults, SinkWorld
from fencepost_lab.check.spark_driver import SparkFaults
from fencepost_lab.check.world import run_world

__all__ = ["SIMULATIONS", "Simulation", "SimulationRun", "shrink"]

SHRINKING_RUNS_AT_MOST: Final = 60
ROWS: Final = 40
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """A finished run.

    `options` are by name, `trace` has every event, `happened` counts faults and actions by kind. `history` exists if
    clients recorded one.
    """

    world: str
    seed: int
    options: dict[str, Any]
    anomalies: Sequence[Anomaly]
    trace: Sequence[str]
    happened: Mapping[str, int]
    simulated_ms: int
    history: Summary | None = None

    @property
    def checks(self) -> set[str]:
        """The names of the checks that found anomalies."""
        return {anomaly.check for anomaly in self.anomalies}


class Simulation(Protocol):
    """A simulated world. Only the world knows the type of its options."""

    name: str

    def draw(self, seed: int, profile: Profile) -> Any: ...

    def changed(self, options: Any, given: Iterable[str]) -> Any:
        """Return changed options. Raises ValueError for an unknown name or an invalid value."""
        ...

    def smaller(self, options: Any) -> Iterator[Any]:
        """Yield options with one element less each."""
        ...

    def run(self, seed: int, options: Any) -> SimulationRun: ...


class ClientsSimulation:
    """Producers, consumers and groups on one broker."""

    name = "clients"

    def draw(self, seed: int, profile: Profile) -> SimulationOptions:
        """Draw options, as SimulationOptions.draw does."""
        return SimulationOptions.draw(seed, profile)

    def changed(self, options: SimulationOptions, given: Iterable[str]) -> SimulationOptions:
        """Return changed options, as SimulationOptions.changed does."""
        return options.changed(given)

    def smaller(self, options: SimulationOptions) -> Iterator[SimulationOptions]:
        """Yield smaller options, as SimulationOptions.smaller does."""
        yield from options.smaller()

    def run(self, seed: int, options: SimulationOptions) -> SimulationRun:
        """Run the world once."""
        report = run_world(seed, options)
        return SimulationRun(
            self.name,
            seed,
            options.shown(),
            report.anomalies,
            report.trace,
            report.happened,
            report.simulated_ms,
            report.history,
        )


class SparkSimulation:
    """Spark's sink: drivers, planners, tasks and commit workers."""

    name = "spark"

    def draw(self, seed: int, profile: Profile) -> SinkFaults:
        """Draw the sink's faults, and turn off those that the profile excludes."""
        drawn = SinkFaults.draw(Random(f"sink options of {seed}"))
        if profile is Profile.LITE:
            faults = SparkFaults(
                fault_chance=drawn.spark.fault_chance, driver_fault_chance=drawn.spark.driver_fault_chance
            )
            return replace(drawn, spark=faults, network=NetworkFaults(), machine=MachineFaults())
        return drawn

    def changed(self, options: SinkFaults, given: Iterable[str]) -> SinkFaults:
        """Return changed options. Names are those of `shown`, such as spark.fault_chance."""
        for text in given:
            name, _, value = text.partition("=")
            known = _flat(options)
            if name not in known:
                raise ValueError(f"there is no option {name!r}; there are {', '.join(known)}")
            try:
                converted = type(known[name])(value)
            except ValueError:
                raise ValueError(f"{name} is a {type(known[name]).__name__}, not {value!r}") from None
            options = _with(options, name, converted)
        return options

    def smaller(self, options: SinkFaults) -> Iterator[SinkFaults]:
        """Yield options with one fault less, or with one sink."""
        for name, value in _flat(options).items():
            if value and (name.endswith(("_chance", "crash_interval_ms")) or name.startswith("machine.")):
                yield _with(options, name, 0.0)
        if options.sinks > 1:
            yield replace(options, sinks=1)

    def run(self, seed: int, options: SinkFaults) -> SimulationRun:
        """Run the world once. A run that does not end is an anomaly."""
        world = SinkWorld(seed, rows=ROWS, faults=options)
        try:
            world.run()
        except SimulationStuck as error:
            world.report.anomalies.append(Anomaly("stuck", str(error)))
        report, flat_options = world.report, _flat(options)
        return SimulationRun(
            self.name, seed, flat_options, report.anomalies, report.trace, report.happened, report.simulated_ms
        )


SIMULATIONS: Final[tuple[Simulation, ...]] = (ClientsSimulation(), SparkSimulation())


def shrink(
    simulation: Simulation, run: SimulationRun, options: Any, say: Callable[[], None] = lambda: None
) -> tuple[Any, SimulationRun]:
    """Reduce the options as long as a check that found an anomaly in `run` still finds one.

    Returns the options and their run. `say` is called before each of the runs, of which there are at most 60.
    """
    left = SHRINKING_RUNS_AT_MOST
    wanted, best = run.checks, run
    progress = True
    while progress and left:
        progress = False
        for candidate in simulation.smaller(options):
            if not left:
                break
            left -= 1
            say()
            tried = simulation.run(run.seed, candidate)
            if wanted & tried.checks:
                options, best, progress = candidate, tried, True
                break
    return options, best


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields(value):
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            found |= _flat(inner, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = inner
    return {name: inner.value if isinstance(inner, Enum) else inner for name, inner in found.items()}


def _with(options: SinkFaults, name: str, value: Any) -> SinkFaults:
    part, _, inner = name.rpartition(".")
    if part:
        return replace(options, **{part: replace(getattr(options, part), **{inner: value})})
    return replace(options, **{inner: type(getattr(options, inner))(value)})
