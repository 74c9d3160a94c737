"""AddOffsetsToTxn, v0-4: enlist a group's partition of `__consumer_offsets` in a transaction.

Clients with KIP-890 do not send it.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.transactions.waiting import decide_and_reply
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from fencepost.broker.coordinator.txn.model import ProducerPair
from fencepost.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: AddOffsetsToTxnRequest) -> None:
    """Enlist the partition."""
    partition = call.core.groups.offsets_partition(request.group_id)
    transactions = call.core.transactions
    pair = ProducerPair(request.producer_id, request.producer_epoch)
    offsets = ((partition.topic.name, partition.index),)
    wanted = EnlistRequest(request.transactional_id, pair, offsets, call.version, call.connection.software_name)

    def decide(now_ms: int) -> tuple[int, Callable[[int], None]]:
        result = transactions.coordinator.add(now_ms, wanted)
        transactions.apply(now_ms, result)
        code = result.reply.error_code
        return code, lambda _: call.reply(AddOffsetsToTxnResponse(error_code=code))

    decide_and_reply(call, now_ms, request, request.transactional_id, decide)


HANDLER = Handler(_handle)
