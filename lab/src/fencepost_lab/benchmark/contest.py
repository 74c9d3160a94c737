"""Comparison of contestants that run in turn, in rounds, against the same Kafka.

The result is the ratio of the medians. Absolute figures depend on the machine and on its other load.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

__all__ = ["BUSY", "Contest", "Row", "figure", "others_share"]

BUSY = 0.25
"""If other processes use more than this share of the machine, absolute figures are unreliable."""

WARM_UP = 10
"""Divisor of the amount for a warm-up before the first round, which is not counted."""


@dataclass
class Row:
    """One comparison: figures per round, ours and the peer's. Without a peer there are no figures of it.

    Attributes:
        name: Name of the comparison.
        unit: Unit of the figures.
        ours: Our figures, one per round.
        peer: Name of the peer.
        peers: The peer's figures, one per round.
        mark: Target of the ratio, as text.
        raw: Figure for the same bytes through sockets and files without a protocol.
        busy: Largest share of the machine that other processes used before or after, 0 to 1.
        ours_us: Our processor time for one unit of work in us, one per round.
        peers_us: The peer's processor time, in the same way.
    """

    name: str
    unit: str
    ours: list[float]
    peer: str
    peers: list[float]
    mark: str = ""
    raw: float | None = None
    busy: float = 0.0
    ours_us: list[float] = field(default_factory=list)
    peers_us: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        """Ratio of the medians; None without a peer."""
        return statistics.median(self.ours) / statistics.median(self.peers) if self.peers else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The lowest and the highest ratio of a round; None without a peer."""
        if not self.peers:
            return None
        ratios = [own / other for own, other in zip(self.ours, self.peers, strict=True)]
        return min(ratios), max(ratios)


@dataclass
class Contest:
    """A figure, such as a rate, per contestant and round. The yardstick is the contestant for comparison.

    `meter` returns the processor time in s that a contestant's process has used. By default it is that of this process.
    """

    unit: str
    yardstick: str
    meter: Callable[[str], float] = lambda _: time.process_time()
    rates: dict[str, list[float]] = field(default_factory=dict)
    used_us: dict[str, list[float]] = field(default_factory=dict)
    """Processor time of a unit of work, by contestant, for what `run` measured."""
    busy: float = 0.0
    """Share of the machine that other processes used before or after, 0 to 1."""

    def run(self, contestants: Mapping[str, Callable[[int], None]], amounts: Mapping[str, int], rounds: int) -> None:
        """Measure the rate at which each contestant moves its amount, in each round. The order alternates."""
        for name, work in contestants.items():
            work(max(1, amounts[name] // WARM_UP))

        def rate(name: str) -> float:
            used_s, begun = self.meter(name), time.perf_counter()
            contestants[name](amounts[name])
            taken_s = time.perf_counter() - begun
            self.used_us.setdefault(name, []).append((self.meter(name) - used_s) * 1e6 / amounts[name])
            return amounts[name] / taken_s

        self.take({name: partial(rate, name) for name in contestants}, rounds)

    def take(self, looks: Mapping[str, Callable[[], float]], rounds: int) -> None:
        """Take each contestant's figure in each round. The order alternates."""
        self.busy = others_share()
        for number in range(rounds):
            turns = list(looks.items())
            for name, look in turns if number % 2 else reversed(turns):
                self.rates.setdefault(name, []).append(look())
        self.busy = max(self.busy, others_share())

    def row(self, title: str, name: str, *, beside: str = "", mark: str = "", raw: float | None = None) -> Row:
        """Compare a contestant with another one, by default the yardstick."""
        peer = beside or self.yardstick
        return Row(
            *(title, self.unit, self.rates[name], peer, self.rates.get(peer, []), mark, raw, self.busy),
            *(self.used_us.get(name, []), self.used_us.get(peer, [])),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all figures, for JSON."""
        return {
            "unit": self.unit,
            "yardstick": self.yardstick,
            "rates": self.rates,
            "used_us": self.used_us,
            "busy": self.busy,
        }

    def report(self) -> str:
        """Return a table: median, range over the rounds, ratio to the yardstick."""
        base = statistics.median(self.rates[self.yardstick])
        lines = [f"{'':34} {self.unit + ' (median)':>22} {'lowest':>12} {'highest':>12} {'ratio':>8}"]
        for name in sorted(self.rates):
            rates = self.rates[name]
            middle = statistics.median(rates)
            cells = (f"{name:34}", f"{figure(middle):>22}", f"{figure(min(rates)):>12}", f"{figure(max(rates)):>12}")
            lines.append(f"{' '.join(cells)} {middle / base:7.2f}x")
        return "\n".join(lines)


def figure(value: float) -> str:
    """Format a figure with three digits, or with all digits before the decimal point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def others_share(seconds: float = 0.5) -> float:
    """Return the share of all processors that is in use while nothing is measured, 0 to 1."""
    import psutil

    before = psutil.cpu_times()
    time.sleep(seconds)
    after = psutil.cpu_times()
    idle = after.idle - before.idle + getattr(after, "iowait", 0.0) - getattr(before, "iowait", 0.0)
    passed = sum(after) - sum(before)
    return max(0.0, 1 - idle / passed) if passed else 0.0
