"""The requests InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn and DescribeTransactions.

Producers use them, and resolvers of prepared transactions, which have no producer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from fencepost.client.net import retry
from fencepost.client.net.answers import only
from fencepost.client.net.cluster import AnyNode, Cluster, Coordinator, CoordinatorKind
from fencepost.client.net.connection import BrokerConnection
from fencepost.client.prepared import PreparedAnswer, PreparedTransaction, judge
from fencepost.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.errors import AuthorizationError, KafkaError, UnsupportedVersionError, error_for
from fencepost.protocol.codec import Message
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.endings import Ending
from fencepost.protocol.messages import txn_offset_commit as toc
from fencepost.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from fencepost.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from fencepost.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from fencepost.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TRANSACTION_VERSION: Final = "transaction.version"
_TWO_PHASE: Final = (6, 6)  # versions of InitProducerId (KIP-939)
ADD_VERSIONS: Final = (0, 3)  # only brokers use newer versions
MOVED_ON: Final = (
    E.INVALID_PRODUCER_EPOCH,
    E.INVALID_TXN_STATE,
    E.INVALID_PRODUCER_ID_MAPPING,
    E.UNKNOWN_PRODUCER_ID,
    E.PRODUCER_FENCED,
    E.TRANSACTION_ABORTABLE,
)
"""Errors of EndTxn that do not show the outcome: the id has moved on, or no part of the transaction is open."""
END_TXN_WITH_BUMP: Final = 5  # below this version a late EndTxn can end a later transaction of the same epoch (KIP-890)
TXN_OFFSET_COMMIT: Final = toc.TxnOffsetCommitRequest.API_KEY


def end_txn_versions(connection: BrokerConnection) -> tuple[int, int]:
    """Return the versions for EndTxn. v5 bumps the epoch, and requires finalized transaction.version 2 (KIP-890)."""
    return (0, END_TXN_WITH_BUMP) if connection.features.get(TRANSACTION_VERSION, 0) >= 2 else (0, 4)


async def check_two_phase(cluster: Cluster, transactional_id: str, deadline_ms: int) -> None:
    """Raise UnsupportedVersionError if the epoch does not distinguish a prepared transaction from the next one.

    This is so below transaction.version 2: a late or repeated decision would end the next transaction instead.
    """
    operation, target = "two-phase commit", Coordinator(CoordinatorKind.TRANSACTION, transactional_id)
    connection = await cluster.until_answered(
        operation, lambda: cluster.reach(target, deadline_ms), deadline_ms, target=target
    )
    connection.version(InitProducerIdRequest.API_KEY, *_TWO_PHASE)
    level = connection.features.get(TRANSACTION_VERSION, 0)
    if level < 2:
        words = "with which each transaction has an epoch of its own; raise the feature, or do without preparing"
        raise UnsupportedVersionError(
            f"{connection.name} has {TRANSACTION_VERSION} {level}; {operation} needs 2, {words}",
            code=E.UNSUPPORTED_VERSION,
        )


async def init_producer_id(
    cluster: Cluster, request: InitProducerIdRequest, deadline_ms: int
) -> InitProducerIdResponse:
    """Send InitProducerId, with retries. The error code in the response is 0 or final."""
    if request.enable2_pc or request.keep_prepared_txn:
        versions = _TWO_PHASE
    elif request.producer_id >= 0:
        versions = (3, 5)
    else:
        versions = (0, 5)
    transactional_id = request.transactional_id
    target = AnyNode() if transactional_id is None else Coordinator(CoordinatorKind.TRANSACTION, transactional_id)
    reply: InitProducerIdResponse = await cluster.call(
        target,
        request,
        versions,
        deadline_ms=deadline_ms,
        code_of=lambda answer: int(answer.error_code),
        operation=f"InitProducerId of {transactional_id!r}",
    )
    return reply


async def describe_transaction(
    cluster: Cluster, transactional_id: str, deadline_ms: int, prepared: PreparedTransaction | None = None
) -> TransactionState | None:
    """Return the coordinator's description of the id; None if it cannot or may not describe it.

    A broker that stores endings also returns how the transaction `prepared` ended. Raises KafkaTimeoutError.
    """
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    if prepared is not None:
        request.include_ending = True
        request.prepared_producer_id, request.prepared_producer_epoch = prepared.producer_id, prepared.epoch
    try:
        reply: DescribeTransactionsResponse = await cluster.call(
            Coordinator(CoordinatorKind.TRANSACTION, transactional_id),
            request,
            (0, 0),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(only(answer.transaction_states).error_code),
        )
    except (UnsupportedVersionError, AuthorizationError):
        return None
    return only(reply.transaction_states)


async def find_ending(
    cluster: Cluster,
    transactional_id: str,
    prepared: PreparedTransaction,
    deadline_ms: int,
    before: TransactionState | None = None,
    topics: Iterable[str] = (),
) -> PreparedAnswer:
    """Find the outcome of the prepared transaction. Raises KafkaTimeoutError, and the errors of reading a topic.

    The last two arguments help if the broker does not store endings: `before` is an earlier description of the id, and
    `topics` are searched for the transaction's marker.
    """
    state = await describe_transaction(cluster, transactional_id, deadline_ms, prepared)
    own_epochs = cluster.features.get(TRANSACTION_VERSION, 0) >= 2
    found = judge(prepared, state, own_epochs=own_epochs)
    if found.ending is Ending.UNKNOWN and before is not None:
        earlier = judge(prepared, before, own_epochs=own_epochs)
        found = found if earlier.ending is Ending.UNKNOWN else earlier
    if found.ending is Ending.UNKNOWN and own_epochs and (named := sorted(topics)):
        words = f"{found.words}; the markers in {', '.join(named)} were looked for"
        from fencepost.client.net.markers import search  # it reads logs, which few producers do

        found = found._replace(ending=await search(cluster, named, prepared, deadline_ms), words=words)
    return found


def add_code(reply: AddPartitionsToTxnResponse) -> int:
    """Return the decisive error code. 55 (not attempted) only shows that another partition failed."""
    codes = [
        result.partition_error_code
        for topic in reply.results_by_topic_v3_and_below
        for result in topic.results_by_partition
        if result.partition_error_code != 0
    ]
    return next((code for code in codes if code != E.OPERATION_NOT_ATTEMPTED), codes[0] if codes else 0)


def to_enlist(
    transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[tuple[str, int]]
) -> AddPartitionsToTxnRequest:
    """Return a producer's AddPartitionsToTxn request, for the versions in ADD_VERSIONS."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in topics.items()],
    )


