"""DescribeTransactions, v0: state, timeout, owner and partitions of transactional ids (KIP-664).

A client that sets `include_ending` also gets the outcome of the transaction that it names by producer id and epoch, and
the pair on the records of an open transaction. These are tagged fields of Fencepost: other clients do not get them. The
reply is sent when everything in it is durable.

Only topics that the client may describe are listed.
"""

from __future__ import annotations

from fencepost.broker.api.common import may_see
from fencepost.broker.api.handler import Handler
from fencepost.broker.api.visibility import when_ends_are_visible
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.txn.model import ProducerPair, Result
from fencepost.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DescribeTransactionsRequest) -> None:
    """Describe each id, after completing transactions whose EndTxn was answered. Everything in the reply is durable."""

    def answer(now_ms: int) -> None:
        states = [_describe(call, name, request) for name in request.transactional_ids]
        response = DescribeTransactionsResponse(transaction_states=states)
        call.core.transactions.apply(now_ms, Result(None), lambda _: call.reply(response))

    when_ends_are_visible(call, now_ms, request, answer)


def _describe(call: Call, transactional_id: str, request: DescribeTransactionsRequest) -> TransactionState:
    prepared = ProducerPair(request.prepared_producer_id, request.prepared_producer_epoch)
    view = call.core.transactions.coordinator.describe(transactional_id, prepared)
    described = TransactionState(
        error_code=view.error_code,
        transactional_id=view.transactional_id,
        transaction_state=view.state,
        transaction_timeout_ms=view.timeout_ms,
        transaction_start_time_ms=view.start_ms,
        producer_id=view.producer_id,
        producer_epoch=view.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=partitions)
            for topic, partitions in view.topics
            if may_see(call, topic, quiet=True)
        ],
    )
    if request.include_ending:
        described.ending = view.ending
        described.written_producer_id, described.written_producer_epoch = (
            view.ongoing_producer_id,
            view.ongoing_producer_epoch,
        )
    return described


HANDLER = Handler(_handle)
