"""Requests to consumer groups and their answers (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencepost.broker.coordinator.group.consumer.group import ConsumerMember
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.values import Value

__all__ = ["ConsumerHeartbeat", "DescribedConsumerGroup", "DescribedConsumerMember"]


class ConsumerHeartbeat(Value, kw_only=True):
    """ConsumerGroupHeartbeat.

    As on the wire, None means unchanged since the last heartbeat.

    `may_see` returns true for topics that the caller is allowed to see. A regular expression matches only those.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: Sequence[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: frozenset[TopicIdPartition] | None = None
    client_id: str = ""
    client_host: str = ""
    may_see: Callable[[str], bool] = lambda _: True
    api_version: int = 1


class DescribedConsumerMember(Value, kw_only=True):
    """A member as ConsumerGroupDescribe shows it."""

    member: ConsumerMember
    target: frozenset[TopicIdPartition]


class DescribedConsumerGroup(Value, kw_only=True):
    """A group as ConsumerGroupDescribe shows it."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Sequence[DescribedConsumerMember] = ()
