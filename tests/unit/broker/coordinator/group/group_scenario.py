"""One story of several groups, told to any coordinator; what it answers is kept as plain values that can be compared.

`World` is what the story needs. `DriverWorld` is our coordinator alone, `WireWorld` a broker behind a socket.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from fencepost.broker.coordinator.group.base.requests import CommitOffsets, LeavingMember, PartitionOffset, SyncGroup
from fencepost.broker.coordinator.group.classic.membership import ClassicGroups
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.delete_groups import DeleteGroupsRequest
from fencepost.protocol.messages.describe_groups import DescribeGroupsRequest
from fencepost.protocol.messages.find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.heartbeat import HeartbeatRequest
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fencepost.protocol.messages.list_groups import ListGroupsRequest
from fencepost.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fencepost.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.raw_client import RawClient
from tests.unit.broker.coordinator.group.group_driver import Driver, subscription

Protocols = Sequence[tuple[str, bytes]]
Answer = list[Any]
RANGE: Protocols = [("range", subscription("t"))]
PASSING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
UUID_LENGTH = 36


class World(ABC):
    """Each method asks once and returns [error code, further fields...]; member ids get the short names M1, M2, ..."""

    def __init__(self) -> None:
        self.answers: list[list[Any]] = []
        self._names: dict[str, str] = {}

    def note(self, label: str, answer: Answer) -> Answer:
        """Keep an answer under its step's name."""
        self.answers.append([label, *self._plain(answer)])
        return answer

    def _plain(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, list):
            plain = [self._plain(item) for item in value]
            return sorted(plain, key=str) if all(isinstance(item, list) for item in plain) else plain
        if isinstance(value, str) and self.is_generated(value):
            return self._names.setdefault(value, f"M{len(self._names) + 1}")
        return int(value) if isinstance(value, ErrorCode) else value

    @abstractmethod
    def is_generated(self, text: str) -> bool:
        """Return true if the text is a member id that the coordinator generated."""

    @abstractmethod
    def join(
        self,
        group: str,
        member: str = "",
        *,
        instance: str | None = None,
        protocols: Protocols = RANGE,
        kind: str = "consumer",
        version: int = 9,
        session_ms: int = 10_000,
    ) -> Answer:
        """[error, generation, type, protocol, leader, skip, member id, [[id, instance, metadata]...]]"""

    @abstractmethod
    def join_later(self, group: str, member: str) -> Callable[[], Answer]:
        """Send a join that has to wait; the result asks for the answer."""

    @abstractmethod
    def sync(
        self,
        group: str,
        member: str,
        generation: int,
        shares: Protocols = (),
        *,
        instance: str | None = None,
        kind: str | None = "consumer",
        protocol: str | None = "range",
    ) -> Answer:
        """[error, type, protocol, assignment]"""

    @abstractmethod
    def heartbeat(self, group: str, member: str, generation: int, instance: str | None = None) -> Answer:
        """[error]"""

    @abstractmethod
    def leave(self, group: str, *members: tuple[str, str | None]) -> Answer:
        """[error, [[id, instance, error]...]]"""

    @abstractmethod
    def commit(
        self,
        group: str,
        offset: int,
        member: str = "",
        generation: int = -1,
        *,
        instance: str | None = None,
        metadata: str = "",
        version: int = 9,
    ) -> Answer:
        """[error]"""

    @abstractmethod
    def fetch(self, group: str, version: int = 9, *, everything: bool = False) -> Answer:
        """[error, [[topic, partition, offset, leader epoch, metadata, error]...]]"""

    @abstractmethod
    def describe(self, group: str, version: int = 6) -> Answer:
        """[error, state, type, protocol, [[id, instance, metadata, assignment]...]]"""

    @abstractmethod
    def delete_groups(self, *groups: str) -> Answer:
        """[[group, error]...]"""

    @abstractmethod
    def delete_offset(self, group: str) -> Answer:
        """[error, [error of the partition]]"""

    @abstractmethod
    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> Answer:
        """[[group, protocol type, state, type]...], of groups beginning with "x-" """


