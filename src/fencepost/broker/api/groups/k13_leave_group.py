"""LeaveGroup, v0-5: remove members of a classic group. v3 has several members, and static ones by instance id."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.base.requests import Leave, LeavingMember
from fencepost.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

__all__ = ["HANDLER"]

_FIRST_WITH_MEMBERS = 3


def _handle(call: Call, now_ms: int, request: LeaveGroupRequest) -> None:
    """Remove the members, and reply when the removal is durable."""
    several = call.version >= _FIRST_WITH_MEMBERS
    if several:
        members = [LeavingMember(member.member_id, member.group_instance_id) for member in request.members]
    else:
        members = [LeavingMember(request.member_id)]
    groups = call.core.groups
    result = groups.coordinator.leave_group(now_ms, Leave(group_id=request.group_id, members=members))
    left = result.reply
    response = LeaveGroupResponse(
        error_code=left.error_code if several else left.single_error_code,
        members=[
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=member.error_code
            )
            for member in left.members
        ],
    )
    groups.apply(now_ms, result, lambda: call.reply(response))


def _refuse(call: Call, code: int) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


HANDLER = Handler(_handle, refuse=_refuse)
