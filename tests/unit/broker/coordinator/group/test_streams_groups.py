"""Streams groups (KIP-1071): topologies and their topics, who runs what, and how members come to it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from uuid import NAMESPACE_DNS, UUID, uuid5

import pytest

from fencepost.broker.coordinator.group.base.records import GroupRecord
from fencepost.broker.coordinator.group.base.requests import CommitOffsets, GroupResult, PartitionOffset
from fencepost.broker.coordinator.group.consumer.membership import ConsumerGroups
from fencepost.broker.coordinator.group.coordinator import GroupCoordinator
from fencepost.broker.coordinator.group.log import decode_record, encode_record
from fencepost.broker.coordinator.group.streams.assignor import StreamsAssignee, assign
from fencepost.broker.coordinator.group.streams.group import NO_TASKS
from fencepost.broker.coordinator.group.streams.membership import StreamsGroups
from fencepost.broker.coordinator.group.streams.requests import StreamsHeartbeat, StreamsHeartbeatReply
from fencepost.broker.coordinator.group.streams.topology import (
    InvalidTopology,
    StatusCode,
    configure,
    tasks_of,
)
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.logs.streams_group_log import (
    CopartitionGroup,
    InternalTopic,
    StreamsTaskId,
    Subtopology,
    Tasks,
    Topology,
)
from tests.unit.broker.coordinator.group.group_driver import FakeSettings

REPARTITION = InternalTopic("app-repartition", 0, 0)
CHANGELOG = InternalTopic("app-changelog", 0, 0, (("cleanup.policy", "compact"),))
WORDS = Topology(
    0,
    (
        Subtopology("0", ("words",), repartition_sink_topics=("app-repartition",)),
        Subtopology("1", (), changelog_topics=(CHANGELOG,), repartition_source_topics=(REPARTITION,)),
    ),
)


class Catalogue:
    """Topics that a test makes."""

    def __init__(self, **counts: int) -> None:
        self.counts = dict(counts)
        self.version = 0

    def make(self, name: str, count: int) -> None:
        self.counts[name] = count
        self.version += 1

    def names(self) -> Iterable[str]:
        return self.counts

    def find(self, name: str) -> tuple[UUID, int] | None:
        return (uuid5(NAMESPACE_DNS, name), self.counts[name]) if name in self.counts else None

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name in self.counts if uuid5(NAMESPACE_DNS, name) == topic_id), None)


def tasks(*named: str) -> Tasks:
    """ "0_1" is partition 1 of subtopology 0; "s0_1" as a standby task."""
    found = [(name[0] == "s", name.removeprefix("s").split("_")) for name in named]
    active = {StreamsTaskId(part, int(number)): 0 for is_standby, (part, number) in found if not is_standby}
    return Tasks(
        active, frozenset(StreamsTaskId(part, int(number)) for is_standby, (part, number) in found if is_standby)
    )


class Driven:
    """A coordinator whose records are replayed as they are made, and kept for a second one."""

    def __init__(self, topics: Catalogue, standbys: int = 0) -> None:
        self.topics = topics
        self.standbys = standbys
        self.log: list[GroupRecord] = []
        self.now_ms = 0
        self.coordinator = self.fresh()

    def fresh(self) -> GroupCoordinator:
        return GroupCoordinator(
            FakeSettings(of_group={"streams.num.standby.replicas": str(self.standbys)}),
            lambda: "unique",
            self.topics,
        )

    def apply(self, result: GroupResult[StreamsHeartbeatReply]) -> StreamsHeartbeatReply:
        self.replayed(result.records)
        return result.reply

    def replayed(self, records: Iterable[GroupRecord]) -> None:
        for record in records:
            self.coordinator.replay(record, len(self.log))
            self.log.append(record)

    def restarted(self) -> None:
        """As after kill -9: through the bytes of the log."""
        self.coordinator = self.fresh()
        for offset, record in enumerate(self.log):
            read = decode_record(*encode_record(record))
            assert read == record
            self.coordinator.replay(read, offset)
        self.coordinator.load(self.now_ms)

    def join(self, member: str, process: str = "", topology: Topology = WORDS) -> StreamsHeartbeatReply:
        request = StreamsHeartbeat(
            group_id="g",
            member_id=member,
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            topology=topology,
            owned=NO_TASKS,
            process_id=process or f"process of {member}",
        )
        return self.apply(self.coordinator.heartbeat(self.now_ms, StreamsGroups, request))

    def beat(self, member: str, epoch: int, owned: Tasks | None = None) -> StreamsHeartbeatReply:
        request = StreamsHeartbeat(group_id="g", member_id=member, member_epoch=epoch, owned=owned)
        return self.apply(self.coordinator.heartbeat(self.now_ms, StreamsGroups, request))


@pytest.fixture
def ready() -> Catalogue:
    return Catalogue(words=2, **{"app-repartition": 2, "app-changelog": 2})


def test_internal_topics_are_as_wide_as_what_they_come_from() -> None:
    configured = configure(WORDS, {"words": 3}.get)
    assert configured.tasks == {"0": 3, "1": 3}
    assert configured.missing == (replace(CHANGELOG, partitions=3), replace(REPARTITION, partitions=3))
    assert configured.problem is not None
    assert configured.problem.code is StatusCode.MISSING_INTERNAL_TOPICS
    there = configure(WORDS, {"words": 3, "app-repartition": 3, "app-changelog": 3}.get)
    assert there.is_ready and there.missing == ()


@pytest.mark.parametrize(
    ("topics", "code"),
    [
        ({}, StatusCode.MISSING_SOURCE_TOPICS),
        ({"words": 3, "app-changelog": 2}, StatusCode.INCORRECTLY_PARTITIONED_TOPICS),
    ],
)
def test_what_is_wrong_with_the_topics(topics: dict[str, int], code: StatusCode) -> None:
    configured = configure(WORDS, topics.get)
    assert configured.problem is not None and configured.problem.code is code


def test_topics_that_are_joined_have_the_same_number_of_partitions() -> None:
    group = CopartitionGroup(source_topics=(0,), repartition_source_topics=(0,))
    joined = Subtopology("1", ("users",), repartition_source_topics=(REPARTITION,), copartition_groups=(group,))
    topology = Topology(0, (WORDS.subtopologies[0], joined))
    configured = configure(topology, {"words": 2, "users": 6}.get)
    assert configured.missing == (replace(REPARTITION, partitions=6),)
    assert configured.tasks == {"0": 2, "1": 6}
    both = CopartitionGroup(source_topics=(0, 1))
    sources = Topology(0, (Subtopology("0", ("words", "users"), copartition_groups=(both,)),))
    wrong = configure(sources, {"words": 2, "users": 6}.get).problem
    assert wrong is not None and wrong.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


def test_a_repartition_topic_that_nobody_writes() -> None:
    with pytest.raises(InvalidTopology, match="nothing writes to it"):
        configure(
            Topology(0, (Subtopology("0", ("words",), repartition_source_topics=(REPARTITION,)),)), {"words": 1}.get
        )


@pytest.mark.parametrize("seed", range(60))
def test_every_task_is_assigned_once_evenly_and_stays(seed: int) -> None:
    draw = random.Random(seed)
    counts = {str(part): draw.randint(1, 6) for part in range(draw.randint(1, 3))}
    stateful = {part for part in counts if draw.random() < 0.6}
    standbys = draw.randint(0, 2)
    members = {f"m{n}": StreamsAssignee(f"m{n}", f"p{draw.randint(0, 3)}", NO_TASKS) for n in range(draw.randint(1, 6))}
    every = tasks_of(counts)
    for _ in range(3):
        shares = assign(members, counts, stateful, standbys)
        assert sorted(task for share in shares.values() for task in share.active) == every
        sizes = [len(share.active) for share in shares.values()]
        assert max(sizes) - min(sizes) <= 1
        held = Counter(
            (members[name].process_id, task)
            for name, share in shares.items()
            for task in (*share.active, *share.standby)
        )
        assert set(held.values()) <= {1}
        processes = len({member.process_id for member in members.values()})
        standby_counts = Counter(task for share in shares.values() for task in share.standby)
        assert standby_counts == {
            t: n for t in every if t.subtopology in stateful and (n := min(standbys, processes - 1))
        }
        members = {name: replace(member, before=shares[name]) for name, member in members.items()}
        assert {name: share.active for name, share in assign(members, counts, stateful, standbys).items()} == {
            name: share.active for name, share in shares.items()
        }
        gone = draw.choice(sorted(members))
        if len(members) > 1:
            del members[gone]


def test_a_standby_takes_over_what_it_has_kept() -> None:
    members = {
        "a": StreamsAssignee("a", "p1", tasks("0_0", "0_1")),
        "b": StreamsAssignee("b", "p2", tasks("0_2")),
        "c": StreamsAssignee("c", "p3", tasks("s0_3", "0_9")),
    }
    shares = assign(members, {"0": 4}, {"0"}, 0)
    assert StreamsTaskId("0", 3) in shares["c"].active


def test_a_member_joins_when_its_topics_are_there(ready: Catalogue) -> None:
    topics = Catalogue(words=2)
    group = Driven(topics)
    first = group.join("a")
    assert [status.code for status in first.status] == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert [topic.name for topic in first.missing] == ["app-changelog", "app-repartition"]
    assert first.tasks == NO_TASKS
    for topic in first.missing:
        topics.make(topic.name, topic.partitions)
    second = group.beat("a", first.member_epoch, NO_TASKS)
    assert second.status == () or list(second.status) == []
    assert second.tasks is not None
    assert set(second.tasks.active) == set(tasks("0_0", "0_1", "1_0", "1_1").active)
    assert second.member_epoch > first.member_epoch
    assert group.coordinator.describe(StreamsGroups, "g").state == "Stable"


def test_nobody_gets_a_task_before_it_was_given_back(ready: Catalogue) -> None:
    group = Driven(ready)
    mine = group.join("a").tasks
    assert mine is not None and len(mine.active) == 4
    other = group.join("b")
    assert other.tasks == NO_TASKS
    asked = group.beat("a", 1, mine)
    assert asked.tasks is not None and len(asked.tasks.active) == 2
    assert group.beat("b", other.member_epoch, NO_TASKS).tasks is None
    still = group.beat("a", 1, mine)
    assert still.member_epoch == 1
    group.restarted()
    given = group.beat("a", 1, asked.tasks)
    assert given.member_epoch == other.member_epoch
    got = group.beat("b", other.member_epoch, NO_TASKS).tasks
    assert got is not None
    assert set(got.active) | set(asked.tasks.active) == set(mine.active)
    assert not set(got.active) & set(asked.tasks.active)


def test_who_is_silent_or_gives_nothing_back_is_out(ready: Catalogue) -> None:
    group = Driven(ready)
    mine = group.join("a").tasks
    group.join("b")
    group.beat("a", 1, mine)
    group.now_ms = 10_000  # the rebalance timeout
    group.beat("a", 1, mine)
    group.beat("b", 2, NO_TASKS)
    group.replayed(group.coordinator.on_time(group.now_ms).records)
    assert group.beat("a", 1, mine).error_code == E.UNKNOWN_MEMBER_ID
    all_of_it = group.beat("b", 2, NO_TASKS).tasks
    assert all_of_it is not None and len(all_of_it.active) == 4
    group.now_ms += 45_000  # the session
    group.replayed(group.coordinator.on_time(group.now_ms).records)
    assert group.coordinator.describe(StreamsGroups, "g").state == "Empty"


def test_only_a_member_of_the_epoch_commits(ready: Catalogue) -> None:
    group = Driven(ready)
    group.join("a")

    def code(member: str, epoch: int) -> E:
        request = CommitOffsets(
            group_id="g",
            member_id=member,
            generation_id=epoch,
            api_version=9,
            offsets=[PartitionOffset(topic="words", partition=0, offset=5)],
        )
        (answer,) = group.coordinator.commit_offsets(0, request).reply
        return answer.error_code

    assert code("a", 1) == E.NONE
    assert code("a", 2) == E.STALE_MEMBER_EPOCH
    assert code("a", 0) == E.STALE_MEMBER_EPOCH  # the task came with epoch 1
    assert code("b", 1) == E.UNKNOWN_MEMBER_ID


def test_refusals(ready: Catalogue) -> None:
    group = Driven(ready)
    assert group.beat("a", 1).error_code == E.GROUP_ID_NOT_FOUND
    assert group.join("").error_code == E.INVALID_REQUEST
    regex = Topology(0, (Subtopology("0", (), source_regexes=("w.*",)),))
    assert group.join("a", topology=regex).error_code == E.INVALID_REQUEST
    indexed = Topology(0, (Subtopology("0", ("words",), copartition_groups=(CopartitionGroup((7,)),)),))
    assert group.join("a", topology=indexed).error_code == E.STREAMS_INVALID_TOPOLOGY
    group.join("a")
    assert group.beat("a", 7).error_code == E.FENCED_MEMBER_EPOCH
    assert group.beat("a", 1, tasks("0_9")).error_code == E.INVALID_REQUEST
    assert group.join("b", topology=replace(WORDS, epoch=1)).error_code == E.INVALID_REQUEST
    assert group.coordinator.describe(ConsumerGroups, "g").error_code == E.GROUP_ID_NOT_FOUND
    assert [listing.group_type for listing in group.coordinator.list_groups(types=["streams"])] == ["streams"]
    (refused,) = group.coordinator.delete_groups(["g"]).reply
    assert refused.error_code == E.NON_EMPTY_GROUP
    assert group.beat("a", -1).member_epoch == -1
    deleted = group.coordinator.delete_groups(["g"])
    group.replayed(deleted.records)
    assert group.coordinator.describe(StreamsGroups, "g").error_code == E.GROUP_ID_NOT_FOUND
    group.restarted()
    assert group.coordinator.list_groups() == []
