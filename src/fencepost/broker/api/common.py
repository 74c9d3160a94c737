"""What several handlers share."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from fencepost.broker.connection import Call
from fencepost.broker.parts import BROKER_ID, BrokerParts
from fencepost.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from fencepost.broker.topics.catalogue import Partition, Topic
from fencepost.protocol.codes import ErrorCode

__all__ = [
    "BROKER_ID",
    "MOST_PARTITIONS",
    "cluster_operations",
    "find_partition",
    "leader_epoch_error",
    "may_see",
    "wrong_replicas",
]

MOST_PARTITIONS = 10_000
"""That one request may make, as in Kafka."""

_log = logging.getLogger("fencepost.broker.api")


def cluster_operations(call: Call) -> int:
    """The bits of what the client may do with the cluster; none for those who may not ask."""
    if not call.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return call.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def may_see(call: Call, topic: str, *, quiet: bool = False) -> bool:
    """Whether the client may know of a topic of that name, which need not exist."""
    return call.may(Operation.DESCRIBE, ResourceType.TOPIC, topic, quiet=quiet)


def find_partition(
    core: BrokerParts, name: str | None, topic_id: UUID | None, index: int
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


def wrong_replicas(broker_ids: Sequence[int]) -> str | None:
    """Why a partition cannot have these replicas, in Kafka's words; None when it can: there is this broker only."""
    if not broker_ids:
        return "The manual partition assignment includes an empty replica list."
    other = next((broker_id for broker_id in broker_ids if broker_id != BROKER_ID), None)
    if other is not None:
        return f"The manual partition assignment includes broker {other}, but no such broker is registered."
    if len(broker_ids) > 1:
        return f"The manual partition assignment includes the broker {BROKER_ID} more than once."
    return None
