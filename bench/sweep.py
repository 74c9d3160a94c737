"""A sweep: one thing is varied, and at each of its values everybody is measured in turn.

A sweep says what it varies and how a value is measured (`bench/sweeps.py` has the table of them); this file starts the
brokers, goes through the values and tells what came: a table for each panel, and a chart of all.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil

from bench import charts, report
from bench.brokers import JVM_OPTIONS, KAFKA, OURS, Running, first_producer_id
from fencepost_lab.benchmark.contest import Contest, figure
from fencepost_lab.torture.broker_process import BrokerProcess
from tests.support.apache_kafka import ApacheKafka
from tests.support.brokers import Killable

NAMES = {"fencepost": OURS, "kafka": KAFKA}


class Effort(NamedTuple):
    """Number of rounds of each measurement, and the divisor of its usual amount of work."""

    rounds: int
    less: int = 1


class Stage:
    """The brokers, each with data of its own, that can be killed and started again. Context manager."""

    def __init__(self, which: Sequence[str], heap: str | None = None) -> None:
        """`which` brokers; `heap`: of Apache Kafka, where the usual one is not enough."""
        options = JVM_OPTIONS if heap is None else (*JVM_OPTIONS, f"-Xmx{heap}")
        # Apache Kafka waits after kill -9 until its own session has expired: 9 s by default, 4 s as it is started here.
        starters: dict[str, Callable[[], Killable]] = {
            KAFKA: lambda: ApacheKafka(jvm_options=options),
            OURS: lambda: BrokerProcess({"fsync": "never", "max.transactional.ids": 2_000_000}),
        }
        self.brokers = {name: make() for name, make in starters.items() if name in [NAMES[short] for short in which]}
        self.leftovers: dict[str, Any] = {}
        """What one value leaves for the next: topics that were filled, by broker."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for broker in self.brokers.values():
                stack.callback(broker.stop)
                broker.start()
                first_producer_id(broker.bootstrap_servers)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def servers(self) -> dict[str, str]:
        """Addresses by the brokers' names."""
        return {name: broker.bootstrap_servers for name, broker in self.brokers.items()}

    def running(self, name: str) -> Running:
        """The broker, for what looks at its process. Raises RuntimeError when it has ended."""
        broker = self.brokers[name]
        if broker.pid is None or broker.pid < 0:
            raise RuntimeError(f"{name} has ended")
        return Running(broker.bootstrap_servers, broker.pid, 0.0)

    def contest(self, unit: str) -> Contest:
        """Between the brokers, with Apache Kafka for the yardstick if it is there."""
        return Contest(unit, next(iter(self.brokers)))

    def in_turn(self, unit: str, look: Callable[[str], float], rounds: int) -> Contest:
        """A figure of each broker, by its name, in each round."""
        contest = self.contest(unit)
        contest.take({name: partial(look, name) for name in self.brokers}, rounds)
        return contest

    def resident_mb(self, name: str) -> float:
        """Memory of the broker's process."""
        memory: int = psutil.Process(self.running(name).pid).memory_info().rss
        return memory / 1e6

    def start_s(self, name: str, *, killed: bool) -> float:
        """From the command to the first producer id, after a stop or kill -9 that is not counted."""
        broker = self.brokers[name]
        if killed:
            broker.kill()
        else:
            broker.stop(keep_data=True)
        begun = time.perf_counter()
        broker.start()
        first_producer_id(broker.bootstrap_servers)
        return time.perf_counter() - begun


class Seen(NamedTuple):
    """Measurement of one value in one panel. `raw`: the same without Kafka's protocol, or None."""

    panel: str
    contest: Contest
    raw: float | None = None


@dataclass(frozen=True)
class Sweep:
    """A parameter to vary: its values, the function that measures each, and the heap size of Apache Kafka's JVM."""

    name: str
    title: str
    axis: str
    values: Sequence[Any]
    quick: Sequence[Any]
    measure: Callable[[Stage, Any, Effort], Iterator[Seen]]
    heap: str | None = None


@dataclass
class Swept:
    """By panel and value."""

    sweep: Sweep
    panels: dict[str, dict[Any, Seen]] = field(default_factory=dict)

    @property
    def busiest(self) -> float:
        return max((seen.contest.busy for panel in self.panels.values() for seen in panel.values()), default=0.0)

    def rows(self) -> list[dict[str, Any]]:
        """For JSON: everybody at each value, beside the yardstick."""
        return [
            {
                "sweep": self.sweep.name,
                "panel": panel,
                "value": value,
                **report.row_values(contest.row(name, name, raw=raw)),
            }
            for panel, points in self.panels.items()
            for value, (_, contest, raw) in points.items()
            for name in contest.rates
        ]

    def lines(self, panel: str) -> list[str]:
        """A table in Markdown: medians, and behind each the ratio to the yardstick, with its lowest and highest."""
        points = self.panels[panel]
        contests = [contest for _, contest, _ in points.values()]
        yardstick = contests[0].yardstick
        others = [name for name in dict.fromkeys(name for each in contests for name in each.rates) if name != yardstick]
        has_raw = any(raw is not None for _, _, raw in points.values())
        heads = [self.sweep.axis, yardstick, *others, *(["raw limit"] if has_raw else [])]
        lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for value, (_, contest, raw) in points.items():
            cells = [_value(value), figure(statistics.median(contest.rates[yardstick]))]
            for name in others:
                row = contest.row(name, name)
                low, high = row.spread or (0.0, 0.0)
                cells.append(f"{figure(statistics.median(row.ours))} ({row.ratio:.2f}x, {low:.2f} to {high:.2f})")
            if has_raw:
                cells.append("" if raw is None else figure(raw))
            lines.append(f"| {' | '.join(cells)} |")
        return lines

    def _panel(self, name: str, points: Mapping[Any, Seen]) -> charts.Panel:
        lines: dict[str, dict[Any, float]] = {}
        for value, (_, contest, raw) in points.items():
            for contestant, rates in contest.rates.items():
                lines.setdefault(contestant, {})[value] = statistics.median(rates)
            if raw is not None:
                lines.setdefault("raw limit", {})[value] = raw
        unit = next(iter(points.values())).contest.unit
        return charts.Panel(name, self.sweep.axis, unit, lines)

    def put(self, page: Path, command: str, where: dict[str, str]) -> None:
        """The chart beside the page, and what it shows in the page."""
        chart = charts.beside(page, self.sweep.name)
        charts.draw(chart, [self._panel(name, points) for name, points in self.panels.items()])
        lines = [f"![{self.sweep.title}](charts/{chart.name})", ""]
        for panel, points in self.panels.items():
            unit = next(iter(points.values())).contest.unit
            lines += [f"{panel} ({unit}):", "", *self.lines(panel), ""]
        reported = {name: where[name] for name in ("date", "processor", "kafka")}
        lines += [f"{report.provenance(command, reported)} {report.busy_line(self.busiest)}"]
        report.put(page, f"sweep {self.sweep.name}", lines)


def run(sweep: Sweep, brokers: Sequence[str], values: Sequence[Any], effort: Effort) -> Swept:
    """All values, told as they come."""
    swept = Swept(sweep)
    print(f"\n{sweep.title}", flush=True)
    with Stage(brokers, sweep.heap) as stage:
        for value in values:
            for seen in sweep.measure(stage, value, effort):
                swept.panels.setdefault(seen.panel, {})[value] = seen
                print(f"{sweep.axis} {_value(value)}: {seen.panel}\n{seen.contest.report()}", flush=True)
    return swept


def _value(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
