"""ShareGroupHeartbeat, v1 (KIP-932): join, stay in and leave a share group.

The answer is sent when everything in it is durable. A leaving member releases its acquired records.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.broker.api.groups.member_topics import by_topic, sees_all
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.share.membership import ShareGroups
from fencepost.broker.coordinator.group.share.requests import ShareHeartbeat
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: ShareGroupHeartbeatRequest) -> None:
    """Pass the heartbeat to the coordinator."""
    groups = call.core.groups
    heartbeat = ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        topic_names=request.subscribed_topic_names,
        client_id=call.client_id,
        client_host=f"/{call.connection.peer[0]}",
    )
    result = groups.coordinator.heartbeat(now_ms, ShareGroups, heartbeat)
    reply = result.reply
    response = ShareGroupHeartbeatResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=None if reply.assignment is None else _assignment(reply.assignment),
    )
    refused = groups.apply(now_ms, result, lambda: call.reply(response))
    if refused:
        call.reply(ShareGroupHeartbeatResponse(error_code=refused))


def _assignment(partitions: Iterable[TopicIdPartition]) -> Assignment:
    listed = by_topic(partitions).items()
    return Assignment(
        topic_partitions=[TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in listed]
    )


def _authorize(call: Call, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse | None:
    """Refuse the request unless the client may see every topic that it names."""
    if sees_all(call, request.subscribed_topic_names or ()):
        return None
    return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _refuse(call: Call, code: int) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code)


HANDLER = Handler(_handle, authorize=_authorize, refuse=_refuse)
