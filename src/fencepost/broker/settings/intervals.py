"""Settings for the intervals of periodic checks, with Kafka's names, types and defaults."""

from __future__ import annotations

from fencepost.arguments import MAX_INT32 as _I32
from fencepost.arguments import MAX_INT64 as _I64
from fencepost.broker.settings.setting import Kind, Setting

__all__ = ["INTERVALS"]


INTERVALS = (
    Setting(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        "600000",
        "Time between two looks for offsets that are too old.",
        1,
        _I64,
    ),
    Setting(
        "producer.id.expiration.check.interval.ms",
        Kind.INT,
        "600000",
        "Time between two looks for producers that are idle for too long.",
        1,
        _I32,
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        "3600000",
        "Kept for tools; a transactional id is forgotten when its time is over, not at the next look.",
        1,
        _I32,
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        "10000",
        "Kept for tools; a transaction is aborted when its time is over, not at the next look.",
        1,
        _I32,
    ),
)
