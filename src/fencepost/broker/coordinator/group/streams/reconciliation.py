"""Reconciliation of a streams group's member with its target: first revoke, then move to the next epoch (KIP-1071).

A task is active in one member at a time. A process has a task once, active or not, because its state is in one
directory. Source: `CurrentAssignmentBuilder` of Apache Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fencepost.broker.coordinator.group.streams.group import NO_TASKS, StreamsGroup, StreamsMember, StreamsMemberState
from fencepost.protocol.logs.streams_group_log import StreamsTaskId, Tasks

__all__ = ["reconcile"]


def reconcile(group: StreamsGroup, member: StreamsMember, owned: Tasks | None) -> StreamsMember:
    """Return the member one step closer to its target, or unchanged if it cannot move.

    `owned`: the tasks it reports.
    """
    goal_epoch = group.assignment_epoch
    if member.state is StreamsMemberState.STABLE and member.epoch == goal_epoch:
        return member
    if member.state is StreamsMemberState.UNREVOKED and _owes(member.revoking, owned):
        return member
    target = group.target_of(member.member_id)
    kept = Tasks(
        {task: epoch for task, epoch in member.assigned.active.items() if task in target.active},
        member.assigned.standby & target.standby,
        member.assigned.warmup & target.warmup,
    )
    taken = Tasks(
        {task: epoch for task, epoch in member.assigned.active.items() if task not in target.active},
        member.assigned.standby - target.standby,
        member.assigned.warmup - target.warmup,
    )
    if taken and _owes(taken, owned):
        return replace(member, state=StreamsMemberState.UNREVOKED, assigned=kept, revoking=taken)
    active = _free(group, member, set(target.active) - set(kept.active), active=True)
    standby = _free(group, member, target.standby - kept.standby, active=False)
    warmup = _free(group, member, target.warmup - kept.warmup, active=False)
    wanted = len(target.active) + len(target.standby) + len(target.warmup)
    assigned = Tasks(
        {**kept.active, **dict.fromkeys(sorted(active), goal_epoch)}, kept.standby | standby, kept.warmup | warmup
    )
    waits = len(assigned.active) + len(assigned.standby) + len(assigned.warmup) < wanted
    return replace(
        member,
        state=StreamsMemberState.UNRELEASED if waits else StreamsMemberState.STABLE,
        epoch=goal_epoch,
        previous_epoch=member.previous_epoch if member.epoch == goal_epoch else member.epoch,
        assigned=assigned,
        revoking=NO_TASKS,
    )


def _owes(tasks: Tasks, owned: Tasks | None) -> bool:
    """Return true if the member still has tasks that it must revoke. True if the request does not list its tasks."""
    if owned is None:
        return True
    return bool(set(owned.active) & set(tasks.active) or owned.standby & tasks.standby or owned.warmup & tasks.warmup)


def _free(
    group: StreamsGroup, member: StreamsMember, wanted: Iterable[StreamsTaskId], *, active: bool
) -> frozenset[StreamsTaskId]:
    """Return the wanted tasks that no other member blocks."""

    def is_free(task: StreamsTaskId) -> bool:
        for other, is_active in group.owners(task, member.member_id):
            if (active and is_active) or other.wants.process_id == member.wants.process_id:
                return False
        return True

    return frozenset(task for task in wanted if is_free(task))
