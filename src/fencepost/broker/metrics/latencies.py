"""Histograms of latencies."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

__all__ = ["BUCKETS_MS", "Latency"]

BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000)


@dataclass(slots=True)
class Latency:
    """A histogram.

    `counts[n]` is the number of events that took at most `BUCKETS_MS[n]` and more than the bucket before; the last
    count is of events that took longer than all buckets.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_MS) + 1))
    sum_ms: int = 0

    def add(self, took_ms: int, times: int = 1) -> None:
        """Add an event, or several that took equally long."""
        self.counts[bisect_left(BUCKETS_MS, took_ms)] += times
        self.sum_ms += took_ms * times

    def copy(self) -> Latency:
        """Return a copy."""
        return Latency(list(self.counts), self.sum_ms)
