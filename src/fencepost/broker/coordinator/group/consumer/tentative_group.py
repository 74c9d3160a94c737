"""The steps of a decision about a consumer group: resolve expressions, raise the epoch, assign, remove a member."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencepost.broker.coordinator.group.base.draft import Draft
from fencepost.broker.coordinator.group.base.member_states import MemberEvent, MemberState, member_step
from fencepost.broker.coordinator.group.base.records import GroupRecord
from fencepost.broker.coordinator.group.base.topics import Topics, metadata_hash
from fencepost.broker.coordinator.group.consumer.assignors import ASSIGNORS, Assignee
from fencepost.broker.coordinator.group.consumer.group import ConsumerGroup, ConsumerMember
from fencepost.protocol.logs.consumer_group_log import (
    ConsumerGroupKey,
    ConsumerGroupLogKey,
    ConsumerGroupValue,
    CurrentAssignmentKey,
    MemberKey,
    RegexKey,
    RegexValue,
    TargetKey,
    TargetMemberKey,
    TargetMemberValue,
    TargetValue,
)
from fencepost.protocol.re2 import compile_pattern

__all__ = ["TentativeGroup", "tombstones"]


class TentativeGroup(Draft[ConsumerGroup]):
    """A group with the records of one decision."""

    __slots__ = ("_assignors", "_now_ms", "_topics", "topics_changed")

    def __init__(
        self, group: ConsumerGroup, topics: Topics, now_ms: int, assignors: Sequence[str], *, topics_changed: bool
    ) -> None:
        """Copy the group.

        `topics_changed`: topics may have changed since it was last checked. `assignors[0]` is the default.
        """
        super().__init__(group)
        self._topics = topics
        self._now_ms = now_ms
        self._assignors = assignors
        self.topics_changed = topics_changed

    def remove(self, member: ConsumerMember) -> None:
        """Add the records that remove a member."""
        member_step(MemberState.AWAY if member.away else member.state, MemberEvent.REMOVED)
        for key in _keys_of(self.group.group_id, member.member_id):
            self.write(key, None)

    def look_up(self, may_see: Callable[[str], bool]) -> bool:
        """Resolve the members' patterns. Return true if any now matches other topics. Raises InvalidPattern."""
        used = {member.wants.topic_regex for member in self.group.members.values() if member.wants.topic_regex}
        changed = False
        self.drop_unused_regexes()
        for regex in sorted(filter(None, used)):
            pattern = compile_pattern(regex)
            found = tuple(sorted(name for name in self._topics.names() if pattern.matches(name) and may_see(name)))
            known = self.group.regexes.get(regex)
            if known is None or known.topics != found:
                changed = True
                self.write(RegexKey(self.group.group_id, regex), RegexValue(found, self._topics.version, self._now_ms))
        return changed

    def drop_unused_regexes(self) -> None:
        """Remove expressions without subscribers."""
        used = {member.wants.topic_regex for member in self.group.members.values()}
        for regex in sorted(self.group.regexes.keys() - used):
            self.write(RegexKey(self.group.group_id, regex), None)

    def next_epoch(self, *, forced: bool) -> None:
        """Raise the group's epoch if `forced`, or if its topics have changed."""
        digest = metadata_hash(self._topics, self._subscribed())
        if forced or digest != self.group.metadata_hash:
            value = ConsumerGroupValue(self.group.epoch + 1, digest)
            self.write(ConsumerGroupKey(self.group.group_id), value)

    def assign(self) -> None:
        """Make the target assignment of the group's epoch, if it does not exist yet."""
        group = self.group
        if group.epoch <= group.assignment_epoch:
            return
        found = {name: self._topics.find(name) for name in self._subscribed()}
        counts = {known[0]: known[1] for known in found.values() if known is not None}
        ids = {name: known[0] for name, known in found.items() if known is not None}
        members = [
            Assignee(
                member.member_id,
                member.wants.instance_id,
                frozenset(ids[name] for name in group.topics_of(member.wants) if name in ids),
                group.target_of(member.member_id),
            )
            for member in group.members.values()
        ]
        shares = ASSIGNORS[group.assignor(self._assignors[0])](members, counts)
        for member_id, share in sorted(shares.items()):
            if share != group.target.get(member_id):
                self.write(TargetMemberKey(group.group_id, member_id), TargetMemberValue(share))
        self.write(TargetKey(group.group_id), TargetValue(group.epoch, self._now_ms))

    def _subscribed(self) -> set[str]:
        names: set[str] = set()
        for member in self.group.members.values():
            names |= self.group.topics_of(member.wants)
        return names


def tombstones(group: ConsumerGroup) -> list[GroupRecord]:
    """Return the records that delete a group and all of its members."""
    keys: list[ConsumerGroupLogKey] = []
    for member_id in group.members:
        keys.extend(_keys_of(group.group_id, member_id))
    keys.extend(RegexKey(group.group_id, regex) for regex in sorted(group.regexes))
    keys += [TargetKey(group.group_id), ConsumerGroupKey(group.group_id)]
    return [GroupRecord(key, None) for key in keys]


def _keys_of(group_id: str, member_id: str) -> list[ConsumerGroupLogKey]:
    return [
        CurrentAssignmentKey(group_id, member_id),
        TargetMemberKey(group_id, member_id),
        MemberKey(group_id, member_id),
    ]
