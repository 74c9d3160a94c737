"""Groups as ListGroups and DescribeGroups show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fencepost.broker.coordinator.group.classic.group import Group
from fencepost.broker.coordinator.group.classic.states import GroupState
from fencepost.broker.coordinator.group.consumer.group import ConsumerGroup
from fencepost.broker.coordinator.group.replay import StoredGroup
from fencepost.broker.coordinator.group.requests import DescribedGroup, DescribedMember, ListedGroup
from fencepost.broker.coordinator.group.share.group import ShareGroup
from fencepost.broker.coordinator.group.streams.group import StreamsGroup
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE

__all__ = ["describe", "describe_missing", "list_groups"]

_CLASSIC = "classic"
_CONSUMER = "consumer"
_SHARE = "share"
_STREAMS = "streams"
_FIRST_DESCRIBE_THAT_KNOWS_69 = 6


def describe(group: Group, stored: StoredGroup | None) -> DescribedGroup:
    """Describe a classic group. `stored`: its last record."""
    stable = group.state == GroupState.STABLE
    members = []
    for member in group.members.values():
        last = stored.members.get(member.member_id) if stored is not None else None
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


def describe_missing(group_id: str, api_version: int, is_consumer_group: bool) -> DescribedGroup:
    """Describe a group that is not a classic one."""
    known = api_version >= _FIRST_DESCRIBE_THAT_KNOWS_69
    what = "is not a classic group" if is_consumer_group else "not found"
    return DescribedGroup(
        group_id=group_id,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.NONE,
        error_message=f"Group {group_id} {what}." if known else None,
        group_state=GroupState.DEAD.label,
    )


def list_groups(
    classic: Iterable[Group],
    consumer: Iterable[ConsumerGroup],
    shared: Iterable[ShareGroup],
    streams: Iterable[StreamsGroup],
    states: Sequence[str],
    types: Sequence[str],
) -> list[ListedGroup]:
    """Return the groups of all kinds that match the filters."""
    wanted_states = {name.lower() for name in states}
    wanted_types = {name.lower() for name in types} or {_CLASSIC, _CONSUMER, _SHARE, _STREAMS}
    listed = [ListedGroup(group.group_id, group.protocol_type or "", group.state.label, _CLASSIC) for group in classic]
    listed += [ListedGroup(group.group_id, CONSUMER_PROTOCOL_TYPE, group.state, _CONSUMER) for group in consumer]
    listed += [ListedGroup(group.group_id, _SHARE, group.state, _SHARE) for group in shared]
    listed += [ListedGroup(group.group_id, _STREAMS, group.state, _STREAMS) for group in streams]
    return [
        group
        for group in listed
        if group.group_type in wanted_types and (not wanted_states or group.group_state.lower() in wanted_states)
    ]
