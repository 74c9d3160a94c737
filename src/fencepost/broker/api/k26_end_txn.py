"""EndTxn, v0-5: commit or abort. v2 knows PRODUCER_FENCED, v5 hands out the epoch of the next transaction (KIP-890).

The answer says that the decision is durable; the markers follow at once. From the decision on no batch of the finished
transaction's epoch is accepted by the partitions that were enlisted.
"""

from __future__ import annotations

from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

__all__ = ["handle"]


def handle(call: Call, now_ms: int, request: EndTxnRequest) -> None:
    """Decide, and reply when the decision is durable, before the first marker."""
    transactions = call.core.transactions

    def attempt(now_ms: int, first: bool) -> None:
        result = transactions.coordinator.end_txn(
            now_ms,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            api_version=call.version,
            software_name=call.connection.software_name,
        )
        reply = result.reply
        if reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS and first and not result.records:
            transactions.when_idle(now_ms, request.transactional_id, again)
            return
        response = EndTxnResponse(
            error_code=reply.error_code, producer_id=reply.producer_id, producer_epoch=reply.producer_epoch
        )
        transactions.apply(now_ms, result, lambda _: call.reply(response))

    def again(now_ms: int) -> None:
        if not call.connection.closed:
            attempt(now_ms, False)

    attempt(now_ms, True)
