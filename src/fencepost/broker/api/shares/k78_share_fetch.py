"""ShareFetch, v1-2 (KIP-932): acquire records, and acknowledge earlier ones.

v2 has a strict limit of records (KIP-1206) and renews locks (KIP-1222). Epoch 0 begins a session, identified by group
and member. Epoch -1 ends it and releases the member's records.
"""

from __future__ import annotations

from fencepost.broker.api.common import partition_key
from fencepost.broker.api.handler import Handler
from fencepost.broker.api.shares.acknowledging import Acknowledgements, acknowledge, member_error
from fencepost.broker.api.shares.share_fetching import ParkedShareFetch
from fencepost.broker.connection import Call
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.broker.share.share_sessions import FINAL_EPOCH, INITIAL_EPOCH
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

__all__ = ["HANDLER"]

_FETCHES_NOTHING = {
    "max_bytes": "maxBytes",
    "min_bytes": "minBytes",
    "max_records": "maxRecords",
    "max_wait_ms": "maxWaitMs",
}


def _handle(call: Call, now_ms: int, request: ShareFetchRequest) -> ShareFetchResponse | None:
    """Answer now or park the fetch."""
    problem = member_error(request.group_id, request.member_id) or _renewal_problem(request)
    if problem is not None:
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    group_id, member_id = request.group_id or "", request.member_id or ""
    acknowledgements = [
        Acknowledgements(topic.topic_id, each.partition_index, each.acknowledgement_batches)
        for topic in request.topics
        for each in topic.partitions
        if each.acknowledgement_batches
    ]
    shares, sessions, epoch = call.core.shares, call.core.shares.sessions, request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        if acknowledgements:
            return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        before = sessions.get(group_id, member_id)
        if before is not None:
            shares.end_session(now_ms, before)
        session = sessions.begin(group_id, member_id, call.connection.connection_id)
    else:
        session = sessions.advance(group_id, member_id, epoch)
    if session is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
        # A refused client retries at once.
        call.after(request.max_wait_ms, lambda _: call.reply(ShareFetchResponse(error_code=session)))
        return None
    if isinstance(session, ErrorCode):
        return ShareFetchResponse(error_code=session)
    partitions: list[TopicIdPartition] = []
    if epoch != FINAL_EPOCH:
        session.update(_named(request), _forgotten(request))
        partitions = [] if request.is_renew_ack else session.next_turn()
    codes = acknowledge(call, now_ms, group_id, member_id, acknowledgements, renews=request.is_renew_ack)
    if epoch == FINAL_EPOCH:
        shares.end_session(now_ms, session)
    ParkedShareFetch(call, request, partitions, codes).start(now_ms)
    return None


def _named(request: ShareFetchRequest) -> list[TopicIdPartition]:
    return [
        partition_key(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions
    ]


def _forgotten(request: ShareFetchRequest) -> list[TopicIdPartition]:
    return [
        partition_key(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]


def _renewal_problem(request: ShareFetchRequest) -> str | None:
    """Return Kafka's error for a request that renews and fetches, or None.

    Its locks could expire again while it waits.
    """
    wrong = [name for name in _FETCHES_NOTHING if getattr(request, name)] if request.is_renew_ack else []
    if not wrong:
        return None
    return "".join(f"{_FETCHES_NOTHING[name]} must be set to 0, " for name in wrong) + "if isRenewAck is true."


def _authorize(call: Call, request: ShareFetchRequest) -> ShareFetchResponse | None:
    """Check the right to read the group, and each topic by itself."""
    if request.group_id is None or call.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return None
    return ShareFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)


HANDLER = Handler(_handle, authorize=_authorize)
