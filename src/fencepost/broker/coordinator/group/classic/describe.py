"""Classic groups as DescribeGroups shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.broker.coordinator.group.classic.group import Group
from fencepost.broker.coordinator.group.classic.states import GroupState
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.offsets_log import StoredMember
from fencepost.values import Value

__all__ = ["DescribedGroup", "DescribedMember", "describe"]


class DescribedMember(Value):
    """A member as DescribeGroups shows it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribedGroup(Value, kw_only=True):
    """A group as DescribeGroups shows it."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_state: str
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribedMember] = ()


def describe(group: Group, stored: Mapping[str, StoredMember]) -> DescribedGroup:
    """Describe a classic group. `stored`: the members of its last record."""
    stable = group.state == GroupState.STABLE
    members = []
    for member in group.members.values():
        last = stored.get(member.member_id)
        members.append(
            DescribedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                group.metadata(member) if stable else b"",
                last.assignment if last is not None else b"",
            )
        )
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.label,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=members,
    )
