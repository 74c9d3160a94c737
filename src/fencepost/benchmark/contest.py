"""Contestants in turn, round after round, against the same Kafka. The ratio of the medians is what counts: absolute
figures belong to the machine, and to who else used it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["BUSY", "Contest", "Row", "others_share"]

BUSY = 0.25
"""Where others take more of the machine than this, absolute figures say little."""

WARM_UP = 10
"""This part of a round goes before the first and is not counted, so that nobody pays for starting."""


@dataclass
class Row:
    """One comparison: a figure for each round, ours and the peer's in turn.

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
    def ratio(self) -> float:
        """Of the medians."""
        return statistics.median(self.ours) / statistics.median(self.peers)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest ratio of a round."""
        ratios = [own / other for own, other in zip(self.ours, self.peers, strict=True)]
        return min(ratios), max(ratios)


@dataclass
class Contest:
    """Rates per contestant and round; the yardstick is who the others are compared with."""

    unit: str
    yardstick: str
    rates: dict[str, list[float]] = field(default_factory=dict)
    busy: float = 0.0
    """The share of the machine that others took, before or after."""

    def run(self, contestants: Mapping[str, Callable[[int], None]], amounts: Mapping[str, int], rounds: int) -> None:
        """Each contestant moves its amount in each round, in an order that changes from round to round."""
        for name, work in contestants.items():
            work(max(1, amounts[name] // WARM_UP))
        self.busy = others_share()
        for number in range(rounds):
            turns = list(contestants.items())
            for name, work in turns if number % 2 else reversed(turns):
                begun = time.perf_counter()
                work(amounts[name])
                self.rates.setdefault(name, []).append(amounts[name] / (time.perf_counter() - begun))
        self.busy = max(self.busy, others_share())

    def row(self, title: str, name: str, *, mark: str = "", raw: float | None = None) -> Row:
        """The contestant beside the yardstick."""
        yardstick = self.rates[self.yardstick]
        return Row(title, self.unit, self.rates[name], self.yardstick, yardstick, mark, raw, self.busy)

    def report(self) -> str:
        """A table: median, spread over the rounds, ratio to the yardstick."""
        base = statistics.median(self.rates[self.yardstick])
        lines = [f"{'':34} {self.unit + ' (median)':>22} {'lowest':>12} {'highest':>12} {'ratio':>8}"]
        for name in sorted(self.rates):
            rates = self.rates[name]
            middle = statistics.median(rates)
            lines.append(f"{name:34} {middle:22,.0f} {min(rates):12,.0f} {max(rates):12,.0f} {middle / base:7.2f}x")
        return "\n".join(lines)


def others_share(seconds: float = 0.5) -> float:
    """How much of all processors is busy while nothing is measured, 0 to 1."""
    import psutil

    before = psutil.cpu_times()
    time.sleep(seconds)
    after = psutil.cpu_times()
    idle = after.idle - before.idle + getattr(after, "iowait", 0.0) - getattr(before, "iowait", 0.0)
    passed = sum(after) - sum(before)
    return max(0.0, 1 - idle / passed) if passed else 0.0
