"""DeleteShareGroupOffsets, v0 (KIP-932): a share group without members forgets what it has read of a topic."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse | None:
    """Forget the offsets, and reply when that is durable."""
    if not request.group_id:
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    group = call.core.groups.coordinator.share_group(request.group_id)
    if group is None:
        message = f"Group {request.group_id} not found."
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)
    if group.members:
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
    responses = [_forget_topic(call, now_ms, request.group_id, asked.topic_name) for asked in request.topics]
    call.reply_when_durable(now_ms, DeleteShareGroupOffsetsResponse(responses=responses))
    return None


def _forget_topic(call: Call, now_ms: int, group_id: str, name: str) -> DeleteShareGroupOffsetsResponseTopic:
    topic = call.core.topics.get(name)
    code, message = ErrorCode.NONE, None
    if not call.may(Operation.READ, ResourceType.TOPIC, name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        keys = [key for key, _ in call.core.shares.of_group(group_id) if key.topic_id == topic.topic_id]
        if not keys:
            code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."
        call.core.shares.forget(now_ms, keys)
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=None if topic is None else topic.topic_id, error_code=code, error_message=message
    )


HANDLER = Handler(_handle)