class DriverWorld(World):
    """The coordinator, called directly."""

    def __init__(self) -> None:
        super().__init__()
        self._driver = Driver()

    def is_generated(self, text: str) -> bool:
        return "-uuid" in text

    def join(self, group: str, member: str = "", **given: Any) -> Answer:
        answer = self._joined(self._park(group, member, **given))
        if given.get("version", 9) < 7:
            answer[2] = None  # the wire has no protocol type there
        return answer

    def join_later(self, group: str, member: str) -> Callable[[], Answer]:
        token = self._park(group, member)
        return lambda: self._joined(token)

    def _park(
        self,
        group: str,
        member: str,
        *,
        instance: str | None = None,
        protocols: Protocols = RANGE,
        kind: str = "consumer",
        version: int = 9,
        session_ms: int = 10_000,
    ) -> object:
        return self._driver.park_join(
            member,
            group=group,
            instance=instance,
            protocols=protocols,
            protocol_type=kind,
            version=version,
            session_ms=session_ms,
        )

    def _joined(self, token: object) -> Answer:
        a = self._driver.joined(token)
        members = [[m.member_id, m.group_instance_id, m.metadata] for m in a.members]
        return [
            a.error_code,
            a.generation_id,
            a.protocol_type,
            a.protocol_name,
            a.leader,
            a.skip_assignment,
            a.member_id,
            members,
        ]

    def sync(
        self,
        group: str,
        member: str,
        generation: int,
        shares: Protocols = (),
        *,
        instance: str | None = None,
        kind: str | None = "consumer",
        protocol: str | None = "range",
    ) -> Answer:
        driver, token = self._driver, self._driver.token()
        request = SyncGroup(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocol_name=protocol,
            assignments=shares,
            api_version=5,
        )
        driver.done(driver.coordinator.sync_group(driver.now_ms, request, token))
        answer = driver.synced(token)
        return [answer.error_code, answer.protocol_type, answer.protocol_name, answer.assignment]

    def heartbeat(self, group: str, member: str, generation: int, instance: str | None = None) -> Answer:
        return [self._driver.heartbeat(member, generation, group=group, instance=instance)]

    def leave(self, group: str, *members: tuple[str, str | None]) -> Answer:
        answer = self._driver.leave(*(LeavingMember(*member) for member in members), group=group)
        return [answer.error_code, [[m.member_id, m.group_instance_id, m.error_code] for m in answer.members]]

    def commit(
        self,
        group: str,
        offset: int,
        member: str = "",
        generation: int = -1,
        *,
        instance: str | None = None,
        metadata: str = "",
        version: int = 9,
    ) -> Answer:
        request = CommitOffsets(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            offsets=[PartitionOffset(topic="t", partition=0, offset=offset, metadata=metadata)],
            api_version=version,
        )
        driver = self._driver
        (answer,) = driver.done(driver.coordinator.commit_offsets(driver.now_ms, request))
        return [answer.error_code]

    def fetch(self, group: str, version: int = 9, *, everything: bool = False) -> Answer:
        wanted = None if everything else [("t", 0)]
        error, offsets = self._driver.fetch(group=group, partitions=wanted, version=version)
        return [error, [list(offset) for offset in offsets]]

    def describe(self, group: str, version: int = 6) -> Answer:
        d = self._driver.coordinator.describe(ClassicGroups, group)
        members = [[m.member_id, m.group_instance_id, m.member_metadata, m.member_assignment] for m in d.members]
        error = d.error_code if version >= 6 else ErrorCode.NONE
        return [error, d.group_state, d.protocol_type, d.protocol_data, members]

    def delete_groups(self, *groups: str) -> Answer:
        answer = self._driver.done(self._driver.coordinator.delete_groups(groups))
        return sorted([deleted.group_id, deleted.error_code] for deleted in answer)

    def delete_offset(self, group: str) -> Answer:
        answer = self._driver.done(self._driver.coordinator.delete_offsets(group, [("t", 0)]))
        return [answer.error_code, [partition.error_code for partition in answer.partitions]]

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> Answer:
        found = self._driver.coordinator.list_groups(states, types)
        return sorted([g.group_id, g.protocol_type, g.group_state, g.group_type] for g in found)


