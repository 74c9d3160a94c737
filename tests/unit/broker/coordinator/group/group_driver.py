"""A caller of the group coordinator, as the broker core is one: it appends, replays, and keeps the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar
from uuid import NAMESPACE_OID, UUID, uuid5

from fencepost.broker.coordinator.group.base.records import GroupRecord
from fencepost.broker.coordinator.group.base.requests import (
    CommitOffsets,
    CommitTransactionalOffsets,
    FetchOffsets,
    GroupResult,
    Heartbeat,
    Join,
    Joined,
    Leave,
    LeavingMember,
    Left,
    PartitionOffset,
    Synced,
    SyncGroup,
)
from fencepost.broker.coordinator.group.classic.membership import ClassicGroups
from fencepost.broker.coordinator.group.coordinator import GroupCoordinator
from fencepost.broker.coordinator.group.log import decode_record, encode_record
from fencepost.broker.settings.values import BrokerConfig, GroupSettings
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.partitioning import coordinator_partition

R = TypeVar("R")
Marker = tuple[int, int, bool, int]


def subscription(*topics: str) -> bytes:
    """ConsumerProtocolSubscription v0: int16 version, array of topics, null user data."""
    encoded = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + encoded + b"\xff\xff\xff\xff"


class FakeTopics:
    """The topics that there are; ids are made from the names."""

    def __init__(self, **partitions: int) -> None:
        self.partitions = dict(partitions)
        self.changes = 0

    @property
    def version(self) -> int:
        return self.changes

    def names(self) -> list[str]:
        return list(self.partitions)

    def find(self, name: str) -> tuple[UUID, int] | None:
        count = self.partitions.get(name)
        return None if count is None else (topic_id(name), count)

    def name_of(self, wanted: UUID) -> str | None:
        return next((name for name in self.partitions if topic_id(name) == wanted), None)

    def change(self, name: str, count: int | None) -> None:
        """Create, grow or (None) delete a topic."""
        self.changes += 1
        if count is None:
            del self.partitions[name]
        else:
            self.partitions[name] = count


def topic_id(name: str) -> UUID:
    return uuid5(NAMESPACE_OID, name)


class FakeSettings:
    """The product's settings, with those that a test gives, and those of a group."""

    def __init__(self, given: Mapping[str, object] | None = None, of_group: Mapping[str, str] | None = None) -> None:
        config = BrokerConfig(given)
        self.number, self.text = config.number, config.text
        self._group = GroupSettings(of_group or {}, config)

    def of_group(self, group_id: str) -> GroupSettings:
        return self._group


