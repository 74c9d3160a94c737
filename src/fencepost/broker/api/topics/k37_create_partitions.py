"""CreatePartitions, v0-3: add partitions to topics.

`validate_only` checks and changes nothing; assignments may only name this broker.
"""

from __future__ import annotations

from collections import Counter

from fencepost.broker.api.common import MOST_PARTITIONS, wrong_replicas
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.disk.changes import Change
from fencepost.broker.topics.topic import Topic
from fencepost.counted import counted_noun
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: CreatePartitionsRequest) -> None:
    """Grow the topics together. Each has its own result."""
    call.change(request, _grown(call, request))


def _grown(call: Call, request: CreatePartitionsRequest) -> Change[CreatePartitionsResponse]:
    results = []
    named = Counter(requested.name for requested in request.topics)
    for name, times in named.items():
        if times > 1:
            results.append(
                CreatePartitionsTopicResult(
                    name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
                )
            )
    grown: dict[Topic, int] = {}
    room, left = MOST_PARTITIONS, call.core.partition_room()
    for requested in request.topics:
        if named[requested.name] > 1:
            continue
        code, message = _check(call, requested)
        topic = call.core.topics.get(requested.name)
        if not code and topic is not None:
            more = requested.count - len(topic.partitions)
            if more > left:
                code = ErrorCode.POLICY_VIOLATION
                message = f"There is room for {counted_noun(left, 'more partition')} (max.partitions)."
                call.core.refused_topics.note(
                    call.core.now.ms, f"{counted_noun(more, 'more partition')} of topic {requested.name}: {message}"
                )
            elif more > room:
                code = ErrorCode.POLICY_VIOLATION
                message = f"At most {MOST_PARTITIONS} partitions can be added with one request."
            else:
                room -= more
                left -= more
                grown[topic] = requested.count
        results.append(CreatePartitionsTopicResult(name=requested.name, error_code=code, error_message=message))
    if grown and not request.validate_only:
        yield from call.core.topics.add_partitions(grown)
    return CreatePartitionsResponse(results=results)


def _check(call: Call, requested: CreatePartitionsTopic) -> tuple[int, str | None]:
    topic = call.core.topics.get(requested.name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    have = len(topic.partitions)
    if topic.internal:
        return ErrorCode.INVALID_PARTITIONS, "The broker's own topics cannot grow."
    if requested.count == have:
        return ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s)."
    if requested.count < have:
        message = (
            f"The topic {requested.name} currently has {have} partition(s); {requested.count} would not be an increase."
        )
        return ErrorCode.INVALID_PARTITIONS, message
    if requested.assignments is not None:
        more = requested.count - have
        if len(requested.assignments) != more:
            message = (
                f"Attempted to add {more} additional partition(s), but only {len(requested.assignments)} assignment(s) "
                "were specified."
            )
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
        wrong = next(
            filter(None, (wrong_replicas(assignment.broker_ids) for assignment in requested.assignments)), None
        )
        if wrong is not None:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong
    return ErrorCode.NONE, None


HANDLER = Handler(_handle)
