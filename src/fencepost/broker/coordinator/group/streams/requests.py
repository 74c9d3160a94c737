"""Requests to streams groups and their answers (KIP-1071)."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.coordinator.group.streams.group import StreamsMember
from fencepost.broker.coordinator.group.streams.topology import Status
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.streams_group_log import Endpoint, InternalTopic, Tasks, Topology
from fencepost.values import Value

__all__ = ["DescribedStreamsGroup", "EndpointPartitions", "StreamsHeartbeat", "StreamsHeartbeatReply"]


class StreamsHeartbeat(Value, kw_only=True):
    """StreamsGroupHeartbeat. As on the wire, None (-1 for a time) means unchanged since the last heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    endpoint_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: Tasks | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    shutdown: bool = False
    client_id: str = ""
    client_host: str = ""


class EndpointPartitions(Value):
    """Partitions of an instance that answers queries: (topic, partitions) of its active and its standby tasks."""

    endpoint: Endpoint
    active: Sequence[tuple[str, Sequence[int]]]
    standby: Sequence[tuple[str, Sequence[int]]]


class StreamsHeartbeatReply(Value, kw_only=True):
    """The answer. Without `tasks`, the member's tasks are unchanged. `missing`: internal topics to create."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    status: Sequence[Status] = ()
    tasks: Tasks | None = None
    endpoint_epoch: int = 0
    endpoints: Sequence[EndpointPartitions] | None = None
    missing: Sequence[InternalTopic] = ()


class DescribedStreamsGroup(Value, kw_only=True):
    """A group as StreamsGroupDescribe shows it, with each member's target."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    topology: Topology | None = None
    members: Sequence[tuple[StreamsMember, Tasks]] = ()
