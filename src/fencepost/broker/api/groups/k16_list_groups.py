"""ListGroups, v0-5: all groups; from v4 on filtered by state, from v5 on by type ("classic", "consumer", "share")."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the matching groups."""
    found = call.core.groups.coordinator.list_groups(request.states_filter, request.types_filter)
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.group_state,
                group_type=group.group_type,
            )
            for group in found
        ]
    )


HANDLER = Handler(_handle)
