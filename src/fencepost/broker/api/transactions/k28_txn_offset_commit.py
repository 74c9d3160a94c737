"""TxnOffsetCommit, v0-6: offsets that take effect when the transaction commits. v3 names the member (KIP-447).

v5 enlists the group, v6 has topic ids instead of names (KIP-1319). After a timeout of the transaction, the answer may
be 0 although nothing was stored: the following EndTxn(commit) fails with an error that clients of that generation
handle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from fencepost.broker.api.common import partition_error
from fencepost.broker.api.groups.results_by_topic import NameOrId, listed
from fencepost.broker.api.handler import Handler
from fencepost.broker.api.transactions.waiting import when_markers_are_written
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.base.requests import CommitTransactionalOffsets, PartitionOffset
from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from fencepost.broker.coordinator.txn.model import ProducerPair
from fencepost.broker.coordinator.txn.transaction_log_messages import note_refusal
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

__all__ = ["HANDLER"]

_FIRST_WITH_TOPIC_IDS = 6

TopicAndPartition = tuple[str, int]


def _handle(call: Call, now_ms: int, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | None:
    """Enlist the group's partition, store the offsets, reply when durable.

    Missing partitions are refused beforehand.
    """
    _name_topics(call, request)
    missing = _missing(call, request)
    if all((topic.name, wanted.partition_index) in missing for topic in request.topics for wanted in topic.partitions):
        return _answer(call, request, missing, {}, ErrorCode.NONE)
    if not request.group_id:
        return _answer(call, request, missing, {}, ErrorCode.INVALID_GROUP_ID)
    if not request.transactional_id:
        return _answer(call, request, missing, {}, ErrorCode.INVALID_REQUEST)
    _attempt(call, request, missing, now_ms, may_wait=True)
    return None


def _name_topics(call: Call, request: TxnOffsetCommitRequest) -> None:
    """Fill in the names of topics given by id; "" for an unknown id."""
    for topic in request.topics if call.version >= _FIRST_WITH_TOPIC_IDS else ():
        known = call.core.topics.by_id(topic.topic_id)
        topic.name = "" if known is None else known.name


def _missing(call: Call, request: TxnOffsetCommitRequest) -> Collection[TopicAndPartition]:
    requested = ((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
    return {partition for partition in requested if call.core.topics.partition(*partition) is None}


def _attempt(
    call: Call, request: TxnOffsetCommitRequest, missing: Collection[TopicAndPartition], now_ms: int, *, may_wait: bool
) -> None:
    core = call.core
    partition = core.groups.offsets_partition(request.group_id)
    pair = ProducerPair(request.producer_id, request.producer_epoch)
    offsets = ((partition.topic.name, partition.index),)
    wanted = EnlistRequest(request.transactional_id, pair, offsets, call.version)
    enlisted = core.transactions.coordinator.enlist_for_offsets(now_ms, wanted)
    verdict = enlisted.reply
    if verdict.error_code == ErrorCode.CONCURRENT_TRANSACTIONS and may_wait:
        again = partial(_attempt, call, request, missing, may_wait=False)
        when_markers_are_written(call, now_ms, request, request.transactional_id, again)
        return
    core.transactions.apply(now_ms, enlisted)
    note_refusal(core.metrics, "txn_offset_commit", verdict.error_code, request.transactional_id)
    if verdict.error_code or verdict.drop:
        call.reply_when_durable(now_ms, _answer(call, request, missing, {}, verdict.error_code))
        return
    _store(call, now_ms, request, missing)


def _store(call: Call, now_ms: int, request: TxnOffsetCommitRequest, missing: Collection[TopicAndPartition]) -> None:
    core = call.core
    offsets = [
        PartitionOffset(
            topic=topic.name,
            partition=wanted.partition_index,
            offset=wanted.committed_offset,
            leader_epoch=wanted.committed_leader_epoch,
            metadata=wanted.committed_metadata,
        )
        for topic in request.topics
        for wanted in topic.partitions
        if (topic.name, wanted.partition_index) not in missing
    ]
    result = core.groups.coordinator.commit_offsets(
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
    stored = {(answer.topic, answer.partition): answer.error_code for answer in result.reply}
    response = _answer(call, request, missing, stored, ErrorCode.NONE)
    refused = core.groups.apply(now_ms, result, lambda: call.reply(response))
    if refused:
        call.reply(_answer(call, request, missing, {}, refused))


def _answer(
    call: Call,
    request: TxnOffsetCommitRequest,
    missing: Collection[TopicAndPartition],
    codes: Mapping[TopicAndPartition, int],
    otherwise: int,
) -> TxnOffsetCommitResponse:
    """Return the response: the error of missing partitions, `codes` of others, or `otherwise` for all of these."""
    by_id = call.version >= _FIRST_WITH_TOPIC_IDS
    refused: dict[NameOrId, list[TxnOffsetCommitResponsePartition]] = {}
    taken: list[tuple[NameOrId, list[TxnOffsetCommitResponsePartition]]] = []
    for topic in request.topics:
        results = []
        key, known = (topic.name, topic.topic_id), call.core.topics.get(topic.name)
        if known is None:
            refused.setdefault(key, [])
        for wanted in topic.partitions:
            partition = topic.name, wanted.partition_index
            result = TxnOffsetCommitResponsePartition(partition_index=wanted.partition_index)
            if partition in missing:
                result.error_code = partition_error(known, wanted.partition_index, by_id=by_id)
                refused.setdefault(key, []).append(result)
            else:
                result.error_code = codes.get(partition, otherwise)
                results.append(result)
        if results:
            taken.append((key, results))
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=results)
            for (name, topic_id), results in listed(refused, taken)
        ]
    )


HANDLER = Handler(_handle)
