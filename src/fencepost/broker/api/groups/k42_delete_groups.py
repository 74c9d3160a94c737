"""DeleteGroups, v0-3: remove groups without members, with their offsets.

v3 has a message beside each code. As in Apache Kafka, this broker's codes come without one.
"""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DeleteGroupsRequest) -> None:
    """Remove the groups, and reply when the removal is durable."""
    groups = call.core.groups
    result = groups.coordinator.delete_groups(request.groups_names)
    shares = call.core.shares
    for deleted in result.reply:
        if not deleted.error_code:
            pending = groups.coordinator.pending_producers(deleted.group_id)
            if pending:
                what = f"group {deleted.group_id!r} is deleted with its pending offsets"
                call.core.transactions.warn_of_loss(what, producer_ids=pending)
            shares.forget(now_ms, [key for key, _ in shares.of_group(deleted.group_id)])
    results = [
        DeletableGroupResult(group_id=deleted.group_id, error_code=deleted.error_code) for deleted in result.reply
    ]
    groups.apply(now_ms, result, lambda: call.reply(DeleteGroupsResponse(results=results)))


HANDLER = Handler(_handle)
