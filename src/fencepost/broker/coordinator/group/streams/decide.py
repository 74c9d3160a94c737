"""Checks of a streams group's heartbeats and commits, without effects (KIP-1071).

Source: `GroupMetadataManager` and `GroupCoordinatorService` of Apache Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fencepost.broker.coordinator.group.base.requests import (
    CommitOffsets,
    CommitTransactionalOffsets,
    Refusal,
    is_blank,
)
from fencepost.broker.coordinator.group.streams.group import LEAVE_EPOCH, StreamsGroup, StreamsMember
from fencepost.broker.coordinator.group.streams.requests import StreamsHeartbeat
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.streams_group_log import StreamsMemberValue, StreamsTaskId, Subtopology, Tasks, Topology

__all__ = ["check_epoch", "check_fetch", "check_owned", "check_request", "check_topology", "merge", "refused_commits"]


def check_request(request: StreamsHeartbeat) -> Refusal | None:
    """Return the error of a request that is invalid by itself, or None."""
    problem = None
    joins = request.member_epoch == 0
    if is_blank(request.member_id):
        problem = "The member id is empty."
    elif is_blank(request.group_id):
        problem = "The group id is empty."
    elif request.instance_id is not None:
        problem = "Static members of streams groups are not supported yet."
    elif request.member_epoch < LEAVE_EPOCH:
        problem = f"A member epoch of {request.member_epoch} means nothing."
    elif is_blank(request.rack_id):
        problem = "The rack id is empty."
    elif joins and request.rebalance_timeout_ms == -1:
        problem = "A member that joins has to say its rebalance timeout."
    elif joins and request.topology is None:
        problem = "A member that joins has to say its topology."
    elif request.topology is not None and request.topology.epoch < 0:
        problem = f"A topology epoch of {request.topology.epoch} means nothing."
    elif joins and (request.owned is None or request.owned):
        problem = "A member that joins has to say that it has no tasks."
    elif not joins and request.topology is not None:
        problem = "Only a member that joins may say its topology."
    if problem is not None:
        return Refusal(ErrorCode.INVALID_REQUEST, problem)
    return None if request.topology is None else check_topology(request.topology)


def check_topology(topology: Topology) -> Refusal | None:
    """Return the error of an inconsistent topology, or None."""
    if any(part.source_regexes for part in topology.subtopologies):
        return Refusal(ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet.")
    problem = None
    names = [part.subtopology_id for part in topology.subtopologies]
    if len(set(names)) < len(names):
        problem = "Two subtopologies have the same id."
    elif not all(_indexes_fit(part) for part in topology.subtopologies):
        problem = "A copartition group names a topic that its subtopology does not have."
    return None if problem is None else Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, problem)


def _indexes_fit(part: Subtopology) -> bool:
    return all(
        0 <= index < len(topics)
        for group in part.copartition_groups
        for indexes, topics in (
            (group.source_topics, part.source_topics),
            (group.repartition_source_topics, part.repartition_source_topics),
        )
        for index in indexes
    )


def merge(wants: StreamsMemberValue, request: StreamsHeartbeat) -> StreamsMemberValue:
    """Return the member with the request's changes. Fields that the request leaves out do not change."""
    changed = replace(wants, client_id=request.client_id, client_host=request.client_host)
    if request.rack_id is not None:
        changed = replace(changed, rack_id=request.rack_id)
    if request.rebalance_timeout_ms != -1:
        changed = replace(changed, rebalance_timeout_ms=request.rebalance_timeout_ms)
    if request.topology is not None:
        changed = replace(changed, topology_epoch=request.topology.epoch)
    if request.process_id is not None:
        changed = replace(changed, process_id=request.process_id)
    if request.endpoint is not None:
        changed = replace(changed, endpoint=request.endpoint)
    if request.client_tags is not None:
        changed = replace(changed, client_tags=tuple(sorted(request.client_tags)))
    return changed


def check_epoch(member: StreamsMember, request: StreamsHeartbeat) -> Refusal | None:
    """Check the epoch: the member's own, or the one before if the reply with the new one may have been lost."""
    epoch, owned = request.member_epoch, request.owned
    if epoch in (0, member.epoch):
        return None
    contained = owned is not None and (
        set(owned.active) <= set(member.assigned.active)
        and owned.standby <= member.assigned.standby
        and owned.warmup <= member.assigned.warmup
    )
    if epoch == member.previous_epoch and contained:
        return None
    return Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member is in epoch {member.epoch}, not {epoch}: it has to give up all tasks and join again.",
    )


def check_owned(tasks: Mapping[str, int], owned: Tasks | None) -> Refusal | None:
    """Return the error if a task that the member reports does not exist, or None."""
    if owned is None:
        return None
    for subtopology, partition in (*owned.active, *owned.standby, *owned.warmup):
        if not 0 <= partition < tasks.get(subtopology, 0):
            reason = f"There is no task {partition} of subtopology {subtopology}."
            return Refusal(ErrorCode.INVALID_REQUEST, reason)
    return None


def check_fetch(group: StreamsGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Return the error of a fetch of offsets. Allowed are clients without a member, and members in their epoch."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member.epoch == epoch else ErrorCode.STALE_MEMBER_EPOCH


def refused_commits(
    group: StreamsGroup, request: CommitOffsets | CommitTransactionalOffsets
) -> dict[tuple[str, int], ErrorCode]:
    """Return the refused partitions: none, all, or those that the member has not had since its old epoch."""
    transactional = isinstance(request, CommitTransactionalOffsets)
    epoch, member = request.generation_id, group.members.get(request.member_id)
    named = [(wanted.topic, wanted.partition) for wanted in request.offsets]
    if epoch < 0 and not group.members:
        return {}
    if transactional and epoch == LEAVE_EPOCH and not request.member_id and request.group_instance_id is None:
        return {}
    if member is None:
        return dict.fromkeys(named, ErrorCode.UNKNOWN_MEMBER_ID)
    if not transactional and not request.has_member_epochs:
        return dict.fromkeys(named, ErrorCode.UNSUPPORTED_VERSION)
    if epoch == member.epoch:
        return {}
    code = ErrorCode.STALE_MEMBER_EPOCH if request.has_member_epochs else ErrorCode.ILLEGAL_GENERATION
    if epoch > member.epoch:
        return dict.fromkeys(named, code)
    return {partition: code for partition in named if not _had_since(group, member, partition, epoch)}


def _had_since(group: StreamsGroup, member: StreamsMember, topic_partition: tuple[str, int], epoch: int) -> bool:
    topic, partition = topic_partition
    for part in () if group.topology is None else group.topology.subtopologies:
        if topic in part.source_topics or any(topic == source.name for source in part.repartition_source_topics):
            task = StreamsTaskId(part.subtopology_id, partition)
            since = member.assigned.active.get(task, member.revoking.active.get(task))
            return since is not None and since <= epoch
    return False
