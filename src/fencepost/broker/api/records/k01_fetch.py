"""Fetch, v4-18: batches as they are in the log, up to the isolation bound, with the ranges of aborted transactions.

v4 isolation levels, v5 log start offset, v7 sessions (KIP-227), v9 leader epochs, v12 flexible, v13 topic ids, v15 on:
replica state. The answer waits for min_bytes, an error, or max_wait_ms.
"""

from __future__ import annotations

from dataclasses import replace

from fencepost.broker.api.error_responses import refusal
from fencepost.broker.api.handler import Handler
from fencepost.broker.api.records.fetching import FIRST_BY_TOPIC_ID, ParkedFetch
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.fetch_wire import READ_COMMITTED, READ_UNCOMMITTED, FetchRequest, FetchResponse

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: FetchRequest) -> FetchResponse | None:
    """Answer now or park the fetch."""
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        refused: FetchResponse = refusal(request, ErrorCode.INVALID_REQUEST)
        return replace(refused, error_code=ErrorCode.INVALID_REQUEST)
    opened = call.core.fetch_sessions.open(now_ms, request, by_topic_id=call.version >= FIRST_BY_TOPIC_ID)
    if opened.error_code:
        return FetchResponse(error_code=opened.error_code)
    if opened.session is not None:
        call.core.metrics.count("incremental_fetches")
    ParkedFetch(call, request, opened).start(now_ms, request.max_wait_ms)
    return None


HANDLER = Handler(_handle)
