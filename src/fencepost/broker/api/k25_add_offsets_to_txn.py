"""AddOffsetsToTxn, v0-4: enlist a group's partition of `__consumer_offsets` in a transaction.

Clients on KIP-890 do without it.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.broker.api.transactional import decide_and_reply
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

__all__ = ["handle"]


def handle(call: Call, now_ms: int, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse | None:
    """Enlist the partition."""
    if not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    partition = call.core.groups.offsets_partition(request.group_id)
    transactions = call.core.transactions

    def decide(now_ms: int) -> tuple[int, Callable[[int], None]]:
        result = transactions.coordinator.add_offsets(
            now_ms,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            (partition.topic.name, partition.index),
            api_version=call.version,
            software_name=call.connection.software_name,
        )
        transactions.apply(now_ms, result)
        code = result.reply.error_code
        return code, lambda _: call.reply(AddOffsetsToTxnResponse(error_code=code))

    decide_and_reply(call, now_ms, request.transactional_id, decide)
    return None
