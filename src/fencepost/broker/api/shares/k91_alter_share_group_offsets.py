"""AlterShareGroupOffsets, v0 (KIP-932): a share group without members goes on elsewhere; a new one is made."""

from __future__ import annotations

from fencepost.broker.api.common import partition_error
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.share_state_log import ShareStateKey
from fencepost.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse | None:
    """Set the offsets, and reply when that is durable."""
    if not request.group_id:
        return AlterShareGroupOffsetsResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    groups = call.core.groups
    made = groups.coordinator.make_share_group(now_ms, request.group_id)
    if made.reply is not None:
        return AlterShareGroupOffsetsResponse(error_code=made.reply.error_code, error_message=made.reply.message)
    if any(call.core.topics.get(asked.topic_name) is not None for asked in request.topics):
        refused = groups.apply(now_ms, made)
        if refused:
            return AlterShareGroupOffsetsResponse(error_code=refused)
    responses = [_set_topic(call, now_ms, request.group_id, asked) for asked in request.topics if asked.partitions]
    call.reply_when_durable(now_ms, AlterShareGroupOffsetsResponse(responses=responses))
    return None


def _set_topic(
    call: Call, now_ms: int, group_id: str, asked: AlterShareGroupOffsetsRequestTopic
) -> AlterShareGroupOffsetsResponseTopic:
    topic = call.core.topics.get(asked.topic_name)
    allowed = call.may(Operation.READ, ResourceType.TOPIC, asked.topic_name)

    def set_offset(wanted: AlterShareGroupOffsetsRequestPartition) -> AlterShareGroupOffsetsResponsePartition:
        index = wanted.partition_index
        code = partition_error(topic, index) if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic is not None and not code:
            key = ShareStateKey(group_id, topic.topic_id, index)
            call.core.shares.set_offset(now_ms, key, wanted.start_offset)
        return AlterShareGroupOffsetsResponsePartition(partition_index=index, error_code=code)

    return AlterShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name,
        topic_id=None if topic is None else topic.topic_id,
        partitions=[set_offset(wanted) for wanted in asked.partitions],
    )


HANDLER = Handler(_handle)
