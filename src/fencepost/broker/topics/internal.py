"""The broker's internal topics: names, settings, and the settings with their numbers of partitions."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.protocol.logs.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

__all__ = [
    "CLUSTER_METADATA",
    "CONSUMER_OFFSETS",
    "INTERNAL_CONFIGS",
    "INTERNAL_PARTITIONS",
    "SHARE_GROUP_STATE",
    "TRANSACTION_STATE",
    "internal_configs",
    "is_internal",
]

CLUSTER_METADATA = "__cluster_metadata"  # Kafka's metadata log, which this broker does not have; the name is reserved
INTERNAL_CONFIGS = {
    CONSUMER_OFFSETS: {"cleanup.policy": "compact", "segment.bytes": "104857600"},
    TRANSACTION_STATE: {"cleanup.policy": "compact", "segment.bytes": "104857600"},
    SHARE_GROUP_STATE: {"cleanup.policy": "compact", "segment.bytes": "104857600"},
}
INTERNAL_PARTITIONS = {
    CONSUMER_OFFSETS: "offsets.topic.num.partitions",
    TRANSACTION_STATE: "transaction.state.log.num.partitions",
    SHARE_GROUP_STATE: "share.coordinator.state.topic.num.partitions",
}


def internal_configs(name: str) -> Mapping[str, str]:
    """Return the settings of an internal topic; none for another topic."""
    return INTERNAL_CONFIGS.get(name, {})


def is_internal(name: str) -> bool:
    """Return true if the name is an internal topic's."""
    return name in INTERNAL_CONFIGS
