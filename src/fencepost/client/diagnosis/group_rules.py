"""Findings about groups: rebalances, missing members, progress, and lag that a transaction causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Final, NamedTuple

from fencepost.client.admin.group_descriptions import GroupDescription
from fencepost.client.admin.groups import GroupListing
from fencepost.client.diagnosis.facts import Facts
from fencepost.client.diagnosis.findings import DAMAGED, Finding, ObjectKind
from fencepost.client.diagnosis.holding import Cause, HeldBack, partition_name, partition_words
from fencepost.client.diagnosis.limits import Limits
from fencepost.client.types import TopicPartition
from fencepost.counted import counted_noun
from fencepost.errors import KafkaError

__all__ = ["REBALANCING", "Lag", "damage_findings", "group_findings", "lags_of", "phase_of"]

MOST_NAMED: Final = 3
REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


class Lag(NamedTuple):
    """Lag of a group in a partition. `waiting` is its part that readers of committed records cannot read yet."""

    committed: int
    end: int
    waiting: int
    held: HeldBack | None

    @property
    def total(self) -> int:
        """Offsets between the committed one and the end."""
        return max(self.end - self.committed, 0)


def phase_of(state: str) -> str:
    """Return the state, with one name for all states of a rebalance. A group that changes between these is stuck."""
    return "rebalance" if state in REBALANCING else state


def lags_of(
    facts: Facts, held: Mapping[TopicPartition, HeldBack], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Lag]:
    """Return the lag of each partition whose end is known.

    A group that has committed an offset after the last stable offset reads uncommitted records. It waits for no
    transaction.
    """
    found = {}
    for partition, at in sorted(committed.items()):
        if partition in facts.ends:
            ends = facts.ends[partition]
            waiting = ends.end - ends.stable if at <= ends.stable else 0
            found[partition] = Lag(at, ends.end, waiting, held.get(partition) if waiting else None)
    return found


def group_findings(facts: Facts, held: Mapping[TopicPartition, HeldBack], limits: Limits) -> Iterator[Finding]:
    """Yield the findings about groups of the classic and the consumer protocol."""
    for listing in facts.groups:
        committed = facts.committed.get(listing.group_id, {})
        lags = {} if isinstance(committed, KafkaError) else lags_of(facts, held, committed)
        behind = {partition: lag for partition, lag in lags.items() if lag.total > 0}
        yield from _state(facts, listing, behind, limits)
        described = facts.members.get(listing.group_id)
        if described is not None and listing.state == "Stable":
            yield from _members(facts, described, behind, limits)
        yield from _waiting(facts, listing.group_id, behind, limits)


def damage_findings(facts: Facts) -> Iterator[Finding]:
    """Yield the findings about records that cannot be read, where groups stand."""
    for partition, damage in sorted(facts.damaged.items()):
        stopped = [
            group
            for group, committed in facts.committed.items()
            if not isinstance(committed, KafkaError) and 0 <= committed.get(partition, -1) <= damage.offset
        ]
        words = f"the records from offset {damage.offset} on cannot be read: {damage.reason}"
        after = damage.offset + 1 if damage.next_offset is None else damage.next_offset
        action = "see the broker's log and its disk"
        if stopped:
            skip = f"--to {after} --topic {partition.topic}:{partition.partition}"
            action += f"; to skip them: fencepost groups reset-offsets {quote(stopped[0])} {skip}"
        holds = tuple(f"group {group}" for group in stopped[:MOST_NAMED])
        yield Finding(DAMAGED, ObjectKind.PARTITION, partition_name(partition), words, None, holds, action)


def _state(
    facts: Facts, listing: GroupListing, behind: Mapping[TopicPartition, Lag], limits: Limits
) -> Iterator[Finding]:
    name, state = listing.group_id, listing.state
    since_ms = facts.since.get(("group", name, phase_of(state)), facts.at_ms)
    holds = (f"{_total(behind)} in {partition_words(behind, MOST_NAMED)}",) if behind else ()
    snapshot = f"fencepost groups describe {quote(name)} --members"
    if state in REBALANCING and facts.at_ms - since_ms >= limits.rebalance_ms:
        late = _late(facts.members.get(name))
        words = f"it stays in state {state}" + (f"; it waits for {', '.join(late[:MOST_NAMED])}" if late else "")
        yield Finding("FP501", ObjectKind.GROUP, name, words, since_ms, holds, snapshot)
    if state == "Empty" and behind:
        words = f"it has no members and is {_total(behind)} behind"
        action = f"start its consumers; if it is not used any more: fencepost groups delete {quote(name)}"
        yield Finding(
            "FP502", ObjectKind.GROUP, name, words, since_ms if since_ms < facts.at_ms else None, holds, action
        )


def _late(described: GroupDescription | None) -> list[str]:
    """Return the members that have not taken the group's assignment (consumer protocol)."""
    if described is None or described.epoch < 0:
        return []
    return [
        f"{member.client_id} at {member.client_host}"
        for member in described.members
        if member.epoch < described.epoch or set(member.assigned) != set(member.target)
    ]