class WireWorld(World):
    """A broker at an address. It must have a topic "t" with a partition."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__()
        self._address = bootstrap_servers
        self._client = RawClient(bootstrap_servers)
        # The first question for a coordinator creates __consumer_offsets.
        self._call(FindCoordinatorRequest(key_type=0, coordinator_keys=["x-a"]), 4)

    def is_generated(self, text: str) -> bool:
        return len(text) > UUID_LENGTH and text[-UUID_LENGTH - 1] == "-"

    def _call(self, request: Any, version: int, client: RawClient | None = None) -> Any:
        for _ in range(300):
            answer = (client or self._client).call(request, version)
            if getattr(answer, "error_code", 0) not in PASSING:
                return answer
            time.sleep(0.05)
        raise TimeoutError("the coordinator does not come up")

    def join(self, group: str, member: str = "", **given: Any) -> Answer:
        return self._join(group, member, **given)

    def _join(
        self,
        group: str,
        member: str,
        *,
        instance: str | None = None,
        protocols: Protocols = RANGE,
        kind: str = "consumer",
        version: int = 9,
        session_ms: int = 10_000,
        client: RawClient | None = None,
    ) -> Answer:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=60_000,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        a = self._call(request, version, client)
        if a.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            time.sleep(0.2)  # Kafka answers before the group's first record is committed, and lists what is committed
        members = [[m.member_id, m.group_instance_id, m.metadata] for m in a.members]
        return [
            a.error_code,
            a.generation_id,
            a.protocol_type,
            a.protocol_name,
            a.leader,
            a.skip_assignment,
            a.member_id,
            members,
        ]

    def join_later(self, group: str, member: str) -> Callable[[], Answer]:
        answers: list[Answer] = []
        client = RawClient(self._address)
        waiting = threading.Thread(target=lambda: answers.append(self._join(group, member, client=client)))
        waiting.start()
        time.sleep(0.3)  # until the broker has parked it

        def ask() -> Answer:
            waiting.join()
            with client:
                return answers[0]

        return ask

    def sync(
        self,
        group: str,
        member: str,
        generation: int,
        shares: Protocols = (),
        *,
        instance: str | None = None,
        kind: str | None = "consumer",
        protocol: str | None = "range",
    ) -> Answer:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocol_name=protocol,
            assignments=[SyncGroupRequestAssignment(member_id=id_, assignment=share) for id_, share in shares],
        )
        answer = self._call(request, 5)
        return [answer.error_code, answer.protocol_type, answer.protocol_name, answer.assignment]

    def heartbeat(self, group: str, member: str, generation: int, instance: str | None = None) -> Answer:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
        )
        return [self._call(request, 4).error_code]

    def leave(self, group: str, *members: tuple[str, str | None]) -> Answer:
        leaving = [MemberIdentity(member_id=id_, group_instance_id=instance) for id_, instance in members]
        answer = self._call(LeaveGroupRequest(group_id=group, members=leaving), 5)
        return [answer.error_code, [[m.member_id, m.group_instance_id, m.error_code] for m in answer.members]]

    def commit(
        self,
        group: str,
        offset: int,
        member: str = "",
        generation: int = -1,
        *,
        instance: str | None = None,
        metadata: str = "",
        version: int = 9,
    ) -> Answer:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        for _ in range(300):
            error = self._call(request, version).topics[0].partitions[0].error_code
            if error not in PASSING:
                return [error]
            time.sleep(0.05)
        raise TimeoutError("the coordinator does not come up")

    def fetch(self, group: str, version: int = 9, *, everything: bool = False) -> Answer:
        if version >= 8:
            wanted = None if everything else [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
            batched = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
            answer = self._call(batched, version).groups[0]
        else:
            old = None if everything else [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
            answer = self._call(OffsetFetchRequest(group_id=group, topics=old), version)
        offsets = [
            [topic.name, p.partition_index, p.committed_offset, p.error_code]
            for topic in answer.topics
            for p in topic.partitions
        ]
        return [answer.error_code, offsets]

    def describe(self, group: str, version: int = 6) -> Answer:
        d = self._call(DescribeGroupsRequest(groups=[group]), version).groups[0]
        members = [[m.member_id, m.group_instance_id, m.member_metadata, m.member_assignment] for m in d.members]
        error = d.error_code if version >= 6 else ErrorCode.NONE
        return [error, d.group_state, d.protocol_type, d.protocol_data, members]

    def delete_groups(self, *groups: str) -> Answer:
        answer = self._call(DeleteGroupsRequest(groups_names=list(groups)), 2)
        return sorted([deleted.group_id, deleted.error_code] for deleted in answer.results)

    def delete_offset(self, group: str) -> Answer:
        topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        answer = self._call(OffsetDeleteRequest(group_id=group, topics=[topic]), 0)
        return [answer.error_code, [p.error_code for found in answer.topics for p in found.partitions]]

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> Answer:
        answer = self._call(ListGroupsRequest(states_filter=list(states), types_filter=list(types)), 5)
        found = [g for g in answer.groups if g.group_id.startswith("x-")]
        return sorted([g.group_id, g.protocol_type, g.group_state, g.group_type] for g in found)


def tell(world: World) -> list[list[Any]]:
    """The story. The groups' names begin with "x-" and must be unused."""
    _refusals(world)
    leader, generation = _one_member(world)
    _two_members(world, leader, generation)
    _other_kinds(world)
    _static_members(world)
    return world.answers


