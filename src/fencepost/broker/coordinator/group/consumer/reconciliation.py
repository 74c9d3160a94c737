"""Reconciliation of a consumer group's member with its target: first revoke, then move to the next epoch (KIP-848).

Source: `CurrentAssignmentBuilder` of Apache Kafka 4.3.1. One difference: a partition that the target takes from a
member and returns before another member owned it is assigned again at once.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from fencepost.broker.coordinator.group.consumer.group import AWAY_EPOCH, ConsumerMember
from fencepost.broker.coordinator.group.consumer.states import MemberEvent, MemberState, member_step
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition

__all__ = ["owes", "reconcile", "step_out"]

_NOTHING: Mapping[TopicIdPartition, int] = {}


def owes(revoking: Container[TopicIdPartition], owned: frozenset[TopicIdPartition] | None) -> bool:
    """Return true if the member still owns partitions that it must revoke.

    True if the request does not list its partitions.
    """
    return owned is None or any(partition in revoking for partition in owned)


def reconcile(
    member: ConsumerMember,
    target: frozenset[TopicIdPartition],
    target_epoch: int,
    owned: frozenset[TopicIdPartition] | None,
    owners: Mapping[TopicIdPartition, str],
) -> ConsumerMember:
    """Return the member one step closer to its target, or unchanged if it cannot move.

    `owned` has the partitions that the member reports. `owners` has the member that owns each partition or has not
    revoked it.
    """
    if member.state == MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state == MemberState.UNREVOKED and owes(member.revoking, owned):
        return member
    kept = {partition: epoch for partition, epoch in member.assigned.items() if partition in target}
    taken = {partition: epoch for partition, epoch in member.assigned.items() if partition not in target}
    if taken and owes(taken, owned):
        state = member_step(member.state, MemberEvent.OWES)
        return replace(member, state=state, assigned=kept, revoking=taken)
    wanted = target.difference(kept)
    free = {partition for partition in wanted if owners.get(partition, member.member_id) == member.member_id}
    waits = len(free) < len(wanted)
    return replace(
        member,
        state=member_step(member.state, MemberEvent.WAITS if waits else MemberEvent.RECONCILED),
        epoch=target_epoch,
        previous_epoch=member.previous_epoch if member.epoch == target_epoch else member.epoch,
        assigned={**kept, **dict.fromkeys(sorted(free), target_epoch)},
        revoking=_NOTHING,
    )


def step_out(member: ConsumerMember) -> ConsumerMember:
    """Let a static member leave temporarily. It keeps its partitions, except for those it had to revoke."""
    member_step(MemberState.AWAY if member.away else member.state, MemberEvent.STEPPED_OUT)
    return replace(member, state=MemberState.STABLE, epoch=AWAY_EPOCH, revoking=_NOTHING)
