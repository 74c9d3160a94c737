"""TxnOffsetCommit, v0-5: offsets that take effect when the transaction commits. v3 names the member (KIP-447), v5
enlists by itself.

A producer whose transaction has timed out may be answered 0 with nothing stored: its EndTxn(commit), which cannot
succeed any more, tells it in a way that clients of its generation survive.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.transactions.waiting import when_markers_are_written
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.requests import CommitTransactionalOffsets, PartitionOffset
from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from fencepost.broker.coordinator.txn.model import ProducerPair
from fencepost.broker.coordinator.txn.notices import note_refusal
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | None:
    """Enlist the group's partition, store the offsets, reply when durable."""
    if not request.group_id:
        return _answer(request, {}, ErrorCode.INVALID_GROUP_ID)
    _attempt(call, request, now_ms, may_wait=True)
    return None


def _attempt(call: Call, request: TxnOffsetCommitRequest, now_ms: int, *, may_wait: bool) -> None:
    core = call.core
    partition = core.groups.offsets_partition(request.group_id)
    pair = ProducerPair(request.producer_id, request.producer_epoch)
    offsets = ((partition.topic.name, partition.index),)
    wanted = EnlistRequest(request.transactional_id, pair, offsets, call.version)
    enlisted = core.transactions.coordinator.enlist_for_offsets(now_ms, wanted)
    verdict = enlisted.reply
    if verdict.error_code == ErrorCode.CONCURRENT_TRANSACTIONS and may_wait:
        again = partial(_attempt, call, request, may_wait=False)
        when_markers_are_written(call, now_ms, request.transactional_id, again)
        return
    core.transactions.apply(now_ms, enlisted)
    note_refusal(core.metrics, "txn_offset_commit", verdict.error_code, request.transactional_id)
    if verdict.error_code or verdict.drop:
        call.reply_when_durable(now_ms, _answer(request, {}, verdict.error_code))
        return
    _store(call, now_ms, request)


def _store(call: Call, now_ms: int, request: TxnOffsetCommitRequest) -> None:
    core = call.core
    errors: dict[tuple[str, int], int] = {}
    offsets = []
    for topic in request.topics:
        for wanted in topic.partitions:
            if core.topics.partition(topic.name, wanted.partition_index) is None:
                errors[(topic.name, wanted.partition_index)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            offsets.append(
                PartitionOffset(
                    topic=topic.name,
                    partition=wanted.partition_index,
                    offset=wanted.committed_offset,
                    leader_epoch=wanted.committed_leader_epoch,
                    metadata=wanted.committed_metadata,
                )
            )
    result = core.groups.coordinator.commit_transactional_offsets(
        now_ms,
        CommitTransactionalOffsets(
            group_id=request.group_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            offsets=offsets,
            api_version=call.version,
        ),
    )
    errors.update({(answer.topic, answer.partition): answer.error_code for answer in result.reply})
    response = _answer(request, errors, ErrorCode.NONE)
    refused = core.groups.apply(now_ms, result, lambda: call.reply(response))
    if refused:
        call.reply(_answer(request, {}, refused))


def _answer(
    request: TxnOffsetCommitRequest, errors: Mapping[tuple[str, int], int], otherwise: int
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=wanted.partition_index,
                        error_code=errors.get((topic.name, wanted.partition_index), otherwise),
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = Handler(_handle)