def _refusals(w: World) -> None:
    g = "x-a"
    w.note("join without a group id", w.join(""))
    w.note("join with a short session", w.join(g, session_ms=100))
    w.note("join of a stranger", w.join(g, "stranger"))
    w.note("heartbeat to no group", w.heartbeat(g, "m", 1))
    w.note("sync to no group", w.sync(g, "m", 1))
    w.note("sync without protocol", w.sync(g, "m", 1, kind=None, protocol=None))
    w.note("leave no group", w.leave(g, ("m", None)))
    w.note("describe no group", w.describe(g))
    w.note("describe no group, v5", w.describe(g, 5))
    w.note("commit of a generation to no group, v8", w.commit(g, 1, "m", 3, version=8))
    w.note("commit of a generation to no group, v9", w.commit(g, 1, "m", 3))
    w.note("fetch from no group", w.fetch(g))
    w.note("fetch all from no group", w.fetch(g, everything=True))
    w.note("delete an offset of no group", w.delete_offset(g))
    w.note("delete an offset without a group id", w.delete_offset(""))


def _one_member(w: World) -> tuple[str, int]:
    g = "x-a"
    first = w.note("new member", w.join(g))[6]
    w.note("list an empty group", w.list_groups())
    w.note("describe an empty group", w.describe(g))
    w.note("heartbeat of a pending member", w.heartbeat(g, first, 0))
    w.note("a pending member leaves", w.leave(g, (first, None)))
    w.note("a pending member that left joins", w.join(g, first))
    member = w.note("new member again", w.join(g))[6]
    generation = w.note("second join", w.join(g, member))[1]
    w.note("describe before the assignment", w.describe(g))
    w.note("heartbeat before the assignment", w.heartbeat(g, member, generation))
    w.note("commit before the assignment", w.commit(g, 1, member, generation))
    w.note("join again before the assignment", w.join(g, member))
    w.note("sync of a wrong generation", w.sync(g, member, generation + 1))
    w.note("sync of another type", w.sync(g, member, generation, kind="connect"))
    w.note("sync of another protocol", w.sync(g, member, generation, protocol="sticky"))
    w.note("sync of a member without protocol", w.sync(g, member, generation, kind=None, protocol=None))
    w.note("sync of the leader", w.sync(g, member, generation, [(member, b"A")]))
    w.note("sync again", w.sync(g, member, generation))
    w.note("describe a stable group", w.describe(g))
    filters: list[tuple[list[str], list[str]]] = [(["stable"], []), ([], ["CLASSIC"]), ([], ["consumer"])]
    filters += [([], ["nonsense"]), (["nonsense"], [])]
    for states, types in filters:
        w.note(f"list {states} {types}", w.list_groups(states, types))
    w.note("commit", w.commit(g, 5, member, generation, metadata="note"))
    w.note("commit of an old generation", w.commit(g, 6, member, generation - 1))
    w.note("commit of no generation", w.commit(g, 6, member, -1))
    w.note("commit of a stranger", w.commit(g, 6, "stranger", generation))
    w.note("commit of nobody", w.commit(g, 6))
    w.note("commit with too long metadata", w.commit(g, 6, member, generation, metadata="m" * 4097))
    w.note("commit with the longest metadata", w.commit(g, 7, member, generation, metadata="m" * 4096))
    for version in (2, 5, 6, 7, 8, 9):
        w.note(f"fetch v{version}", w.fetch(g, version))
    w.note("fetch all", w.fetch(g, everything=True))
    w.note("delete a consumed offset", w.delete_offset(g))
    w.note("delete live and absent groups", w.delete_groups(g, "x-none"))
    return member, generation


