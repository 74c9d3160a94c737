"""Functions shared by several handlers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from fencepost.broker.connection import Call
from fencepost.broker.disk.files import OutcomeUnknown
from fencepost.broker.parts import BROKER_ID, BrokerParts
from fencepost.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from fencepost.broker.topics.names import invalid_topic_name
from fencepost.broker.topics.topic import Partition, Topic
from fencepost.protocol.acls import OPERATIONS_NOT_REPORTED
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition

__all__ = [
    "BROKER_ID",
    "MOST_PARTITIONS",
    "absent_topic",
    "authorized_operations",
    "cluster_operations",
    "failure_code",
    "find_partition",
    "leader_epoch_error",
    "may_see",
    "partition_error",
    "partition_key",
    "wrong_replicas",
]

_NO_TOPIC = UUID(int=0)
MOST_PARTITIONS = 10_000
"""Largest number of partitions that one request may create, as in Kafka."""


_log = logging.getLogger("fencepost.broker.api")


def cluster_operations(call: Call, *, requested: bool) -> int:
    """Return the client's permitted operations on the cluster as bits, if requested and the client may describe it."""
    if requested and not call.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(call, ResourceType.CLUSTER, CLUSTER_NAME, requested=requested)


def failure_code(error: OSError, refused: int = ErrorCode.KAFKA_STORAGE_ERROR) -> int:
    """Return the code for a change that the disk refused: `refused`, or a timeout if its outcome is unknown."""
    return ErrorCode.REQUEST_TIMED_OUT if isinstance(error, OutcomeUnknown) else refused


def authorized_operations(call: Call, resource: ResourceType, name: str, *, requested: bool) -> int:
    """Return the client's permitted operations on the resource as bits, if requested."""
    return call.operations(resource, name) if requested else OPERATIONS_NOT_REPORTED


def may_see(call: Call, topic: str, *, quiet: bool = False) -> bool:
    """Return true if the client may know of a topic of that name. The topic need not exist."""
    return call.may(Operation.DESCRIBE, ResourceType.TOPIC, topic, quiet=quiet)


def absent_topic(name: str) -> tuple[int, str | None]:
    """Return the error code for a missing topic, and the defect of its name, if any."""
    why = invalid_topic_name(name)
    return (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if why is None else ErrorCode.INVALID_TOPIC_EXCEPTION), why


def find_partition(
    core: BrokerParts, name: str | None, topic_id: UUID | None, index: int
) -> tuple[Partition | None, int, Topic | None]:
    """Return (partition, 0, topic), or (None, error code, topic if found). A topic is given by name or by id."""
    topic = core.topics.by_id(topic_id) if name is None else core.topics.get(name)
    partition = None if topic is None else topic.partition(index)
    if partition is not None:
        return partition, ErrorCode.NONE, topic
    return None, partition_error(topic, index, by_id=name is None), topic


def partition_error(topic: Topic | None, index: int, *, by_id: bool = False) -> int:
    """Return the error code for a partition of a topic that was looked up by id or by name: 0 if it exists."""
    if topic is None and by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if topic is None or topic.partition(index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def partition_key(topic_id: UUID | None, index: int) -> TopicIdPartition:
    """Return the key of a partition in a request. The zero id stands for a missing one, and no topic has it."""
    return TopicIdPartition(topic_id or _NO_TOPIC, index)


def leader_epoch_error(current_leader_epoch: int) -> int:
    """Return the error for a client's leader epoch.

    This broker's epoch is always 0, and -1 means unknown to the client.
    """
    if current_leader_epoch < -1:
        return ErrorCode.FENCED_LEADER_EPOCH
    if current_leader_epoch > 0:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


def wrong_replicas(broker_ids: Sequence[int]) -> str | None:
    """Return Kafka's message if a partition cannot have these replicas, or None.

    The only valid replica is this broker.
    """
    if not broker_ids:
        return "The manual partition assignment includes an empty replica list."
    other = next((broker_id for broker_id in broker_ids if broker_id != BROKER_ID), None)
    if other is not None:
        return f"The manual partition assignment includes broker {other}, but no such broker is registered."
    if len(broker_ids) > 1:
        return f"The manual partition assignment includes the broker {BROKER_ID} more than once."
    return None
