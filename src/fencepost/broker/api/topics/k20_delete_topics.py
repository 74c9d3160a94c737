"""DeleteTopics, v1-6: delete topics by name, from v6 also by id.

Waiting fetches of them are answered.

An open transaction on a deleted topic ends without a marker there: the coordinator acknowledges a deleted partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from uuid import UUID

from fencepost.broker.api.common import may_see
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.disk.changes import Change
from fencepost.broker.parts import BrokerParts
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.broker.topics.topic import Topic
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DeleteTopicsRequest) -> None:
    """Delete the topics together; each has its own result."""
    call.change(request, _deleted(call, request))


def _deleted(call: Call, request: DeleteTopicsRequest) -> Change[DeleteTopicsResponse]:
    if call.version >= 6:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    responses = [_unclear(name, topic_id) for name, topic_id in wanted if (name is None) == (topic_id is None)]
    deletions: dict[Topic, None] = {}
    for (name, topic_id), times in Counter(wanted).items():
        if (name is None) == (topic_id is None):
            continue
        if times > 1:
            message = "Duplicate topic name." if name is not None else "Duplicate topic id."
            twice = ErrorCode.INVALID_REQUEST
            responses.append(
                DeletableTopicResult(name=name, topic_id=topic_id, error_code=twice, error_message=message)
            )
        else:
            responses.append(_plan_deletion(call, deletions, name, topic_id))
    yield from _delete(call, deletions)
    return DeleteTopicsResponse(responses=responses)


def _delete(call: Call, deletions: Collection[Topic]) -> Change[None]:
    core = call.core
    for topic in deletions:
        core.transactions.warn_of_loss(f"topic {topic.name!r} is deleted", topic=topic.name)
    try:
        if deletions:
            yield from core.topics.delete_all(deletions)
    finally:  # an error may come after the deletion
        _tell_others(core, [topic for topic in deletions if core.topics.by_id(topic.topic_id) is None])


def _tell_others(core: BrokerParts, deleted: Collection[Topic]) -> None:
    for topic in deleted:
        for partition in topic.partitions:
            core.advanced(partition)
        core.groups.topic_deleted(core.now.ms, topic.name, len(topic.partitions))
        core.shares.topic_deleted(core.now.ms, topic.partitions)


def _unclear(name: str | None, topic_id: UUID | None) -> DeletableTopicResult:
    both = "You may not specify both topic name and topic id."
    message = "Neither topic name nor id were specified." if name is None else both
    invalid = ErrorCode.INVALID_REQUEST
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=invalid, error_message=message)


def _plan_deletion(
    call: Call, deletions: dict[Topic, None], name: str | None, topic_id: UUID | None
) -> DeletableTopicResult:
    """Return the result for one topic, and add it to `deletions` if it is to be deleted."""
    core = call.core
    topic = core.topics.get(name) if name is not None else core.topics.by_id(topic_id)
    if topic in deletions:  # named by its name and by its id
        topic = None
    known = name if topic is None else topic.name
    if known is not None and not call.may(Operation.DELETE, ResourceType.TOPIC, known):
        # An id is no secret, but its name is.
        shown = known if name is not None or may_see(call, known) else None
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return DeletableTopicResult(name=shown, topic_id=topic_id, error_code=denied)
    if topic is None:
        code, what = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic-partition"
        if name is None:
            code, what = ErrorCode.UNKNOWN_TOPIC_ID, "topic ID"
        message = f"This server does not host this {what}."
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
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
    deletions[topic] = None
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


HANDLER = Handler(_handle)
