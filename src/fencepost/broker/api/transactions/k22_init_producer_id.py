"""InitProducerId, v0-6: a producer id and epoch, for idempotence alone (null id) or for a transactional id.

v3 names the client's present (producer id, epoch) (KIP-360), v4 knows PRODUCER_FENCED, v6 two-phase commit and
KeepPreparedTxn (KIP-939). An open transaction is aborted first, and the request waits for its markers, so that the
client need not retry.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.transactions.waiting import decide_and_reply
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.txn.decide_init import InitRequest
from fencepost.broker.coordinator.txn.model import ProducerPair
from fencepost.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from fencepost.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: InitProducerIdRequest) -> InitProducerIdResponse | None:
    """Return a producer id and epoch. KeepPreparedTxn needs no right beyond WRITE."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        if not call.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True) and not (
            call.core.rights.may_any(call.connection, Operation.WRITE, ResourceType.TOPIC)
        ):
            return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif not call.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    may_two_phase = (
        transactional_id is None
        or not request.enable2_pc
        or call.may(Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id)
    )
    if call.core.meta.is_short_of_producer_ids:
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # as in Kafka when its block of ids is used up
    transactions = call.core.transactions
    init = InitRequest(
        transactional_id,
        request.transaction_timeout_ms,
        ProducerPair(request.producer_id, request.producer_epoch),
        call.version,
        enable_two_phase=request.enable2_pc,
        keep_prepared=request.keep_prepared_txn,
        may_two_phase=may_two_phase,
    )

    def decide(now_ms: int) -> tuple[int, Callable[[int], None]]:
        reply = transactions.init_producer_id(now_ms, init)
        response = InitProducerIdResponse(
            error_code=reply.error_code,
            producer_id=reply.producer_id,
            producer_epoch=reply.producer_epoch,
            ongoing_txn_producer_id=reply.ongoing_producer_id,
            ongoing_txn_producer_epoch=reply.ongoing_producer_epoch,
        )
        return reply.error_code, lambda _: call.reply(response)

    decide_and_reply(call, now_ms, request, transactional_id or "", decide)
    return None


def _refused(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLER = Handler(_handle)