class Driver:
    """A coordinator with its log in memory (as encoded bytes) and a clock that the test sets."""

    def __init__(
        self,
        given: Mapping[str, object] | None = None,
        log: list[GroupRecord | Marker] | None = None,
        now_ms: int = 1_000,
        topics: FakeTopics | None = None,
        uuids: int = 0,
    ) -> None:
        self.topics = topics or FakeTopics()
        self._given = given
        self.settings = FakeSettings(given)
        self._uuids = uuids
        self.now_ms = now_ms
        self.log: list[GroupRecord | Marker] = []
        self.answers: dict[object, Joined | Synced] = {}
        self.answered: Counter[object] = Counter()
        self.parked = 0
        self.disk_is_full = False  # records are not written, and who asked gets no answer
        self.coordinator = GroupCoordinator(self.settings, self._uuid, self.topics)
        for entry in log or []:
            self._append(entry)
        self.done(self.coordinator.load(self.now_ms))

    def _uuid(self) -> str:
        self._uuids += 1
        return f"uuid{self._uuids}"

    def _append(self, entry: GroupRecord | Marker) -> None:
        offset = len(self.log)
        self.log.append(entry)
        if isinstance(entry, GroupRecord):
            key, value = encode_record(entry)
            read = decode_record(key, value, entry.producer_id, entry.producer_epoch)
            if read is None:
                raise ValueError(f"{entry} does not read back")
            self.coordinator.replay(read, offset)
        else:
            self.coordinator.complete_transaction(*entry)

    def done(self, result: GroupResult[R]) -> R:
        """Write a result's records and store its answers, as the core does. Return the reply."""
        if self.disk_is_full and result.records:
            return result.reply
        for record in result.records:
            self._append(record)
        for token, answer in result.replies:
            self.answered[token] += 1
            self.answers[token] = answer
        return result.reply

    def restarted(self) -> Driver:
        """Another coordinator that loads the same log. No id is given out twice."""
        return Driver(self._given, self.log, self.now_ms, self.topics, self._uuids)

    def knows(self, group_id: str) -> bool:
        return any(group.group_id == group_id for group in self.coordinator.list_groups())

    def token(self) -> object:
        self.parked += 1
        return self.parked

    def park_join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", subscription("t")),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
    ) -> object:
        """Send a JoinGroup; returns its token."""
        token = self.token()
        request = Join(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            api_version=version,
        )
        self.done(self.coordinator.join_group(self.now_ms, request, token))
        return token

    def joined(self, token: object) -> Joined:
        answer = self.answers[token]
        if not isinstance(answer, Joined):
            raise TypeError(f"{answer} is no answer to a join")
        return answer

    def synced(self, token: object) -> Synced:
        answer = self.answers[token]
        if not isinstance(answer, Synced):
            raise TypeError(f"{answer} is no answer to a sync")
        return answer

    def waits(self, token: object) -> bool:
        return token not in self.answers

    def join(self, member_id: str = "", **arguments: object) -> Joined:
        """A JoinGroup that is answered at once."""
        return self.joined(self.park_join(member_id, **arguments))  # type: ignore[arg-type]

    def new_member(self, **arguments: object) -> object:
        """A new member's two joins of KIP-394; returns the second one's token."""
        first = self.join("", **arguments)
        if first.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            raise ValueError(f"expected MEMBER_ID_REQUIRED, not {first}")
        return self.park_join(first.member_id, **arguments)  # type: ignore[arg-type]

    def park_sync(
        self,
        member_id: str,
        generation: int,
        assignments: Sequence[tuple[str, bytes]] = (),
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> object:
        """Send a SyncGroup; returns its token."""
        token = self.token()
        request = SyncGroup(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=assignments,
        )
        self.done(self.coordinator.sync_group(self.now_ms, request, token))
        return token

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> ErrorCode:
        request = Heartbeat(group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance)
        return self.done(self.coordinator.member_heartbeat(self.now_ms, request))

    def leave(self, *members: LeavingMember, group: str = "g") -> Left:
        return self.done(self.coordinator.leave_group(self.now_ms, Leave(group_id=group, members=members)))

    def wait(self, for_ms: int) -> None:
        """Let time pass; the coordinator is called whenever it wanted to be."""
        until_ms = self.now_ms + for_ms
        while (due := self.coordinator.next_deadline_ms()) is not None and due <= until_ms:
            self.now_ms = max(self.now_ms, due)
            self.done(self.coordinator.on_time(self.now_ms))
        self.now_ms = until_ms

    def commit(
        self,
        offset: int,
        *,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        topic: str = "t",
        partition: int = 0,
        metadata: str | None = None,
        retention_ms: int = -1,
        version: int = 8,
    ) -> ErrorCode:
        request = CommitOffsets(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            offsets=[PartitionOffset(topic=topic, partition=partition, offset=offset, metadata=metadata)],
            retention_ms=retention_ms,
            api_version=version,
        )
        (answer,) = self.done(self.coordinator.commit_offsets(self.now_ms, request))
        return answer.error_code

    def txn_commit(
        self,
        offset: int,
        *,
        producer: tuple[int, int] = (7, 0),
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        topic: str = "t",
        partition: int = 0,
    ) -> ErrorCode:
        request = CommitTransactionalOffsets(
            group_id=group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            offsets=[PartitionOffset(topic=topic, partition=partition, offset=offset)],
        )
        (answer,) = self.done(self.coordinator.commit_offsets(self.now_ms, request))
        return answer.error_code

    def partition_of(self, group: str = "g") -> int:
        return coordinator_partition(group, self.settings.number("offsets.topic.num.partitions"))

    def marker(self, *, commit: bool, producer: tuple[int, int] = (7, 1), group: str = "g") -> None:
        """Write a marker to the partition of the group (TV2: under the epoch after that of the transaction)."""
        self._append((producer[0], producer[1], commit, self.partition_of(group)))

    def fetch(
        self,
        *,
        group: str = "g",
        partitions: Sequence[tuple[str, int]] | None = (("t", 0),),
        stable: bool = False,
        version: int = 9,
    ) -> tuple[ErrorCode, list[tuple[str, int, int, ErrorCode]]]:
        """(group error, [(topic, partition, offset, error)])."""
        request = FetchOffsets(group_id=group, partitions=partitions, require_stable=stable, api_version=version)
        answer = self.coordinator.fetch_offsets(request)
        return answer.error_code, [(o.topic, o.partition, o.offset, o.error_code) for o in answer.offsets]

    def state(self, group: str = "g") -> str:
        return self.coordinator.describe(ClassicGroups, group).group_state

    def stable_pair(self, **arguments: object) -> tuple[str, str, int]:
        """A stable group of two; returns (leader, follower, generation)."""
        first = self.joined(self.new_member(**arguments))
        second = self.new_member(**arguments)
        rejoin = self.park_join(first.member_id, **arguments)  # type: ignore[arg-type]
        leader, follower = self.joined(rejoin), self.joined(second)
        generation = leader.generation_id
        waiting = self.park_sync(follower.member_id, generation)
        shares = [(leader.member_id, b"L"), (follower.member_id, b"F")]
        self.park_sync(leader.member_id, generation, shares)
        if self.synced(waiting).assignment != b"F":
            raise ValueError("the follower did not get its share")
        return leader.member_id, follower.member_id, generation