def _members(
    facts: Facts, described: GroupDescription, behind: Mapping[TopicPartition, Lag], limits: Limits
) -> Iterator[Finding]:
    name = described.group_id
    snapshot = f"fencepost groups describe {quote(name)} --members"
    owners = {partition: member for member in described.members for partition in member.assigned}
    unread = [partition for partition in behind if partition not in owners]
    if unread and owners:
        count = counted_noun(sum(behind[partition].total for partition in unread), "offset")
        words = f"no member reads {partition_words(unread, MOST_NAMED)}, where it is {count} behind"
        yield Finding("FP503", ObjectKind.GROUP, name, words, None, (count,), snapshot)
    for partition, lag in behind.items():
        since_ms = facts.since.get(("progress", name, partition_name(partition), str(lag.committed)), facts.at_ms)
        if partition in owners and lag.total > lag.waiting and facts.at_ms - since_ms >= limits.stalled_ms:
            member = owners[partition]
            words = (
                f"its member {member.client_id} at {member.client_host} has committed nothing of "
                f"{partition_name(partition)} since offset {lag.committed}, "
                f"{counted_noun(lag.total - lag.waiting, 'offset')} before the last that it can read"
            )
            yield Finding("FP504", ObjectKind.GROUP, name, words, since_ms, (partition_name(partition),), snapshot)


def _waiting(facts: Facts, name: str, behind: Mapping[TopicPartition, Lag], limits: Limits) -> Iterator[Finding]:
    """Yield a finding if lag that only a transaction causes lasts longer than a usual transaction."""
    waiting = {
        partition: lag for partition, lag in behind.items() if lag.held is not None and _lasts(facts, lag.held, limits)
    }
    stopped = {partition: lag for partition, lag in waiting.items() if lag.total == lag.waiting}
    if not stopped:
        return
    count, total = sum(lag.waiting for lag in stopped.values()), _total(behind)
    holders = dict.fromkeys(lag.held.words for lag in stopped.values() if lag.held is not None)
    waits = "waits" if count == 1 else "wait"
    words = f"{count} of its {total} of lag, in {partition_words(stopped, MOST_NAMED)}, {waits} for " + ", ".join(
        list(holders)[:MOST_NAMED]
    )
    yield Finding("FP505", ObjectKind.GROUP, name, words, None, (), "end the transaction: fencepost transactions list")


def _lasts(facts: Facts, held: HeldBack, limits: Limits) -> bool:
    if held.cause is Cause.HANGING:
        return True
    began_ms = -1 if held.transaction is None else held.transaction.start_time_ms
    return began_ms >= 0 and facts.at_ms - began_ms >= limits.open_ms


def _total(behind: Mapping[TopicPartition, Lag]) -> str:
    return counted_noun(sum(lag.total for lag in behind.values()), "offset")
