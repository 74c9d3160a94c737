"""DeleteShareGroupOffsets, v0 (KIP-932): delete a topic's offsets of a share group without members."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.share.membership import ShareGroups
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse | None:
    """Delete the offsets, and reply when that is durable."""
    if not request.group_id:
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    group = call.core.groups.coordinator.kind(ShareGroups).find(request.group_id)
    if group is None:
        message = f"Group {request.group_id} not found."
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)
    if group.members:
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
    forgotten: set[str] = set()
    responses = []
    for requested in request.topics:
        if requested.topic_name in forgotten:
            continue
        result = _forget_topic(call, now_ms, request.group_id, requested.topic_name)
        if not result.error_code:
            forgotten.add(requested.topic_name)
        responses.append(result)
    call.reply_when_durable(now_ms, DeleteShareGroupOffsetsResponse(responses=responses))
    return None


def _forget_topic(call: Call, now_ms: int, group_id: str, name: str) -> DeleteShareGroupOffsetsResponseTopic:
    """Delete one topic's offsets. As in Kafka, the result has the topic's id only on success."""
    topic = call.core.topics.get(name)
    if not call.may(Operation.READ, ResourceType.TOPIC, name):
        return _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic is None:
        return _refused(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    keys = [key for key, _ in call.core.shares.of_group(group_id) if key.topic_id == topic.topic_id]
    if not keys:
        return _refused(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete.")
    call.core.shares.forget(now_ms, keys)
    return DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic.topic_id)


def _refused(name: str, code: int, message: str | None = None) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(topic_name=name, error_code=code, error_message=message)


HANDLER = Handler(_handle)
