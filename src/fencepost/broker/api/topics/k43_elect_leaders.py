"""ElectLeaders, v0-2.

This broker leads every partition, so no election is needed: 84 for each named partition.

Codes and texts are Apache Kafka 4.3.1's. For all partitions, the answer names every topic and no partition.
"""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

__all__ = ["HANDLER"]

_ELECTION_TYPES = (0, 1)  # preferred, unclean


def _handle(call: Call, now_ms: int, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Answer for each partition that no election is needed."""
    known = request.election_type in _ELECTION_TYPES
    named: list[tuple[str, tuple[int, ...]]]
    if request.topic_partitions is None:
        named = [(topic.name, ()) for topic in call.core.topics] if known else []
    else:
        named = [(topic.topic, tuple(topic.partitions)) for topic in request.topic_partitions]
    results = [
        ReplicaElectionResult(
            topic=topic,
            partition_result=[
                _answer(call, topic, index) if known else _unknown_type(request, index) for index in indexes
            ],
        )
        for topic, indexes in named
    ]
    asks_for_nothing = request.topic_partitions is not None and not request.topic_partitions
    code = ErrorCode.NONE if known or asks_for_nothing else ErrorCode.INVALID_REQUEST
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _unknown_type(request: ElectLeadersRequest, index: int) -> PartitionResult:
    message = f"Unknown election type {request.election_type}"
    return PartitionResult(partition_id=index, error_code=ErrorCode.INVALID_REQUEST, error_message=message)


def _answer(call: Call, name: str, index: int) -> PartitionResult:
    topic = call.core.topics.get(name)
    if topic is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    elif topic.partition(index) is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    else:
        code, message = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


HANDLER = Handler(_handle)
