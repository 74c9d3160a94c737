"""Streams groups (KIP-1071), one heartbeat at a time, as Apache Kafka 4.4 answers them.

Kafka waits for more members before it assigns, so the tests send heartbeats until something is so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.delete_groups import DeleteGroupsRequest
from fencepost.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from fencepost.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.support.brokers import BrokerUnderTest
from tests.support.raw_client import RawClient

PASSING = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR})
PATIENCE_S = 60.0
Tasks = set[tuple[str, int]]


class Member:
    """A member that has what it is told to have."""

    def __init__(self, client: RawClient, group: str, name: str, topology: Topology) -> None:
        self.client = client
        self.group = group
        self.name = name
        self.topology = topology
        self.epoch = 0
        self.tasks: Any = []
        self.codes: list[int] = []

    def ask(self, **fields: Any) -> Any:
        """One heartbeat, whatever comes of it."""
        said: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.name,
            "member_epoch": self.epoch,
            "active_tasks": self.tasks,
            "standby_tasks": [],
            "warmup_tasks": [],
            "client_tags": None,
            "task_offsets": None,
            "task_end_offsets": None,
        }
        if fields.get("member_epoch", self.epoch) == 0:
            said |= {
                "topology": self.topology,
                "process_id": f"process-{self.name}",
                "rebalance_timeout_ms": 60_000,
                "client_tags": [],
            }
        request = StreamsGroupHeartbeatRequest(**{**said, **fields})
        return self.client.settled(lambda: self.client.call(request, 0), PASSING)

    def beat(self) -> None:
        """One heartbeat that has to succeed."""
        answer = self.ask()
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        self.epoch = answer.member_epoch
        self.codes = [status.status_code for status in answer.status or ()]
        if answer.active_tasks is not None:
            self.tasks = answer.active_tasks

    @property
    def active(self) -> Tasks:
        return {(task.subtopology_id, number) for task in self.tasks for number in task.partitions}

    def leave(self) -> int:
        return int(self.ask(member_epoch=-1, active_tasks=None, standby_tasks=None, warmup_tasks=None).member_epoch)


def until(condition: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, [
            (member.name, member.epoch, member.active, member.codes) for member in members
        ]
        for member in members:
            member.beat()
        time.sleep(0.05)


def counting(broker: BrokerUnderTest, source: str) -> tuple[Topology, list[str]]:
    """A topology that counts words by way of a repartition topic and a changelog, and the topics it needs."""
    repartition, changelog = broker.name("r"), broker.name("c")
    compacted = TopicInfo(name=changelog, topic_configs=[])
    parts = [
        Subtopology(subtopology_id="0", source_topics=[source], repartition_sink_topics=[repartition]),
        Subtopology(
            subtopology_id="1",
            repartition_source_topics=[TopicInfo(name=repartition)],
            state_changelog_topics=[compacted],
        ),
    ]
    return Topology(epoch=0, subtopologies=parts), [repartition, changelog]


def described(client: RawClient, group: str) -> Any:
    request = StreamsGroupDescribeRequest(group_ids=[group])
    (found,) = client.call(request, 0).groups
    return found


def test_tasks_are_shared_and_handed_over(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, group = broker.name("t"), broker.name("g")
    client.create_topic(topic, 2)
    topology, internal = counting(broker, topic)
    everything = {("0", 0), ("0", 1), ("1", 0), ("1", 1)}
    first = Member(client, group, "first", topology)
    until(lambda: first.active == everything, first)
    assert first.codes == []
    shown = described(client, group)
    assert (shown.group_state, shown.topology.epoch) == ("Stable", 0)
    assert [part.subtopology_id for part in shown.topology.subtopologies] == ["0", "1"]
    assert {client.end_offset(name, 1) for name in internal} == {0}
    second = Member(client, group, "second", topology)
    until(lambda: len(first.active) == len(second.active) == 2, first, second)
    assert first.active | second.active == everything
    assert second.leave() == -1
    until(lambda: first.active == everything, first)
    assert first.leave() == -1
    assert described(client, group).group_state == "Empty"
    (deleted,) = client.call(DeleteGroupsRequest(groups_names=[group]), 2).results
    assert deleted.error_code == 0
    assert described(client, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_waits_for_its_source_topics(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, group = broker.name("t"), broker.name("g")
    topology = Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])])
    member = Member(client, group, "waits", topology)
    member.beat()
    assert 1 in member.codes  # MISSING_SOURCE_TOPICS
    assert described(client, group).group_state == "NotReady"
    client.create_topic(topic, 1)
    until(lambda: member.active == {("0", 0)}, member)
    assert member.codes == []
    member.leave()


def test_refusals(broker: BrokerUnderTest, client: RawClient) -> None:
    topic, group = broker.name("t"), broker.name("g")
    client.create_topic(topic, 1)
    topology = Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])])
    member = Member(client, group, "refused", topology)
    assert member.ask(member_epoch=1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert member.ask(member_id="").error_code == ErrorCode.INVALID_REQUEST
    assert member.ask(topology=None).error_code == ErrorCode.INVALID_REQUEST
    internal = Subtopology(subtopology_id="0", source_topics=["__consumer_offsets"])
    wrong = Topology(epoch=0, subtopologies=[internal])
    assert member.ask(topology=wrong).error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    matching = Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topic_regex=["w.*"])])
    assert member.ask(topology=matching).error_code == ErrorCode.INVALID_REQUEST
    member.beat()
    other = Member(client, group, "other", topology)
    assert other.ask(member_epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.ask(member_epoch=member.epoch + 5).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    newer = Topology(epoch=1, subtopologies=topology.subtopologies)
    assert other.ask(topology=newer).error_code == ErrorCode.INVALID_REQUEST
    member.leave()
