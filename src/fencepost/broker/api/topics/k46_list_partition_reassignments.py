"""ListPartitionReassignments, v0 (KIP-455): partitions on their way to other brokers. There are none, ever."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """None."""
    return ListPartitionReassignmentsResponse()


HANDLER = Handler(_handle)
