"""Limits from which on a state is a finding."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the findings.

    Attributes:
        open_ms: Age of an open or prepared transaction. Kafka's default transaction timeout is 60,000 ms.
        ending_ms: Time for the markers of a decided transaction, and for the transactions of a sink's decision.
        rebalance_ms: Duration of a rebalance. The default of max.poll.interval.ms is 300,000 ms, a usual rebalance
            takes a few seconds.
        stalled_ms: Time without progress of a member that has records to read.
        clock_ms: Difference of the clocks.
        certificate_ms: Remaining validity of a certificate, as in the broker's warning.
        full_share: Share of a disk that is left when it counts as full. docs/alerts.yml has the same limits.
        nearly_full_share: The same when it counts as nearly full.
    """

    open_ms: int = 60_000
    ending_ms: int = 10_000
    rebalance_ms: int = 60_000
    stalled_ms: int = 60_000
    clock_ms: int = 1_000
    certificate_ms: int = 30 * 24 * 3_600_000
    full_share: float = 0.01
    nearly_full_share: float = 0.10
