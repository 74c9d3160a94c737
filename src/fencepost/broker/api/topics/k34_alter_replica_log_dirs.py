"""AlterReplicaLogDirs, v1-2 (KIP-113): move partitions to another directory.

There is only one.

A move to the present directory succeeds. Other directories are unknown, as in a Kafka that is not configured with them.
"""

from __future__ import annotations

from typing import Final

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from fencepost.broker.topics.opening import open_log
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

__all__ = ["HANDLER"]

# Kafka copies into a directory with a longer name: topic-partition.<32 digits>-future.
_LONGEST_NAME: Final = 255 - len(".") - 32 - len("-future")


def _handle(call: Call, now_ms: int, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Answer for each partition. If a partition is named twice, the last directory counts."""
    wanted = {
        (topic.name, index): each.path for each in request.dirs for topic in each.topics for index in topic.partitions
    }
    may = call.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    found: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for (name, index), path in wanted.items():
        code = _code(call, name, index, path) if may else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        found.setdefault(name, []).append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    results = [AlterReplicaLogDirTopicResult(topic_name=name, partitions=each) for name, each in found.items()]
    return AlterReplicaLogDirsResponse(results=results)


def _code(call: Call, name: str, index: int, path: str) -> int:
    if len(f"{name}-{index}") > _LONGEST_NAME:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path != call.core.data_directory:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = call.core.topics.get(name)
    partition = None if topic is None else topic.partition(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.KAFKA_STORAGE_ERROR if open_log(partition, call.core.metrics) is None else ErrorCode.NONE


HANDLER = Handler(_handle)
