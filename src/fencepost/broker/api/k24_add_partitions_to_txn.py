"""AddPartitionsToTxn, v0-5: enlist partitions in a transaction. v4+ take several transactions and can ask without
enlisting (KIP-890).

One partition that does not exist (3) keeps the others out too (55, not attempted).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fencepost.broker.api.transactional import decide_and_reply
from fencepost.broker.connection import Call
from fencepost.broker.txn.model import TopicPartition
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

__all__ = ["handle"]


def handle(call: Call, now_ms: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse | None:
    """Enlist or verify."""
    if call.version < 4:
        _add_one(call, now_ms, request)
        return None
    answers = []
    for transaction in request.transactions:
        errors = _errors(call, now_ms, transaction)
        results = _topics(transaction.topics, errors)
        answers.append(AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=results))
    call.reply_when_durable(now_ms, AddPartitionsToTxnResponse(results_by_transaction=answers))
    return None


def _add_one(call: Call, now_ms: int, request: AddPartitionsToTxnRequest) -> None:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )

    def decide(now_ms: int) -> tuple[int, Callable[[int], None]]:
        errors = _errors(call, now_ms, transaction)
        response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topics(transaction.topics, errors))
        code = next(iter(errors.values()), ErrorCode.NONE)
        return code, lambda _: call.reply(response)

    decide_and_reply(call, now_ms, transaction.transactional_id, decide)


def _errors(call: Call, now_ms: int, transaction: AddPartitionsToTxnTransaction) -> Mapping[TopicPartition, int]:
    """Carry one transaction's part out; the error code of each partition."""
    core = call.core
    asked = [TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    missing = {partition for partition in asked if core.topics.partition(*partition) is None}
    if missing:
        return {
            each: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if each in missing else ErrorCode.OPERATION_NOT_ATTEMPTED
            for each in asked
        }
    coordinator = core.transactions.coordinator
    owner = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return coordinator.verify_partitions(*owner, asked, api_version=call.version).reply.errors
    result = coordinator.add_partitions(
        now_ms, *owner, asked, api_version=call.version, software_name=call.connection.software_name
    )
    core.transactions.apply(now_ms, result)
    return dict.fromkeys(asked, result.reply.error_code)


def _topics(
    topics: Sequence[AddPartitionsToTxnTopic], errors: Mapping[TopicPartition, int]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=errors[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
