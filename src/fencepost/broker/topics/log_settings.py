"""Settings of a topic's logs, from the settings of the topic and the broker."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.broker.log.config import Fsync, LogConfig
from fencepost.broker.settings.values import BrokerConfig, TopicConfig

__all__ = ["read_log_config"]

# Every start reads an internal topic completely, and its last segment is never compacted: small ones shorten it.
_INTERNAL_SEGMENT_BYTES = 1 << 20
# Only the broker reads internal topics, at its start, so tombstones and markers need not wait for slow readers.
_INTERNAL_DELETE_RETENTION_MS = 60_000

_COMPRESSION: Mapping[str, str] = {"uncompressed": "none"}
_FSYNC: Mapping[str, Fsync] = {"commit": "commit", "interval": "interval", "never": "never"}


def read_log_config(config: TopicConfig, broker: BrokerConfig, *, internal: bool) -> LogConfig:
    """Return the settings of a topic's logs. `internal` is true for the broker's internal topics."""
    append_time = config.text("message.timestamp.type") == "LogAppendTime"
    return LogConfig(
        segment_bytes=min(
            int(config.value("internal.segment.bytes") or config.number("segment.bytes")),
            min(_INTERNAL_SEGMENT_BYTES, broker.number("log.segment.bytes")) if internal else 2**31,
        ),
        # Records that must be compacted by a certain age must be in a closed segment by then.
        segment_ms=min(
            config.number("segment.ms"), config.number("max.compaction.lag.ms") if config.compacted else 2**63
        ),
        index_interval_bytes=config.number("index.interval.bytes"),
        segment_index_bytes=config.number("segment.index.bytes"),
        max_message_bytes=config.number("max.message.bytes"),
        max_decompressed_record_bytes=config.number("max.decompressed.message.bytes"),
        compression_type=_COMPRESSION.get(config.text("compression.type"), config.text("compression.type")),
        compression_levels={
            codec: level
            for codec in ("gzip", "lz4", "zstd")
            if (level := config.number(f"compression.{codec}.level")) != -1 or codec == "zstd"
        },
        message_timestamp_type="LogAppendTime" if append_time else "CreateTime",
        message_timestamp_before_max_ms=config.number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=config.number("message.timestamp.after.max.ms"),
        retention_ms=config.number("retention.ms"),
        retention_bytes=config.number("retention.bytes"),
        cleanup_policy=config.text("cleanup.policy"),
        min_cleanable_dirty_ratio=float(config.text("min.cleanable.dirty.ratio")),
        min_compaction_lag_ms=config.number("min.compaction.lag.ms"),
        max_compaction_lag_ms=config.number("max.compaction.lag.ms"),
        delete_retention_ms=min(
            config.number("delete.retention.ms"), _INTERNAL_DELETE_RETENTION_MS if internal else 2**63
        ),
        producer_id_expiration_ms=broker.number("producer.id.expiration.ms"),
        fsync=_FSYNC[broker.text("fsync")],
        producer_state_check="kafka" if broker.text("producer.state.check") == "kafka" else "strict",
    )