async def enlist(
    cluster: Cluster,
    request: AddPartitionsToTxnRequest,
    deadline_ms: int,
    unanswered: list[KafkaError] | None = None,
) -> int:
    """Send AddPartitionsToTxn, with retries. Return 0 or the final error code. Raises KafkaTimeoutError."""
    target = Coordinator(CoordinatorKind.TRANSACTION, request.v3_and_below_transactional_id)
    reply: AddPartitionsToTxnResponse = await cluster.call(
        target, request, ADD_VERSIONS, deadline_ms=deadline_ms, code_of=add_code, unanswered=unanswered
    )
    return add_code(reply)


async def add_offsets(
    cluster: Cluster, request: AddOffsetsToTxnRequest, deadline_ms: int, unanswered: list[KafkaError] | None = None
) -> int:
    """Send AddOffsetsToTxn, with retries. Return 0 or the final error code. Raises KafkaTimeoutError."""
    reply: AddOffsetsToTxnResponse = await cluster.call(
        Coordinator(CoordinatorKind.TRANSACTION, request.transactional_id),
        request,
        ADD_VERSIONS,
        deadline_ms=deadline_ms,
        code_of=lambda answer: int(answer.error_code),
        unanswered=unanswered,
    )
    return int(reply.error_code)


def must_enlist(cluster: Cluster) -> bool:
    """Return true if the brokers lack part 2 of KIP-890: EndTxn v5 and batches that enlist their partition."""
    return cluster.features.get(TRANSACTION_VERSION, 0) < 1


