"""Reconciliation of a member with its target: first revoke, then move to the next epoch (KIP-848, KIP-1071).

The items are the partitions of a consumer or the tasks of a stream processor.

Source: `CurrentAssignmentBuilder` of Apache Kafka 4.3.1, of which Kafka has one for each kind. One difference: an item
that the target takes from a member and returns before another member owned it is assigned again at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from fencepost.broker.coordinator.group.base.member_states import MemberEvent, MemberState, member_step

__all__ = ["Holding", "reconcile"]

Item = TypeVar("Item", bound=tuple[Any, ...])


class Holding(NamedTuple, Generic[Item]):
    """The items of a member. `assigned` and `revoking` have for each the member epoch at which it was assigned."""

    state: MemberState
    epoch: int
    previous_epoch: int
    assigned: Mapping[Item, int]
    revoking: Mapping[Item, int]


def reconcile(
    member: Holding[Item],
    target: Collection[Item],
    target_epoch: int,
    owned: Collection[Item] | None,
    is_free: Callable[[Item], bool],
) -> Holding[Item]:
    """Return the member one step closer to its target, or the same object if it cannot move.

    `owned` has the items that the member reports. `is_free` returns false for an item that another member owns or has
    not revoked.
    """
    if member.state == MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state == MemberState.UNREVOKED and _must_still_revoke(member.revoking, owned):
        return member
    retained = {item: epoch for item, epoch in member.assigned.items() if item in target}
    taken = {item: epoch for item, epoch in member.assigned.items() if item not in target}
    if taken and _must_still_revoke(taken, owned):
        return member._replace(
            state=member_step(member.state, MemberEvent.MUST_REVOKE), assigned=retained, revoking=taken
        )
    wanted = [item for item in target if item not in retained]
    free = [item for item in wanted if is_free(item)]
    event = MemberEvent.MUST_WAIT if len(free) < len(wanted) else MemberEvent.RECONCILED
    return Holding(
        state=member_step(member.state, event),
        epoch=target_epoch,
        previous_epoch=member.previous_epoch if member.epoch == target_epoch else member.epoch,
        assigned={**retained, **dict.fromkeys(sorted(free), target_epoch)},
        revoking={},
    )


def _must_still_revoke(revoking: Container[Item], owned: Collection[Item] | None) -> bool:
    """Return true if the member still owns items that it must revoke.

    True if the request does not list its items.
    """
    return owned is None or any(item in revoking for item in owned)
