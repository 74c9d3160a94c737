"""InitProducerId, TxnOffsetCommit and EndTxn as calls: of a producer, or of a resolver that has no producer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from fencepost.client.net.cluster import AnyNode, Cluster, Coordinator, CoordinatorKind
from fencepost.client.net.connection import Connection
from fencepost.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.errors import UnsupportedVersionError
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages import txn_offset_commit as toc
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from fencepost.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from fencepost.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TRANSACTION_VERSION: Final = "transaction.version"
TXN_OFFSET_COMMIT: Final = toc.TxnOffsetCommitRequest.API_KEY


def end_txn_versions(connection: Connection) -> tuple[int, int]:
    """EndTxn v5 bumps the epoch and is only for clusters that finalized transaction.version 2 (KIP-890)."""
    return (0, 5) if connection.features.get(TRANSACTION_VERSION, 0) >= 2 else (0, 4)


async def init_producer_id(
    cluster: Cluster, request: InitProducerIdRequest, deadline_ms: int
) -> InitProducerIdResponse:
    """InitProducerId, retried while the coordinator asks for it; the code in the reply is 0 or final."""
    if request.enable2_pc or request.keep_prepared_txn:
        versions = (6, 6)
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
        what=f"InitProducerId of {transactional_id!r}",
    )
    return reply


def topics_to_add(partitions: Iterable[tuple[str, int]]) -> list[AddPartitionsToTxnTopic]:
    """What AddPartitionsToTxn up to v3 asks for."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return [AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in topics.items()]


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


async def txn_offset_commit(
    cluster: Cluster,
    request: toc.TxnOffsetCommitRequest,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: GroupMetadata,
    deadline_ms: int,
    *,
    implicit: bool,
) -> toc.TxnOffsetCommitResponse:
    """TxnOffsetCommit of a producer's `request` with these positions; `offsets_code` of the reply is 0 or final.

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
    )
    return reply


def _offset_versions(connection: Connection, *, member: bool, implicit: bool) -> tuple[int, int]:
    """Below v3 the member is not checked, and the offsets of one that was replaced would be taken (KIP-447)."""
    if member and not connection.offers(TXN_OFFSET_COMMIT, 3):
        instead = "give send_offsets_to_transaction the group's name, and each input partition a producer of its own"
        raise UnsupportedVersionError(
            f"{connection.name} cannot check a group's member (TxnOffsetCommit v3, which Apache Kafka has since 2.5): "
            f"{instead}",
            code=E.UNSUPPORTED_VERSION,
        )
    return (0, 5 if implicit else 4)


def offsets_code(reply: toc.TxnOffsetCommitResponse) -> int:
    """The first refusal of a TxnOffsetCommit, 0 when there is none."""
    return next(
        (partition.error_code for topic in reply.topics for partition in topic.partitions if partition.error_code != 0),
        0,
    )
