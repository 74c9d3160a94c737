"""ConsumerGroupHeartbeat, v0-1 (KIP-848): join, stay in and leave a consumer group. v1 has regular expressions.

In v1 members choose their ids. The answer is sent when everything in it is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fencepost.broker.api.common import partition_key
from fencepost.broker.api.groups.member_topics import by_topic, sees_all
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.base.requests import AssignmentReply
from fencepost.broker.coordinator.group.consumer.membership import ConsumerGroups
from fencepost.broker.coordinator.group.consumer.requests import ConsumerHeartbeat
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
    TopicPartitions,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: ConsumerGroupHeartbeatRequest) -> None:
    """Pass the heartbeat to the coordinator."""
    groups = call.core.groups
    heartbeat = ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=request.subscribed_topic_names,
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        client_id=call.client_id,
        client_host=f"/{call.connection.peer[0]}",
        may_see=lambda name: call.may(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True),
        api_version=call.version,
    )
    result = groups.coordinator.heartbeat(now_ms, ConsumerGroups, heartbeat)
    response = _response(result.reply)
    refused = groups.apply(now_ms, result, lambda: call.reply(response))
    if refused:
        call.reply(ConsumerGroupHeartbeatResponse(error_code=refused))


def _owned(topics: Sequence[TopicPartitions] | None) -> frozenset[TopicIdPartition] | None:
    if topics is None:
        return None
    return frozenset(partition_key(topic.topic_id, index) for topic in topics for index in topic.partitions)


def _response(reply: AssignmentReply) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=None if reply.assignment is None else _assignment(reply.assignment),
    )


def _assignment(partitions: Iterable[TopicIdPartition]) -> Assignment:
    listed = by_topic(partitions).items()
    topics = [ResponseTopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in listed]
    return Assignment(topic_partitions=topics)


def _authorize(call: Call, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | None:
    """Refuse the request unless the client may see every topic that it names."""
    if sees_all(call, request.subscribed_topic_names or ()):
        return None
    return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _refuse(call: Call, code: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)


HANDLER = Handler(_handle, authorize=_authorize, refuse=_refuse)
