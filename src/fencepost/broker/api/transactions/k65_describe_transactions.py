"""DescribeTransactions, v0: state, timeout, owner and partitions of transactional ids (KIP-664)."""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.transactions.waiting import when_ends_are_visible
from fencepost.broker.connection import Call
from fencepost.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DescribeTransactionsRequest) -> None:
    """Describe each id. What was answered to be ended is complete."""

    def answer(_now_ms: int) -> None:
        states = [_describe(call, name) for name in request.transactional_ids]
        call.reply(DescribeTransactionsResponse(transaction_states=states))

    when_ends_are_visible(call, now_ms, request, answer)


def _describe(call: Call, transactional_id: str) -> TransactionState:
    found = call.core.transactions.coordinator.describe(transactional_id)
    return TransactionState(
        error_code=found.error_code,
        transactional_id=found.transactional_id,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in found.topics],
    )


HANDLER = Handler(_handle)
