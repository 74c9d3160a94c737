"""A partition's log in Apache Kafka's on-disk format. `partition.PartitionLog` is its interface."""

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import (
    Appended,
    CorruptSegment,
    Cut,
    Duplicate,
    ReadResult,
    RecoveryReport,
    Rejected,
)

__all__ = [
    "Appended",
    "CorruptSegment",
    "Cut",
    "Duplicate",
    "LogConfig",
    "PartitionLog",
    "ReadResult",
    "RecoveryReport",
    "Rejected",
]
