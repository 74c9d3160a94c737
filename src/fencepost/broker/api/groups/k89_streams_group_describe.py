"""StreamsGroupDescribe, v0-1 (KIP-1071): state, epochs, topology and members of streams groups.

v1 adds the assignor, and a description of the topology (KIP-1331), of which this broker stores none.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.broker.api.common import authorized_operations
from fencepost.broker.api.groups.member_topics import sees_all
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.streams.group import StreamsMember
from fencepost.broker.coordinator.group.streams.membership import StreamsGroups
from fencepost.broker.security.acls import ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs import streams_group_log as log
from fencepost.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

__all__ = ["HANDLER"]

_NOT_REQUESTED, _NOT_STORED = 0, 1
_ASSIGNOR = "sticky"


def _handle(call: Call, now_ms: int, request: StreamsGroupDescribeRequest) -> StreamsGroupDescribeResponse:
    """Describe each group."""
    operations = request.include_authorized_operations
    asked_for = request.include_topology_description
    return StreamsGroupDescribeResponse(
        groups=[_describe(call, group_id, operations, asked_for) for group_id in request.group_ids]
    )


def _describe(call: Call, group_id: str, operations: bool, topology_description: bool) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    described = call.core.groups.coordinator.describe(StreamsGroups, group_id)
    return DescribedGroup(
        error_code=described.error_code,
        error_message=described.error_message,
        group_id=group_id,
        group_state="" if described.error_code else described.state,
        group_epoch=described.epoch,
        assignment_epoch=described.assignment_epoch,
        topology=None if described.topology is None else _topology(described.topology),
        topology_description_status=_NOT_STORED
        if topology_description and not described.error_code
        else _NOT_REQUESTED,
        assignor_name=None if described.error_code else _ASSIGNOR,
        members=[_member(member, target) for member, target in described.members],
        authorized_operations=authorized_operations(
            call, ResourceType.GROUP, group_id, requested=operations and not described.error_code
        ),
    )


def _topology(topology: log.Topology) -> Topology:
    return Topology(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=part.source_topics,
                repartition_sink_topics=part.repartition_sink_topics,
                state_changelog_topics=[_topic(topic) for topic in part.changelog_topics],
                repartition_source_topics=[_topic(topic) for topic in part.repartition_source_topics],
            )
            for part in topology.subtopologies
        ],
    )


def _topic(topic: log.InternalTopic) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=_pairs(topic.configs),
    )


def _pairs(pairs: Iterable[tuple[str, str]]) -> list[KeyValue]:
    return [KeyValue(key=name, value=value) for name, value in pairs]


def _member(member: StreamsMember, target: log.Tasks) -> Member:
    wants = member.wants
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=wants.instance_id,
        rack_id=wants.rack_id,
        client_id=wants.client_id,
        client_host=wants.client_host,
        topology_epoch=wants.topology_epoch,
        process_id=wants.process_id,
        user_endpoint=None if wants.endpoint is None else Endpoint(host=wants.endpoint.host, port=wants.endpoint.port),
        client_tags=_pairs(wants.client_tags),
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: log.Tasks) -> Assignment:
    return Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: Iterable[log.StreamsTaskId]) -> list[TaskIds]:
    by_part: dict[str, list[int]] = {}
    for subtopology, partition in sorted(tasks):
        by_part.setdefault(subtopology, []).append(partition)
    return [TaskIds(subtopology_id=part, partitions=partitions) for part, partitions in by_part.items()]


def _hide_topics(call: Call, response: StreamsGroupDescribeResponse) -> StreamsGroupDescribeResponse:
    for group in response.groups:
        parts = () if group.topology is None else group.topology.subtopologies or ()
        names = {name for part in parts for name in (*part.source_topics, *part.repartition_sink_topics)}
        names |= {
            topic.name for part in parts for topic in (*part.state_changelog_topics, *part.repartition_source_topics)
        }
        if not sees_all(call, sorted(names)):
            group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            group.error_message = "The group uses topics that the client may not describe."
            group.members, group.topology = (), None
    return response


HANDLER = Handler(_handle, hide=_hide_topics)
