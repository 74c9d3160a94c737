"""ListPartitionReassignments, v0 (KIP-455): reassignments in progress, of which there are none."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """Answer with an empty list."""
    return ListPartitionReassignmentsResponse()


HANDLER = Handler(_handle)
