"""InitProducerId and EndTxn as calls, for whoever ends transactions: a producer, or a resolver without one."""

from __future__ import annotations

from typing import Final

from fencepost.client.net.cluster import AnyNode, Cluster, Coordinator, CoordinatorKind
from fencepost.client.net.connection import Connection
from fencepost.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TRANSACTION_VERSION: Final = "transaction.version"


def end_txn_versions(connection: Connection) -> tuple[int, int]:
    """EndTxn v5 bumps the epoch and is only for clusters that finalized transaction.version 2 (KIP-890)."""
    return (0, 5) if connection.features.get(TRANSACTION_VERSION, 0) >= 2 else (0, 4)


async def init_producer_id(
    cluster: Cluster, request: InitProducerIdRequest, deadline_ms: int, *, lowest: int = 0
) -> InitProducerIdResponse:
    """InitProducerId, retried while the coordinator asks for it; the code in the reply is 0 or final.

    `lowest` is the oldest version that is of use to the caller.
    """
    if request.enable2_pc or request.keep_prepared_txn:
        versions = (6, 6)
    elif request.producer_id >= 0:
        versions = (3, 5)
    else:
        versions = (lowest, 5)
    transactional_id = request.transactional_id
    target = AnyNode() if transactional_id is None else Coordinator(CoordinatorKind.TRANSACTION, transactional_id)
    reply: InitProducerIdResponse = await cluster.call(
        target,
        request,
        versions,
        deadline_ms=deadline_ms,
        code_of=lambda answer: int(answer.error_code),
        what=f"InitProducerId of {transactional_id!r}",
    )
    return reply


async def end_txn(
    cluster: Cluster, request: EndTxnRequest, deadline_ms: int, version: int | None = None
) -> EndTxnResponse:
    """EndTxn, retried while the coordinator asks for it; the code in the reply is 0 or final."""
    reply: EndTxnResponse = await cluster.call(
        Coordinator(CoordinatorKind.TRANSACTION, request.transactional_id),
        request,
        end_txn_versions if version is None else (version, version),
        deadline_ms=deadline_ms,
        code_of=lambda answer: int(answer.error_code),
        what=f"EndTxn of {request.transactional_id!r}",
    )
    return reply
