"""AlterPartitionReassignments, v0-1 (KIP-455): change the replicas of partitions. v1 can require the same number.

Every partition is on this broker. A reassignment to it succeeds at once, to another one fails, and there is none to
cancel. Codes and messages are Kafka's.
"""

from __future__ import annotations

from fencepost.broker.api.common import find_partition, wrong_replicas
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

__all__ = ["HANDLER"]


def _handle(
    call: Call, now_ms: int, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Answer for each partition.

    As in Kafka, an empty request does not get its allow_replication_factor_change back.
    """
    if not request.topics:
        return AlterPartitionReassignmentsResponse()
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=topic.name, partitions=[_reassign(call, topic.name, wanted) for wanted in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _reassign(call: Call, topic: str, requested: ReassignablePartition) -> ReassignablePartitionResponse:
    partition, code, found = find_partition(call.core, topic, None, requested.partition_index)
    message = None
    if found is None:
        message = f"Unable to find a topic named {topic}."
    elif partition is None:
        message = f"Unable to find partition {topic}:{requested.partition_index}."
    elif requested.replicas is None:
        code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    else:
        message = wrong_replicas(requested.replicas)
        code = ErrorCode.NONE if message is None else ErrorCode.INVALID_REPLICA_ASSIGNMENT
    return ReassignablePartitionResponse(
        partition_index=requested.partition_index, error_code=code, error_message=message
    )


HANDLER = Handler(_handle)
