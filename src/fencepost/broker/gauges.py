"""Collect the broker's present state as numbers."""

from __future__ import annotations

from fencepost.broker.api.apis import SERVED
from fencepost.broker.coordinator.txn.states import PREPARED, TxnState
from fencepost.broker.metrics.counters import Snapshot
from fencepost.broker.parts import BrokerParts
from fencepost.broker.topic_gauges import group_lags, topic_numbers
from fencepost.protocol.codes import ErrorCode

__all__ = ["take_snapshot"]


def take_snapshot(core: BrokerParts, now_ms: int, **gauges: float) -> Snapshot:
    """Return the core's counters, gauges and latencies. `gauges` are those of the core's shell."""
    topics, lags = topic_numbers(core), group_lags(core)
    disk_total, disk_free = core.files.space()
    return Snapshot(
        counters=dict(core.metrics.values),
        gauges={
            "groups": core.groups.coordinator.count,
            "partitions": core.topics.partition_count,
            "unremovable_directories": core.topics.unremovable,
            "uncleanable_partitions": core.cleaner.uncleanable,
            "unopened_logs": topics.unopened,
            "disk_total_bytes": disk_total,
            "disk_free_bytes": disk_free,
            "hidden_series": topics.hidden + lags.hidden,
            **_transactions(core, now_ms),
            **core.shares.gauges(),
            **gauges,
        },
        requests={SERVED[key].name: count for key, count in sorted(core.metrics.requests.items())},
        straight_requests={SERVED[key].name: count for key, count in sorted(core.metrics.straight.items())},
        latencies={SERVED[key].name: latency.copy() for key, latency in sorted(core.metrics.latencies.items())},
        syncs=core.metrics.syncs.copy(),
        stable_lag=topics.stable_lag,
        pushing_clients=core.pushed_metrics.clients(core.steady_ms()),
        request_bytes={SERVED[key].name: size for key, size in sorted(core.metrics.request_bytes.items())},
        response_bytes={SERVED[key].name: size for key, size in sorted(core.metrics.response_bytes.items())},
        errors={
            (SERVED[key].name, _error_name(code)): count for (key, code), count in sorted(core.metrics.errors.items())
        },
        traffic=topics.traffic,
        logs=topics.logs,
        topic_bytes=topics.sizes,
        group_lag=lags.by_pair,
    )


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:  # a fault rule may answer any code
        return str(code)


def _transactions(core: BrokerParts, now_ms: int) -> dict[str, float]:
    coordinator = core.transactions.coordinator
    states = coordinator.awake()
    open_ones = [each for each in states if each.state is TxnState.ONGOING]
    exempt = [each for each in open_ones if each.is_two_phase]
    others = [each for each in open_ones if not each.is_two_phase]
    return {
        "transactional_ids": len(coordinator),
        "transactions_open": len(open_ones),
        "transactions_two_phase": len(exempt),
        "transactions_kept": sum(each.is_kept for each in open_ones),
        "transactions_ending": sum(each.state in PREPARED for each in states),
        "oldest_transaction_seconds": max((now_ms - each.start_ms for each in others), default=0) / 1000,
        "oldest_two_phase_seconds": max((now_ms - each.start_ms for each in exempt), default=0) / 1000,
        "markers_pending": len(coordinator.marker_work()),
    }
