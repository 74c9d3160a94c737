"""ShareAcknowledge, v1-2 (KIP-932): acknowledge acquired records. v2 renews locks (KIP-1222).

The answer is sent when the acknowledgements are durable. The final epoch ends the session and releases the member's
other records.
"""

from __future__ import annotations

from uuid import UUID

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.shares.acknowledging import Acknowledgements, acknowledge, member_error
from fencepost.broker.connection import Call
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.broker.share.share_partitions import limits_of
from fencepost.broker.share.share_sessions import FINAL_EPOCH, INITIAL_EPOCH
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse | None:
    """Apply the acknowledgements."""
    problem = member_error(request.group_id, request.member_id)
    if problem is not None:
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    group_id, member_id = request.group_id or "", request.member_id or ""
    if request.share_session_epoch == INITIAL_EPOCH:
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    shares = call.core.shares
    session = shares.sessions.advance(group_id, member_id, request.share_session_epoch)
    if isinstance(session, ErrorCode):
        return ShareAcknowledgeResponse(error_code=session)
    acknowledgements = [
        Acknowledgements(topic.topic_id, each.partition_index, each.acknowledgement_batches)
        for topic in request.topics
        for each in topic.partitions
    ]
    codes = acknowledge(call, now_ms, group_id, member_id, acknowledgements, renews=request.is_renew_ack)
    if request.share_session_epoch == FINAL_EPOCH:
        shares.end_session(now_ms, session)
    topics: dict[UUID | None, ShareAcknowledgeTopicResponse] = {}
    for each in acknowledgements:
        topic = topics.setdefault(each.topic_id, ShareAcknowledgeTopicResponse(topic_id=each.topic_id, partitions=[]))
        code = codes[each.key]
        answer = PartitionData(partition_index=each.partition, error_code=code, current_leader=LeaderIdAndEpoch())
        topic.partitions = [*topic.partitions, answer]
    lock_ms = limits_of(call.core.settings.of_group(group_id)).lock_ms
    call.reply_when_durable(
        now_ms,
        ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_ms, responses=list(topics.values())),
    )
    return None


def _authorize(call: Call, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse | None:
    """Check the right to read the group, and each topic by itself."""
    if request.group_id is None or call.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return None
    return ShareAcknowledgeResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)


HANDLER = Handler(_handle, authorize=_authorize)
