"""Heartbeat, v0-4: extend the session of a classic group's member.

The answer reports a rebalance.

v3 has static members.
"""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.base.requests import Heartbeat
from fencepost.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: HeartbeatRequest) -> None:
    """Answer at once."""
    groups = call.core.groups
    heartbeat = Heartbeat(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    result = groups.coordinator.member_heartbeat(now_ms, heartbeat)
    groups.apply(now_ms, result, lambda: call.reply(HeartbeatResponse(error_code=result.reply)))


HANDLER = Handler(_handle)
