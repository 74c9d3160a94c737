"""DescribeGroups, v0-6: state and members of classic groups.

v3 can ask for the permitted operations; v6 has an error for unknown groups.
"""

from __future__ import annotations

from fencepost.broker.api.common import authorized_operations
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.classic.membership import ClassicGroups
from fencepost.broker.security.acls import ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

__all__ = ["HANDLER"]

_FIRST_WITH_AN_ERROR = 6  # KIP-1043: a missing group is not only Dead


def _handle(call: Call, now_ms: int, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe each group."""
    operations = request.include_authorized_operations
    return DescribeGroupsResponse(groups=[_describe(call, group_id, operations) for group_id in request.groups])


def _describe(call: Call, group_id: str, operations: bool) -> DescribedGroup:
    described = call.core.groups.coordinator.describe(ClassicGroups, group_id)
    has_error = bool(described.error_code) and call.version >= _FIRST_WITH_AN_ERROR
    return DescribedGroup(
        error_code=described.error_code if has_error else ErrorCode.NONE,
        error_message=described.error_message if has_error else None,
        group_id=group_id,
        group_state=described.group_state,
        protocol_type=described.protocol_type,
        protocol_data=described.protocol_data,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.member_metadata,
                member_assignment=member.member_assignment,
            )
            for member in described.members
        ],
        authorized_operations=authorized_operations(
            call, ResourceType.GROUP, group_id, requested=operations and not has_error
        ),
    )


HANDLER = Handler(_handle)