async def once(
    cluster: Cluster,
    request: Message,
    transactional_id: str,
    versions: tuple[int, int],
    code_of: Callable[[Any], int],
    deadline_ms: int,
) -> Any:
    """Return the definite response of the id's coordinator, or None if a sent request has no response.

    In that case it may still be executed, and is not repeated. Responses with a retriable error (14, 15, 16, 51) prove
    that it was not executed, so it is repeated. Raises KafkaTimeoutError if nothing could be sent, and
    UnsupportedVersionError.
    """
    target = Coordinator(CoordinatorKind.TRANSACTION, transactional_id)
    operation = f"{type(request).__name__.removesuffix('Request')} of {transactional_id!r}"

    async def ask() -> Any:
        try:
            connection = await cluster.reach(target, deadline_ms)
            version = connection.version(request.API_KEY, *versions)
            left = max(deadline_ms - cluster.runtime.now_ms(), 0)
            reply = await connection.request(request, version, timeout_ms=left)
        except KafkaError as failure:
            cluster.forget_coordinator(target)
            if failure.may_have_taken_effect:
                return None
            raise
        if retry.action(request.API_KEY, code_of(reply)) in retry.RETRIABLE:
            raise error_for(code_of(reply), operation)
        return reply

    return await cluster.until_answered(operation, ask, deadline_ms, target=target, api_key=request.API_KEY)


async def end_txn(
    cluster: Cluster,
    request: EndTxnRequest,
    deadline_ms: int,
    version: int | None = None,
    unanswered: list[KafkaError] | None = None,
) -> EndTxnResponse:
    """Send EndTxn, with retries. The error code in the response is 0 or final."""
    reply: EndTxnResponse = await cluster.call(
        Coordinator(CoordinatorKind.TRANSACTION, request.transactional_id),
        request,
        end_txn_versions if version is None else (version, version),
        deadline_ms=deadline_ms,
        code_of=lambda answer: int(answer.error_code),
        operation=f"EndTxn of {request.transactional_id!r}",
        unanswered=unanswered,
    )
    return reply


async def txn_offset_commit(
    cluster: Cluster,
    request: toc.TxnOffsetCommitRequest,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: GroupMetadata,
    deadline_ms: int,
    *,
    implicit: bool,
    unanswered: list[KafkaError] | None = None,
) -> toc.TxnOffsetCommitResponse:
    """Send a producer's TxnOffsetCommit with these positions, with retries.

    `offsets_code` of the response is 0 or final.

    `implicit`: the request itself adds the group to the transaction (KIP-890). Raises UnsupportedVersionError.
    """
    topics: dict[str, list[toc.TxnOffsetCommitRequestPartition]] = defaultdict(list)
    for partition, position in offsets.items():
        topics[partition.topic].append(
            toc.TxnOffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    known_member = group.member_id or group.group_instance_id is not None or group.generation_id >= 0
    reply: toc.TxnOffsetCommitResponse = await cluster.call(
        Coordinator(CoordinatorKind.GROUP, group.group_id),
        replace(
            request,
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[toc.TxnOffsetCommitRequestTopic(name=name, partitions=items) for name, items in topics.items()],
        ),
        partial(_offset_versions, member=bool(known_member), implicit=implicit),
        deadline_ms=deadline_ms,
        code_of=offsets_code,
        unanswered=unanswered,
    )
    return reply


def _offset_versions(connection: BrokerConnection, *, member: bool, implicit: bool) -> tuple[int, int]:
    """Return the versions for TxnOffsetCommit.

    Below v3 the broker does not check the member. It would accept the offsets of a member that was replaced (KIP-447).
    """
    if member and not connection.offers(TXN_OFFSET_COMMIT, 3):
        instead = "give send_offsets_to_transaction the group's name, and each input partition a producer of its own"
        raise UnsupportedVersionError(
            f"{connection.name} cannot check a group's member (TxnOffsetCommit v3, which Apache Kafka has since 2.5): "
            f"{instead}",
            code=E.UNSUPPORTED_VERSION,
        )
    return (0, 5 if implicit else 4)


def offsets_code(reply: toc.TxnOffsetCommitResponse) -> int:
    """Return the first error code of a TxnOffsetCommit response, or 0."""
    return next(
        (partition.error_code for topic in reply.topics for partition in topic.partitions if partition.error_code != 0),
        0,
    )
