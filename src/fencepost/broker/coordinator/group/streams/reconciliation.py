"""Reconciliation of a streams group's member with its target (KIP-1071).

A task is active in one member at a time. A process has a task once, active or not, because its state is in one
directory. Source: `CurrentAssignmentBuilder` of Apache Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fencepost.broker.coordinator.group.base import reconciliation
from fencepost.broker.coordinator.group.base.reconciliation import Holding
from fencepost.broker.coordinator.group.streams.group import StreamsGroup, StreamsMember
from fencepost.protocol.logs.streams_group_log import StreamsTaskId, Tasks

__all__ = ["reconcile"]

_ACTIVE, _STANDBY, _WARMUP = "active", "standby", "warmup"

RoleAndTask = tuple[str, StreamsTaskId]


def reconcile(group: StreamsGroup, member: StreamsMember, owned: Tasks | None) -> StreamsMember:
    """Return the member one step closer to its target, or unchanged if it cannot move.

    `owned`: the tasks it reports.
    """

    def is_free(item: RoleAndTask) -> bool:
        role, task = item
        for other, is_active in group.owners(task, member.member_id):
            if (role == _ACTIVE and is_active) or other.wants.process_id == member.wants.process_id:
                return False
        return True

    before = Holding(member.state, member.epoch, member.previous_epoch, _flat(member.assigned), _flat(member.revoking))
    reported = None if owned is None else _flat(owned)
    target = _flat(group.target_of(member.member_id))
    after = reconciliation.reconcile(before, target, group.assignment_epoch, reported, is_free)
    if after is before:
        return member
    return replace(
        member,
        state=after.state,
        epoch=after.epoch,
        previous_epoch=after.previous_epoch,
        assigned=_tasks(after.assigned),
        revoking=_tasks(after.revoking),
    )


def _flat(tasks: Tasks) -> dict[RoleAndTask, int]:
    """Return the tasks with their roles, and the epochs of active ones."""
    flat = {(_ACTIVE, task): epoch for task, epoch in tasks.active.items()}
    flat.update(((_STANDBY, task), 0) for task in tasks.standby)
    flat.update(((_WARMUP, task), 0) for task in tasks.warmup)
    return flat


def _tasks(flat: Mapping[RoleAndTask, int]) -> Tasks:
    return Tasks(
        {task: epoch for (role, task), epoch in flat.items() if role == _ACTIVE},
        frozenset(task for role, task in flat if role == _STANDBY),
        frozenset(task for role, task in flat if role == _WARMUP),
    )
