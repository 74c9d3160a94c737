"""A member of a consumer group (KIP-848) by raw requests: one heartbeat at a time, as the test says."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from fencepost.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.raw_client import RawClient

PATIENCE_S = 60.0
PASSING = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR})
Owned = frozenset[tuple[UUID, int]]


def topic_id(client: RawClient, name: str) -> UUID:
    (topic,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics
    if topic.topic_id is None:
        raise ValueError(f"{name}: {topic.error_code}")
    return UUID(int=topic.topic_id.int)


def describe(client: RawClient, group: str, version: int = 1) -> DescribedGroup:
    (found,) = client.call(ConsumerGroupDescribeRequest(group_ids=[group]), version).groups
    described: DescribedGroup = found
    return described


class RawMember:
    """Group member with a consumer's id, epoch and partitions. It takes over an assignment only when the test asks."""

    def __init__(
        self,
        client: RawClient,
        group: str,
        topics: Sequence[str] | None = None,
        *,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        member_id: str | None = None,
        rebalance_timeout_ms: int = 60_000,
    ) -> None:
        self.client = client
        self.group = group
        self.topics = topics
        self.regex = regex
        self.instance = instance
        self.assignor = assignor
        self.member_id = member_id or str(uuid.uuid4())
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.epoch = 0
        self.owned: Owned = frozenset()
        self.assigned: Owned = frozenset()

    def ask(self, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """One heartbeat; `fields` replace what it would have said. Nothing is kept of the answer."""
        joins = self.epoch == 0
        said: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "rebalance_timeout_ms": self.rebalance_timeout_ms if joins else -1,
            "subscribed_topic_names": self.topics if joins else None,
            "subscribed_topic_regex": self.regex if joins else None,
            "server_assignor": self.assignor if joins else None,
            "topic_partitions": pack(self.owned),
        }
        request = ConsumerGroupHeartbeatRequest(**{**said, **fields})
        answer: ConsumerGroupHeartbeatResponse = self.client.settled(
            lambda: self.client.call(request, version), PASSING
        )
        return answer

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """One heartbeat that has to succeed; its epoch and what it tells are kept, what is owned stays."""
        answer = self.ask(**fields)
        if answer.error_code:
            raise AssertionError(f"{answer.error_code} {answer.error_message}")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = unpack(answer.assignment.topic_partitions)
        return answer

    def take(self) -> None:
        """Own what was told last, and nothing else."""
        self.owned = self.assigned

    def until(self, done: Callable[[], bool], *others: RawMember) -> None:
        """Heartbeats, together with others, each taking over what it is told, until `done`."""
        until(done, self.follow, *(other.follow for other in others))

    def follow(self) -> None:
        """A heartbeat, and what it tells is done at once."""
        self.beat()
        self.take()

    def leave(self, epoch: int = -1) -> int:
        answer = self.ask(member_epoch=epoch, topic_partitions=None)
        return answer.error_code


def pack(owned: Owned) -> list[TopicPartitions]:
    by_topic: dict[UUID, list[int]] = {}
    for topic, index in sorted(owned):
        by_topic.setdefault(topic, []).append(index)
    return [TopicPartitions(topic_id=topic, partitions=indexes) for topic, indexes in by_topic.items()]


def unpack(topics: Sequence[Any]) -> Owned:
    return frozenset((UUID(int=topic.topic_id.int), index) for topic in topics for index in topic.partitions)


def until(done: Callable[[], bool], *steps: Callable[[], object]) -> None:
    """Take the steps, again and again, until `done`. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("not done yet")
        for step in steps:
            step()
        time.sleep(0.02)
