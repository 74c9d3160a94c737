"""EndTxn, v0-5: commit or abort. v2 knows PRODUCER_FENCED, v5 returns the epoch of the next transaction (KIP-890).

The answer is sent when the decision is durable; the markers follow at once. From the decision on, the enlisted
partitions accept no batch with the finished transaction's epoch.
"""

from __future__ import annotations

from functools import partial

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.transactions.waiting import when_markers_are_written
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.txn.decide_end import EndRequest
from fencepost.broker.coordinator.txn.endings import ending_of
from fencepost.broker.coordinator.txn.model import ProducerPair
from fencepost.broker.coordinator.txn.transaction_log_messages import note_commit_of_nothing, note_refusal
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.endings import Ending
from fencepost.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: EndTxnRequest) -> None:
    """Decide, and reply when the decision is durable, before the first marker is written."""
    transactions = call.core.transactions
    pair = ProducerPair(request.producer_id, request.producer_epoch)
    end = EndRequest(request.transactional_id, pair, request.committed, call.version, call.connection.software_name)

    def attempt(now_ms: int, *, may_wait: bool) -> None:
        current = transactions.coordinator.transaction(end.transactional_id)
        result = transactions.coordinator.end_txn(now_ms, end)
        reply = result.reply
        if reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS and may_wait and not result.records:
            again = partial(attempt, may_wait=False)
            when_markers_are_written(call, now_ms, request, request.transactional_id, again)
            return
        # A decider knows only the pair of a kept transaction's records, and looks up the pair that ends it after this
        # answer.
        if reply.error_code and ending_of(current, pair) is not Ending.OPEN:
            note_refusal(call.core.metrics, "end_txn", reply.error_code, request.transactional_id)
        if reply.error_code == ErrorCode.INVALID_TXN_STATE and end.commit:
            note_commit_of_nothing(current, pair)
        response = EndTxnResponse(
            error_code=reply.error_code, producer_id=reply.producer_id, producer_epoch=reply.producer_epoch
        )
        transactions.apply(now_ms, result, lambda _: call.reply(response))

    attempt(now_ms, may_wait=True)


def _refuse(call: Call, code: int) -> EndTxnResponse:
    return EndTxnResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLER = Handler(_handle, refuse=_refuse)
