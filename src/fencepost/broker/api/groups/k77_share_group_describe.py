"""ShareGroupDescribe, v1 (KIP-932): state, epoch and members of share groups."""

from __future__ import annotations

from fencepost.broker.api.common import authorized_operations
from fencepost.broker.api.groups.member_topics import by_topic_name, hide_unless_all_seen
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.share.assignor import ASSIGNOR_NAME
from fencepost.broker.coordinator.group.share.group import ShareGroupMember
from fencepost.broker.coordinator.group.share.membership import ShareGroups
from fencepost.broker.security.acls import ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """Describe each group."""
    operations = request.include_authorized_operations
    return ShareGroupDescribeResponse(groups=[_describe(call, group_id, operations) for group_id in request.group_ids])


def _describe(call: Call, group_id: str, operations: bool) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    found = call.core.groups.coordinator.describe(ShareGroups, group_id)
    return DescribedGroup(
        error_code=found.error_code,
        error_message=found.error_message,
        group_id=group_id,
        group_state="" if found.error_code else found.state,
        group_epoch=found.epoch,
        assignment_epoch=found.epoch,
        assignor_name="" if found.error_code else ASSIGNOR_NAME,
        members=[_member(call, member) for member in found.members],
        authorized_operations=authorized_operations(
            call, ResourceType.GROUP, group_id, requested=operations and not found.error_code
        ),
    )


def _member(call: Call, member: ShareGroupMember) -> Member:
    assigned = [
        TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
        for topic_id, name, indexes in by_topic_name(call, member.assigned)
    ]
    return Member(
        member_id=member.member_id,
        rack_id=member.wants.rack_id,
        member_epoch=member.epoch,
        client_id=member.wants.client_id,
        client_host=member.wants.client_host,
        subscribed_topic_names=member.wants.topic_names,
        assignment=Assignment(topic_partitions=assigned),
    )


def _hide_topics(call: Call, response: ShareGroupDescribeResponse) -> ShareGroupDescribeResponse:
    for group in response.groups:
        names = {name for member in group.members for name in member.subscribed_topic_names}
        hide_unless_all_seen(call, group, names)
    return response


HANDLER = Handler(_handle, hide=_hide_topics)
