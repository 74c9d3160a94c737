"""A classic group in memory: its members, their parked requests, and the leader.

Nothing here is in the log. After a restart a group has the state of its last record without parked requests: members
whose join or sync was parked send it again.

Source: `ClassicGroup` and `ClassicGroupMember` of Apache Kafka 4.x.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from fencepost.broker.coordinator.group.base.requests import Joined, JoinedMember, Token
from fencepost.broker.coordinator.group.base.subscription import subscribed_topics
from fencepost.broker.coordinator.group.classic.states import GroupEvent, GroupState, step
from fencepost.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from fencepost.protocol.logs.offsets_log import GroupMetadataValue, StoredMember

__all__ = ["ClassicGroupMember", "Group"]


class ClassicGroupMember:
    """A member. Its tokens identify its parked requests; `protocols` are in its order of preference."""

    __slots__ = (
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_token",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: dict[str, bytes],
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.join_token: Token | None = None
        self.sync_token: Token | None = None
        self.is_new = False

    @property
    def keeps_session(self) -> bool:
        """Return true if the session cannot expire, because the member waits for an answer and cannot send heartbeats.

        A new member does not know its id yet and may have given up unnoticed, so its session can expire.
        """
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)


class Group:
    """A classic group's membership. Steps between states go through the table in `states.py`."""

    __slots__ = (
        "_supported",
        "_waiting_joins",
        "generation",
        "group_id",
        "initial_remaining_ms",
        "leader",
        "members",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_ids",
        "topics",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_ids: dict[str, str] = {}
        self.pending_joins: set[str] = set()  # member ids handed out whose members have not joined with them yet
        self.pending_syncs: set[str] = set()  # members of this generation without a sync yet
        self.topics: frozenset[str] | None = None  # None: not known
        self.initial_remaining_ms: int | None = None  # set while an empty group waits for more members
        self.new_member_added = False
        self._supported: Counter[str] = Counter()
        self._waiting_joins = 0

    @classmethod
    def stored(cls, group_id: str, value: GroupMetadataValue) -> Group:
        """Return a group as its record describes it, after a restart or when a member joins an empty group."""
        group = cls(group_id)
        group.state = GroupState.STABLE if value.members else GroupState.EMPTY
        group.state_timestamp_ms = value.current_state_timestamp_ms
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.leader = value.leader
        for member in value.members:
            group._restore(member, value.protocol or "")
        group.topics = group._compute_topics()
        return group

    def advance(self, event: GroupEvent, now_ms: int) -> None:
        """Take the step for `event`. Raises IllegalStep."""
        self.state = step(self.state, event)
        self.state_timestamp_ms = now_ms

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return true if a member with this type and these protocols can be in the group."""
        if self.state == GroupState.EMPTY:
            return protocol_type != "" and any(True for _ in names)
        if protocol_type != self.protocol_type:
            return False
        return any(self._supported[name] == len(self.members) for name in names)

    def add(self, member: ClassicGroupMember, protocol_type: str, token: Token) -> None:
        """Add a member whose join is parked under `token`.

        The first member sets the protocol type and becomes the leader.
        """
        if not self.members:
            self.protocol_type = protocol_type
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._supported.update(member.protocols.keys())
        self.pending_joins.discard(member.member_id)
        self.set_join_token(member, token)

    def update(
        self,
        member: ClassicGroupMember,
        protocols: dict[str, bytes],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Update a rejoining member with the request's values."""
        self._supported.subtract(member.protocols.keys())
        member.protocols = protocols
        self._supported.update(protocols.keys())
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def set_join_token(self, member: ClassicGroupMember, token: Token | None) -> None:
        """Set or clear the token of the member's parked join."""
        self._waiting_joins += (token is not None) - (member.join_token is not None)
        member.join_token = token

    def remove(self, member_id: str) -> None:
        """Remove a member or a handed-out id. Its parked requests must have been answered."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._supported.subtract(member.protocols.keys())
            self.set_join_token(member, None)
            if member.group_instance_id is not None:
                self.static_ids.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def replace_static(self, member: ClassicGroupMember, new_member_id: str) -> ClassicGroupMember:
        """Give a returning static member its new id, in the same role (KIP-345)."""
        del self.members[member.member_id]
        replacement = ClassicGroupMember(
            new_member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.protocols,
        )
        self.members[new_member_id] = replacement
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = new_member_id
        if self.leader == member.member_id:
            self.leader = new_member_id
        if member.member_id in self.pending_syncs:
            self.pending_syncs.discard(member.member_id)
            self.pending_syncs.add(new_member_id)
        return replacement

    @property
    def waiting_joins(self) -> int:
        """Number of members whose join is parked."""
        return self._waiting_joins

    @property
    def all_joined(self) -> bool:
        """Return true if every member has rejoined and every handed-out id was used."""
        return self._waiting_joins == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """Time limit of a rebalance in ms: the largest that a member requested."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect(self) -> bool:
        """Choose a leader: the current one if it has rejoined, or the first member that has.

        Return false if there is none.
        """
        if self.leader is not None and self.members[self.leader].join_token is not None:
            return True
        joined = next((m.member_id for m in self.members.values() if m.join_token is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def select_protocol(self) -> str:
        """Return the protocol preferred by most members among those that all support.

        In a tie, the earliest vote wins.
        """
        common = {name for name, count in self._supported.items() if count == len(self.members)}
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name in member.protocols if name in common)] += 1
        return max(votes, key=votes.__getitem__)

    def start_generation(self, now_ms: int) -> None:
        """End the join phase: increase the generation and choose its protocol."""
        self.generation += 1
        self.initial_remaining_ms = None
        self.new_member_added = False
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.advance(GroupEvent.ALL_JOINED, now_ms)
        else:
            self.protocol_name = None
            self.advance(GroupEvent.ALL_LEFT, now_ms)
        self.topics = self._compute_topics()

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return self.state == GroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        """True if the group has no members, and no member id has been given out."""
        return self.is_empty and not self.pending_joins

    def retention_start_ms(self, commit_ms: int) -> int | None:
        """Return when the retention of an offset begins (KIP-211); None: it does not expire.

        For an empty group the time counts from when it became empty. For a topic that a live group no longer reads, it
        counts from the commit.
        """
        if self.protocol_type is None:
            return commit_ms
        if self.is_empty:
            return commit_ms if self.state_timestamp_ms < 0 else self.state_timestamp_ms
        known = self.state == GroupState.STABLE and self.topics is not None
        return commit_ms if known and self.protocol_type == CONSUMER_PROTOCOL_TYPE else None

    def subscribes_to(self, topic: str) -> bool:
        """Return true if a member subscribes to the topic, or if a subscription of the group cannot be read."""
        if self.topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.topics

    def metadata(self, member: ClassicGroupMember) -> bytes:
        """Return the member's metadata for the chosen protocol."""
        return member.protocols[self.protocol_name] if self.protocol_name is not None else b""

    def joined(self, member: ClassicGroupMember) -> Joined:
        """Return the answer to a member's join in the current generation.

        Only the leader receives the list of members.
        """
        leads = self.leader == member.member_id
        return Joined(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader or "",
            member_id=member.member_id,
            members=self.joined_members() if leads else (),
        )

    def joined_members(self) -> list[JoinedMember]:
        """Return all members, from which the leader assigns partitions."""
        return [JoinedMember(m.member_id, m.group_instance_id, self.metadata(m)) for m in self.members.values()]

    def to_value(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        """Return the record's value for the current generation. A member without an assignment gets an empty one."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            current_state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                StoredMember(
                    m.member_id,
                    m.group_instance_id,
                    m.client_id,
                    m.client_host,
                    m.rebalance_timeout_ms,
                    m.session_timeout_ms,
                    self.metadata(m),
                    assignments.get(m.member_id, b""),
                )
                for m in self.members.values()
            ),
        )

    def _restore(self, stored: StoredMember, protocol: str) -> None:
        member = ClassicGroupMember(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout_ms,
            stored.session_timeout_ms,
            {protocol: stored.subscription},
        )
        self.members[member.member_id] = member
        self._supported.update(member.protocols.keys())
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member.member_id

    def _compute_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        return subscribed_topics(self.metadata(member) for member in self.members.values())
