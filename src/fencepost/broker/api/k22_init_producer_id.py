"""InitProducerId, v0-6: a producer id and epoch, for idempotence alone (null id) or for a transactional id.

v3 names the (producer id, epoch) that the client has (KIP-360), v4 knows PRODUCER_FENCED, v6 two-phase commit and
keeping what was prepared (KIP-939). An open transaction is aborted first, and the request waits for its markers
instead of sending the client away.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.broker.api.transactional import decide_and_reply
from fencepost.broker.connection import Call
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

__all__ = ["handle"]


def handle(call: Call, now_ms: int, request: InitProducerIdRequest) -> None:
    """Give out a producer id and epoch."""
    transactions = call.core.transactions

    def decide(now_ms: int) -> tuple[int, Callable[[int], None]]:
        result = transactions.coordinator.init_producer_id(
            now_ms,
            request.transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            api_version=call.version,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            enable_two_phase=request.enable2_pc,
            keep_prepared=request.keep_prepared_txn,
        )
        transactions.apply(now_ms, result)
        reply = result.reply
        response = InitProducerIdResponse(
            error_code=reply.error_code,
            producer_id=reply.producer_id,
            producer_epoch=reply.producer_epoch,
            ongoing_txn_producer_id=reply.ongoing_producer_id,
            ongoing_txn_producer_epoch=reply.ongoing_producer_epoch,
        )
        return reply.error_code, lambda _: call.reply(response)

    decide_and_reply(call, now_ms, request.transactional_id or "", decide)
