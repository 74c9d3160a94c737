"""SyncGroup, v0-5: the leader sends all assignments, and each member fetches its own. v3 has static members.

A member's request is parked until the leader's assignment is durable.
"""

from __future__ import annotations

from functools import partial

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.base.requests import Synced, SyncGroup
from fencepost.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: SyncGroupRequest) -> None:
    """Pass the request to the coordinator, which answers now or later."""
    sync = SyncGroup(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=[(given.member_id, bytes(given.assignment)) for given in request.assignments],
        api_version=call.version,
    )
    groups = call.core.groups
    groups.apply(now_ms, groups.coordinator.sync_group(now_ms, sync, partial(_reply, call)))


def _reply(call: Call, answer: Synced) -> None:
    call.reply(
        SyncGroupResponse(
            error_code=answer.error_code,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            assignment=answer.assignment,
        )
    )


HANDLER = Handler(_handle)
