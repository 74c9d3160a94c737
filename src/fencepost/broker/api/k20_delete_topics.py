"""DeleteTopics, v1-6: remove topics by name, from v6 also by id. Fetches that wait for them are answered.

An open transaction on a deleted topic ends without a marker there: the coordinator counts a partition that is gone as
done.
"""

from __future__ import annotations

from uuid import UUID

from fencepost.broker.acl.model import Operation, ResourceType
from fencepost.broker.api.common import may_see
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

__all__ = ["handle"]


def handle(call: Call, now_ms: int, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete the topics one by one; each has its own result."""
    if call.version >= 6:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    return DeleteTopicsResponse(responses=[_delete(call, now_ms, name, topic_id) for name, topic_id in wanted])


def _delete(call: Call, now_ms: int, name: str | None, topic_id: UUID | None) -> DeletableTopicResult:
    core = call.core
    topic = core.topics.get(name) if name is not None else core.topics.by_id(topic_id)
    if name is not None and topic_id is not None:
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.INVALID_REQUEST)
    known = name if topic is None else topic.name
    if known is not None and not call.may(Operation.DELETE, ResourceType.TOPIC, known):
        # An id is no secret, but the name behind it is.
        shown = known if name is not None or may_see(call, known) else None
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return DeletableTopicResult(name=shown, topic_id=topic_id, error_code=denied)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name is not None else ErrorCode.UNKNOWN_TOPIC_ID
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code)
    if not core.config.flag("delete.topic.enable"):
        return DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.TOPIC_DELETION_DISABLED
        )
    if topic.internal:
        message = "The broker's own topics cannot be deleted."
        return DeletableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message=message,
        )
    partitions = list(topic.partitions)
    core.topics.delete(topic)
    for partition in partitions:
        core.advanced(partition)
    core.groups.topic_deleted(now_ms, topic.name, len(partitions))
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
