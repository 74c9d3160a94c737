"""AlterShareGroupOffsets, v0 (KIP-932): set the start offsets of a share group without members.

Creates a missing group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fencepost.broker.api.common import partition_error
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.base.requests import GroupResult
from fencepost.broker.coordinator.group.share.membership import ShareGroups
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.share_state_log import ShareStateKey
from fencepost.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse | None:
    """Set the offsets, and reply when they are durable."""
    if not request.group_id:
        return AlterShareGroupOffsetsResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    groups = call.core.groups
    creation: GroupResult[None] = GroupResult(None)
    refusal = groups.coordinator.admit(now_ms, ShareGroups, request.group_id)
    refusal = refusal or groups.coordinator.kind(ShareGroups).make(request.group_id, creation)
    if refusal is not None:
        return AlterShareGroupOffsetsResponse(error_code=refusal.error_code, error_message=refusal.message)
    if any(call.core.topics.get(requested.topic_name) is not None for requested in request.topics):
        refused = groups.apply(now_ms, creation)
        if refused:
            return AlterShareGroupOffsetsResponse(error_code=refused)
    results: dict[str, list[AlterShareGroupOffsetsResponsePartition]] = {}  # a topic that is named twice appears once
    for requested in request.topics:
        results.setdefault(requested.topic_name, []).extend(_set_topic(call, now_ms, request.group_id, requested))
    call.reply_when_durable(now_ms, AlterShareGroupOffsetsResponse(responses=list(_responses(call, results))))
    return None


def _set_topic(
    call: Call, now_ms: int, group_id: str, requested: AlterShareGroupOffsetsRequestTopic
) -> Iterator[AlterShareGroupOffsetsResponsePartition]:
    topic = call.core.topics.get(requested.topic_name)
    allowed = call.may(Operation.READ, ResourceType.TOPIC, requested.topic_name)
    for wanted in requested.partitions:
        index = wanted.partition_index
        code = partition_error(topic, index) if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic is not None and not code:
            key = ShareStateKey(group_id, topic.topic_id, index)
            call.core.shares.set_offset(now_ms, key, wanted.start_offset)
        yield AlterShareGroupOffsetsResponsePartition(partition_index=index, error_code=code)


def _responses(
    call: Call, results: Mapping[str, list[AlterShareGroupOffsetsResponsePartition]]
) -> Iterator[AlterShareGroupOffsetsResponseTopic]:
    """Yield the results by topic. As in Kafka, a topic without partitions is listed only if it exists."""
    for name, partitions in results.items():
        topic = call.core.topics.get(name)
        if partitions or topic is not None:
            topic_id = None if topic is None else topic.topic_id
            yield AlterShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=partitions)


HANDLER = Handler(_handle)
