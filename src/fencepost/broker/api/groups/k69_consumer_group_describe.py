"""ConsumerGroupDescribe, v0-1 (KIP-848): state, epochs and members of consumer groups. v1 adds each member's type."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.broker.api.common import authorized_operations
from fencepost.broker.api.groups.member_topics import by_topic_name, hide_unless_all_seen
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.consumer.membership import ConsumerGroups
from fencepost.broker.coordinator.group.consumer.requests import DescribedConsumerMember
from fencepost.broker.security.acls import ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

__all__ = ["HANDLER"]

_CLASSIC, _CONSUMER = 0, 1


def _handle(call: Call, now_ms: int, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    """Describe each group."""
    operations = request.include_authorized_operations
    return ConsumerGroupDescribeResponse(
        groups=[_describe(call, group_id, operations) for group_id in request.group_ids]
    )


def _describe(call: Call, group_id: str, operations: bool) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    found = call.core.groups.coordinator.describe(ConsumerGroups, group_id)
    return DescribedGroup(
        error_code=found.error_code,
        error_message=found.error_message,
        group_id=group_id,
        group_state="" if found.error_code else found.state,
        group_epoch=found.epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=found.assignor,
        members=[_member(call, described) for described in found.members],
        authorized_operations=authorized_operations(
            call, ResourceType.GROUP, group_id, requested=operations and not found.error_code
        ),
    )


def _member(call: Call, described: DescribedConsumerMember) -> Member:
    member = described.member
    return Member(
        member_id=member.member_id,
        instance_id=member.wants.instance_id,
        rack_id=member.wants.rack_id,
        member_epoch=member.epoch,
        client_id=member.wants.client_id,
        client_host=member.wants.client_host,
        subscribed_topic_names=member.wants.topic_names,
        subscribed_topic_regex=member.wants.topic_regex,
        assignment=_assignment(call, member.assigned),
        target_assignment=_assignment(call, described.target),
        member_type=_CONSUMER if member.wants.classic is None else _CLASSIC,
    )


def _assignment(call: Call, partitions: Iterable[TopicIdPartition]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
            for topic_id, name, indexes in by_topic_name(call, partitions)
        ]
    )


def _hide_topics(call: Call, response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
    for group in response.groups:
        names = {name for member in group.members for name in member.subscribed_topic_names}
        for member in group.members:
            for assigned in (member.assignment, member.target_assignment):
                names.update(each.topic_name for each in (assigned.topic_partitions if assigned is not None else ()))
        hide_unless_all_seen(call, group, names)
    return response


HANDLER = Handler(_handle, hide=_hide_topics)
