"""JoinGroup, v0-9: enter a classic group. v4 asks a new member to come again with its id, v5 knows static members, v9
skips assignments.

The request is parked until the rebalance is complete.
"""

from __future__ import annotations

from fencepost.broker.connection import Call
from fencepost.broker.group.requests import Join
from fencepost.protocol.messages.join_group import JoinGroupRequest

__all__ = ["handle"]


def handle(call: Call, now_ms: int, request: JoinGroupRequest) -> None:
    """Hand the request to the coordinator, which answers now or later."""
    join = Join(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=f"/{call.connection.peer[0]}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=[(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols],
        api_version=call.version,
    )
    groups = call.core.groups
    groups.apply(now_ms, groups.coordinator.join_group(now_ms, join, call))
