"""CreatePartitions, v0-3: give topics more partitions.

`validate_only` checks and changes nothing; assignments may only name this broker.
"""

from __future__ import annotations

from fencepost.broker.api.common import BROKER_ID
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

__all__ = ["handle"]

_MOST_PARTITIONS = 100_000


def handle(call: Call, now_ms: int, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Grow the topics one by one; each has its own result."""
    results = []
    for wanted in request.topics:
        code, message = _check(call, wanted)
        topic = call.core.topics.get(wanted.name)
        if not code and not request.validate_only and topic is not None:
            call.core.topics.add_partitions(topic, wanted.count)
        results.append(CreatePartitionsTopicResult(name=wanted.name, error_code=code, error_message=message))
    return CreatePartitionsResponse(results=results)


def _check(call: Call, wanted: CreatePartitionsTopic) -> tuple[int, str | None]:
    topic = call.core.topics.get(wanted.name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wanted.name}' does not exist."
    have = len(topic.partitions)
    if topic.internal:
        return ErrorCode.INVALID_PARTITIONS, "The broker's own topics cannot grow."
    if wanted.count <= have:
        return (
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {have} partitions, which is not less than {wanted.count}.",
        )
    if wanted.count > _MOST_PARTITIONS:
        return ErrorCode.INVALID_PARTITIONS, f"At most {_MOST_PARTITIONS} partitions are possible."
    if wanted.assignments:
        if len(wanted.assignments) != wanted.count - have:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{wanted.count - have} assignments are needed."
        if any(tuple(assignment.broker_ids) != (BROKER_ID,) for assignment in wanted.assignments):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the only broker is {BROKER_ID}"
    return ErrorCode.NONE, None
