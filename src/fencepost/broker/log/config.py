"""Settings of one partition's log. Names and defaults are Kafka's topic settings, units last; the last group is
ours."""

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
    """`producer`: as the producer sent it; else what batches are compressed with anew when they come otherwise."""
    compression_levels: Mapping[str, int] = MappingProxyType({})
    """By codec; where there is none, the codec's own default."""
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_after_max_ms: int = 3_600_000
    retention_ms: int = 7 * 24 * 3600 * 1000
    """-1: for ever."""
    retention_bytes: int = -1
    """-1: unlimited."""
    cleanup_policy: str = "delete"
    """`delete`, `compact` or `compact,delete`. Without `delete` nothing is removed by time or size."""
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = 24 * 3600 * 1000
    """How long a compacted log keeps tombstones, and markers of transactions that have no records left."""
    producer_id_expiration_ms: int = 24 * 3600 * 1000

    fsync: Fsync = "commit"
    """`commit`: the high watermark follows `mark_synced`. `interval`, `never`: it follows the append."""
    verify_reads: bool = True
    """Check the CRC of every batch that is read, so that a flipped bit is an error here and not at the consumer."""
    snapshot_interval_bytes: int = 64 << 20
    """How much log may lie behind the last producer snapshot, and so how much is scanned after a crash."""
    snapshot_interval_batches: int = 20_000
    """The same in batches, which take their time however small they are; more where there are more producers."""
    producer_state_check: Literal["strict", "kafka"] = "strict"
    compaction_keys_max: int = 300_000
    """Keys that one round of compaction holds in memory (about 150 bytes each); what lies behind waits for the next."""
    shrunk_producers_max: int = 100_000
    """How many expired producer ids keep their (producer id, epoch, last sequence); beyond it the longest idle are
    forgotten."""

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy
