"""Fetch, v4-18: batches as they are in the log, up to the isolation bound, with the ranges of aborted transactions.

v4 isolation levels, v5 log start offset, v7 sessions (KIP-227), v9 leader epochs, v12 flexible, v13 topic ids, v15 on:
replica state. It waits until min_bytes are there, an error is to be told, or max_wait_ms are over. Left out:
incremental sessions. Session id 0 in every answer tells the client to go on with full requests, as a broker whose
cache of sessions is full does. A session that this broker never gave out is answered with FETCH_SESSION_ID_NOT_FOUND.
"""

from __future__ import annotations

from fencepost.broker.api.common import find_partition, leader_epoch_error
from fencepost.broker.connection import Call
from fencepost.broker.fetching import ParkedFetch, Wanted
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.fetch_wire import FetchRequest, FetchResponse, FetchTopicResult

__all__ = ["handle"]


def handle(call: Call, now_ms: int, request: FetchRequest) -> FetchResponse | None:
    """Answer now or park the fetch."""
    if request.session_id != 0 and request.session_epoch > 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    topics = []
    for topic in request.topics:
        wanted = []
        for asked in topic.partitions:
            partition, code, _ = find_partition(call.core, topic.topic, topic.topic_id, asked.partition)
            code = code or leader_epoch_error(asked.current_leader_epoch)
            wanted.append(Wanted(asked, None if code else partition, code))
        topics.append((FetchTopicResult(topic.topic, topic.topic_id, []), wanted))
    ParkedFetch(call, request, topics).start(now_ms, request.max_wait_ms)
    return None
