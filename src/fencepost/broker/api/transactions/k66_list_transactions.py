"""ListTransactions, v0-2: transactional ids by state, producer id, duration (v1) and pattern of the id (v2)."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.visibility import when_ends_are_visible
from fencepost.broker.connection import Call
from fencepost.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: ListTransactionsRequest) -> None:
    """List the transactions that match every filter, after completing those whose EndTxn was answered."""
    when_ends_are_visible(call, now_ms, request, lambda now_ms: call.reply(_list(call, now_ms, request)))


def _list(call: Call, now_ms: int, request: ListTransactionsRequest) -> ListTransactionsResponse:
    result = call.core.transactions.coordinator.list_transactions(
        now_ms,
        states=request.state_filters,
        producer_ids=request.producer_id_filters,
        duration_ms=request.duration_filter,
        pattern=request.transactional_id_pattern,
    )
    return ListTransactionsResponse(
        error_code=result.error_code,
        unknown_state_filters=result.unknown_states,
        transaction_states=[
            TransactionState(
                transactional_id=listed.transactional_id, producer_id=listed.producer_id, transaction_state=listed.state
            )
            for listed in result.listings
        ],
    )


HANDLER = Handler(_handle)
