"""A partition's log in Apache Kafka's on-disk format. `partition.PartitionLog` is its interface."""

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import (
    Appended,
    CorruptSegment,
    Duplicate,
    ReadResult,
    RecoveryReport,
    Rejected,
    RemovedTail,
)

__all__ = [
    "Appended",
    "CorruptSegment",
    "Duplicate",
    "LogConfig",
    "PartitionLog",
    "ReadResult",
    "RecoveryReport",
    "Rejected",
    "RemovedTail",
]
