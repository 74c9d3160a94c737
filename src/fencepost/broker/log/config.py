"""Settings of one partition's log: Kafka's topic settings with their defaults and units, then our own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from fencepost.values import Value

__all__ = ["LogConfig"]

Fsync = Literal["commit", "interval", "never"]


class LogConfig(Value):
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 << 20
    max_message_bytes: int = 1_048_588
    max_decompressed_record_bytes: int = 2**31 - 9
    """Largest record of a compressed batch, decompressed."""
    compression_type: str = "producer"
    """`producer`: as sent by the producer. Otherwise batches in another codec are compressed again with this one."""
    compression_levels: Mapping[str, int] = MappingProxyType({})
    """Level by codec. Without an entry, the codec's default."""
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_after_max_ms: int = 3_600_000
    retention_ms: int = 7 * 24 * 3600 * 1000
    """-1: no limit."""
    retention_bytes: int = -1
    """-1: unlimited."""
    cleanup_policy: str = "delete"
    """`delete`, `compact` or `compact,delete`. Without `delete` nothing is removed by time or size."""
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = 24 * 3600 * 1000
    """Time in ms for which compaction keeps tombstones, and markers of transactions without records."""
    producer_id_expiration_ms: int = 24 * 3600 * 1000

    fsync: Fsync = "commit"
    """`commit`: the high watermark follows `mark_synced`. `interval`, `never`: it follows the append."""
    verify_reads: bool = True
    """Check the CRC of every batch that is read, so that the broker and not the consumer reports a flipped bit."""
    snapshot_interval_bytes: int = 64 << 20
    """Most bytes of log after the last producer snapshot. A start after a crash scans them."""
    snapshot_interval_batches: int = 20_000
    """Most batches after the last producer snapshot, because small batches take time too.

    The limit is at least the number of producers.
    """
    producer_state_check: Literal["strict", "kafka"] = "strict"
    compaction_keys_max: int = 300_000
    """Number of keys that a round of compaction holds in memory (about 150 bytes each).

    The rest waits for the next round.
    """
    shrunk_producers_max: int = 100_000
    """Number of expired producer ids that keep (producer id, epoch, last sequence).

    The longest idle ones are dropped.
    """

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy
