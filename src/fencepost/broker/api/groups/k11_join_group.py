"""JoinGroup, v0-9: join a classic group.

In v4 a new member must rejoin with its id, v5 has static members.

v9 can skip the assignment. The request is parked until the rebalance is complete.
"""

from __future__ import annotations

from functools import partial

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.base.requests import Join, Joined
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

__all__ = ["HANDLER"]

_FIRST_NULLABLE_PROTOCOL = 7


def _handle(call: Call, now_ms: int, request: JoinGroupRequest) -> None:
    """Pass the request to the coordinator, which answers now or later."""
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
    groups.apply(now_ms, groups.coordinator.join_group(now_ms, join, partial(_reply, call)))


def _reply(call: Call, answer: Joined) -> None:
    name = answer.protocol_name
    call.reply(
        JoinGroupResponse(
            error_code=answer.error_code,
            generation_id=answer.generation_id,
            protocol_type=answer.protocol_type,
            protocol_name="" if name is None and call.version < _FIRST_NULLABLE_PROTOCOL else name,
            leader=answer.leader,
            skip_assignment=answer.skip_assignment,
            member_id=answer.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
                )
                for member in answer.members
            ],
        )
    )


def _refuse(call: Call, code: int) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name="" if call.version < _FIRST_NULLABLE_PROTOCOL else None)


HANDLER = Handler(_handle, refuse=_refuse)
