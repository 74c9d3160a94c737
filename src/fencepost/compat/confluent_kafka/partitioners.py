"""Compute the partition of a key, as librdkafka's partitioners do."""

from __future__ import annotations

from fencepost.client.producer import partitioner

__all__ = ["consistent", "fnv1a", "murmur2"]


def murmur2(key: bytes, partition_count: int) -> int:
    """Return the partition by murmur2, as in Java. Raises TypeError, and ValueError for no partitions."""
    return partitioner.partition_for_key(*_checked(key, partition_count))


def consistent(key: bytes, partition_count: int) -> int:
    """Return the partition by CRC-32. Raises TypeError, and ValueError for no partitions."""
    return partitioner.librdkafka_partition_for_key(*_checked(key, partition_count))


def fnv1a(key: bytes, partition_count: int) -> int:
    """Return the partition by FNV-1a, as in Sarama. Raises TypeError, and ValueError for no partitions."""
    checked_key, count = _checked(key, partition_count)
    return partitioner.fnv1a(checked_key) % count


def _checked(key: bytes, partition_count: int) -> tuple[bytes, int]:
    for name, value, kind in (("key", key, bytes), ("partition_count", partition_count, int)):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be {kind.__name__}, not {type(value).__name__}")
    if partition_count < 1:
        raise ValueError(f"partition_count must be > 0, not {partition_count}")
    return key, partition_count
