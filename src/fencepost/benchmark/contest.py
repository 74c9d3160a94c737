"""Contestants in turn, round after round, against the same Kafka. The ratio of the medians is what counts: absolute
figures belong to the machine, and to who else used it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

__all__ = ["BUSY", "Contest", "Row", "figure", "others_share"]

BUSY = 0.25
"""Where others take more of the machine than this, absolute figures say little."""

WARM_UP = 10
"""This part of a round goes before the first and is not counted, so that nobody pays for starting."""


@dataclass
class Row:
    """One comparison: a figure for each round, ours and the peer's in turn; what has no peer has no figures of it.

    `mark`: the ratio that is aimed at, as text. `raw`: the same bytes through sockets and files without a protocol.
    `busy`: the largest share of the machine that others were seen to take, before and after.
    """

    name: str
    unit: str
    ours: list[float]
    peer: str
    peers: list[float]
    mark: str = ""
    raw: float | None = None
    busy: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Of the medians."""
        return statistics.median(self.ours) / statistics.median(self.peers) if self.peers else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The lowest and the highest ratio of a round."""
        if not self.peers:
            return None
        ratios = [own / other for own, other in zip(self.ours, self.peers, strict=True)]
        return min(ratios), max(ratios)


@dataclass
class Contest:
    """A figure per contestant and round, such as a rate; the yardstick is who the others are compared with."""

    unit: str
    yardstick: str
    rates: dict[str, list[float]] = field(default_factory=dict)
    busy: float = 0.0
    """The share of the machine that others took, before or after."""

    def run(self, contestants: Mapping[str, Callable[[int], None]], amounts: Mapping[str, int], rounds: int) -> None:
        """Each contestant moves its amount in each round, in an order that changes from round to round."""
        for name, work in contestants.items():
            work(max(1, amounts[name] // WARM_UP))

        def rate(name: str) -> float:
            begun = time.perf_counter()
            contestants[name](amounts[name])
            return amounts[name] / (time.perf_counter() - begun)

        self.take({name: partial(rate, name) for name in contestants}, rounds)

    def take(self, looks: Mapping[str, Callable[[], float]], rounds: int) -> None:
        """Each contestant's figure in each round, in an order that changes from round to round."""
        self.busy = others_share()
        for number in range(rounds):
            turns = list(looks.items())
            for name, look in turns if number % 2 else reversed(turns):
                self.rates.setdefault(name, []).append(look())
        self.busy = max(self.busy, others_share())

    def row(self, title: str, name: str, *, beside: str = "", mark: str = "", raw: float | None = None) -> Row:
        """The contestant beside another one, by default the yardstick."""
        peer = beside or self.yardstick
        return Row(title, self.unit, self.rates[name], peer, self.rates.get(peer, []), mark, raw, self.busy)

    def report(self) -> str:
        """A table: median, spread over the rounds, ratio to the yardstick."""
        base = statistics.median(self.rates[self.yardstick])
        lines = [f"{'':34} {self.unit + ' (median)':>22} {'lowest':>12} {'highest':>12} {'ratio':>8}"]
        for name in sorted(self.rates):
            rates = self.rates[name]
            middle = statistics.median(rates)
            told = (f"{name:34}", f"{figure(middle):>22}", f"{figure(min(rates)):>12}", f"{figure(max(rates)):>12}")
            lines.append(f"{' '.join(told)} {middle / base:7.2f}x")
        return "\n".join(lines)


def figure(value: float) -> str:
    """To be read: three digits, or all that stand before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def others_share(seconds: float = 0.5) -> float:
    """How much of all processors is busy while nothing is measured, 0 to 1."""
    import psutil

    before = psutil.cpu_times()
    time.sleep(seconds)
    after = psutil.cpu_times()
    idle = after.idle - before.idle + getattr(after, "iowait", 0.0) - getattr(before, "iowait", 0.0)
    passed = sum(after) - sum(before)
    return max(0.0, 1 - idle / passed) if passed else 0.0
