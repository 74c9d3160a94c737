"""What several handlers share."""

from __future__ import annotations

from uuid import UUID

from fencepost.broker.core import BROKER_ID, BrokerCore
from fencepost.broker.topics import Partition, Topic
from fencepost.protocol.codes import ErrorCode

__all__ = [
    "BROKER_ID",
    "CLUSTER_OPERATIONS",
    "GROUP_OPERATIONS",
    "TOPIC_OPERATIONS",
    "find_partition",
    "leader_epoch_error",
]

# Bits of the operations a client may do; without an authorizer that is all there are for the kind of resource
# (AclOperation's codes).
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER_ACTION = 3, 4, 5, 6, 7, 8, 9
_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
GROUP_OPERATIONS = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
CLUSTER_OPERATIONS = _bits(
    _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE
)


def find_partition(
    core: BrokerCore, name: str | None, topic_id: UUID | None, index: int
) -> tuple[Partition | None, int, Topic | None]:
    """(partition, 0, topic), or (None, error code, topic if that much was found). A topic is given by name or by id."""
    if name is not None:
        topic = core.topics.get(name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        topic = core.topics.by_id(topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    if topic is None:
        return None, missing, None
    if not 0 <= index < len(topic.partitions):
        return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic
    return topic.partitions[index], ErrorCode.NONE, topic


def leader_epoch_error(current_leader_epoch: int) -> int:
    """What a client that names this leader epoch is to be told; ours is always 0, and -1 says that it does not know."""
    if current_leader_epoch > 0:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE
