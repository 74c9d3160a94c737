"""What a consumer counts. Names are those of Kafka's consumer metrics, in snake_case; times in ms, sizes in records."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class ConsumerMetrics:
    """Totals since the consumer was made."""

    records_consumed_total: int = 0
    polls_total: int = 0
    fetch_total: int = 0
    fetch_failed_total: int = 0
    fetch_latency_ms_total: int = 0
    fetch_throttle_ms_total: int = 0
    fetch_session_restarts_total: int = 0
    commit_total: int = 0
    commit_failed_total: int = 0
    rebalance_total: int = 0
    partitions_lost_total: int = 0
    heartbeat_total: int = 0
    heartbeat_failed_total: int = 0
    truncations_total: int = 0

    def snapshot(self) -> dict[str, float]:
        """All of them, and the averages."""
        found: dict[str, float] = asdict(self)
        found["fetch_latency_ms_avg"] = self.fetch_latency_ms_total / self.fetch_total if self.fetch_total else 0.0
        return found
