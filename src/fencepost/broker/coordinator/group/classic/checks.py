"""Checks of requests to classic groups, without effects.

Each returns Kafka's error code.

Source: `ClassicGroup.validateMember`, `validateOffsetCommit`, `validateOffsetDelete`, `validateDeleteGroup` and
`GroupMetadataManager.acceptJoiningMember`, `validateSyncGroup` of Apache Kafka 4.x. The answers to transactional
commits were seen on the wire of Kafka 4.3.1.
"""

from __future__ import annotations

from fencepost.broker.coordinator.group.base.requests import SyncGroup
from fencepost.broker.coordinator.group.classic.group import Group
from fencepost.broker.coordinator.group.classic.states import GroupState
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE

__all__ = ["accepts_member", "check_member", "check_offset_commit", "check_offset_delete", "check_sync"]


def check_member(group: Group, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Check that the member is in the group and holds its instance id (KIP-345)."""
    if group_instance_id is not None:
        holder = group.static_ids.get(group_instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def accepts_member(group: Group, member_id: str, max_size: int) -> bool:
    """Return true if the group has room for a joining member (KIP-389).

    While a group prepares a rebalance, only rejoined members count: after the limit was lowered, the last to join are
    refused.
    """
    if group.state == GroupState.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state == GroupState.PREPARING_REBALANCE:
        return (member is not None and member.join_token is not None) or group.waiting_joins < max_size
    return member is not None or len(group.members) < max_size


def check_sync(group: Group, request: SyncGroup) -> ErrorCode:
    """Check that a sync comes from a member of the current generation with its protocol (KIP-559)."""
    error = check_member(group, request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def check_offset_commit(
    group: Group, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool
) -> ErrorCode:
    """Check a commit of offsets.

    Allowed are members of the current generation, and clients without a member in an empty group.

    A transactional commit without member and generation (TxnOffsetCommit below v3) is accepted in any state. A
    transactional commit is also accepted while a rebalance is completing (KIP-447).
    """
    empty = group.state == GroupState.EMPTY
    if generation < 0 and empty:
        return ErrorCode.NONE
    if generation >= 0 or member_id or group_instance_id is not None:
        error = check_member(group, member_id, group_instance_id)
        if error:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
    elif not transactional and not empty:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not transactional and group.state == GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def check_offset_delete(group: Group) -> ErrorCode:
    """Check a deletion of offsets. A group with members must be a consumer group, whose subscriptions are known."""
    if group.state != GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def _differs(requested: str | None, present: str | None) -> bool:
    return requested is not None and present is not None and requested != present