def _two_members(w: World, first: str, generation: int) -> None:
    g = "x-a"
    second = w.note("another member", w.join(g))[6]
    later = w.join_later(g, second)
    w.note("describe while joining", w.describe(g))
    w.note("heartbeat while joining", w.heartbeat(g, first, generation))
    w.note("sync while joining", w.sync(g, first, generation))
    w.note("commit while joining", w.commit(g, 8, first, generation))
    leader = w.note("the leader rejoins", w.join(g, first))
    w.note("the newcomer is in", later())
    generation = leader[1]
    w.note("sync of the leader of two", w.sync(g, first, generation, [(first, b"A"), (second, b"B")]))
    w.note("sync of the follower", w.sync(g, second, generation))
    w.note("the follower repeats its join", w.join(g, second))
    w.note("three leave", w.leave(g, (second, None), ("stranger", None), ("", "instance")))
    w.note("heartbeat after a leave", w.heartbeat(g, first, generation))
    w.note("the last one rejoins", w.join(g, first))
    w.note("the last one leaves", w.leave(g, (first, None)))
    w.note("describe an emptied group", w.describe(g))
    w.note("heartbeat to an emptied group", w.heartbeat(g, first, generation))
    w.note("commit without generation to an emptied group", w.commit(g, 9, "whoever"))
    w.note("commit of a generation to an emptied group", w.commit(g, 9, "whoever", 1))
    w.note("a stranger joins an emptied group", w.join(g, "stranger"))
    w.note("delete an offset of an emptied group", w.delete_offset(g))
    w.note("fetch a deleted offset", w.fetch(g))
    w.note("delete an emptied group", w.delete_groups(g))
    w.note("describe a deleted group", w.describe(g))


def _other_kinds(w: World) -> None:
    w.note("join v3", w.join("x-b", version=3))
    w.note("join of another type", w.join("x-b", kind="connect"))
    w.note("join of another protocol", w.join("x-b", protocols=[("sticky", b"")]))
    w.note("join of no consumer", w.join("x-c", kind="connect", version=3))
    w.note("delete an offset where nobody says what is consumed", w.delete_offset("x-c"))
    both: Protocols = [("a", b"1"), ("b", b"2")]
    w.note("join with two protocols", w.join("x-p", instance="p", protocols=both))
    w.note("return with another preference", w.join("x-p", instance="p", protocols=both[::-1]))


def _static_members(w: World) -> None:
    g = "x-s"
    old = w.note("static member", w.join(g, instance="i"))[6]
    w.note("static sync", w.sync(g, old, 1, [(old, b"S")], instance="i"))
    new = w.note("static return, v9", w.join(g, instance="i"))[6]
    w.note("sync after a return", w.sync(g, new, 1, instance="i"))
    w.note("heartbeat of a fenced member", w.heartbeat(g, old, 1, "i"))
    w.note("heartbeat of a fenced member without instance", w.heartbeat(g, old, 1))
    w.note("heartbeat of an unknown instance", w.heartbeat(g, new, 1, "k"))
    w.note("join of a fenced member", w.join(g, old, instance="i"))
    w.note("commit of a fenced member", w.commit(g, 1, old, 1, instance="i"))
    w.note("leave of a fenced member", w.leave(g, (old, "i")))
    newest = w.note("static return, v8", w.join(g, instance="i", version=8))[6]
    w.note("describe a static group", w.describe(g))
    w.note("the static leader rejoins", w.join(g, newest, instance="i"))
    w.note("an administrator removes the instance", w.leave(g, ("", "i")))
    w.note("describe after the removal", w.describe(g))
