"""AddPartitionsToTxn, v0-5: enlist partitions in a transaction.

v4+ have several transactions and can verify without enlisting (KIP-890). If one partition does not exist (3) or is
internal (29), the others are not enlisted either (55, not attempted). Offsets need AddOffsetsToTxn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fencepost.broker.api.error_responses import refusal
from fencepost.broker.api.handler import Handler
from fencepost.broker.api.transactions.waiting import decide_and_reply
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from fencepost.broker.coordinator.txn.model import ProducerPair
from fencepost.broker.parts import BrokerParts
from fencepost.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from fencepost.broker.topics.internal import is_internal
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
from fencepost.topic_partition import TopicPartition

__all__ = ["HANDLER"]

Errors = Mapping[TopicPartition, int]


def _handle(call: Call, now_ms: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse | None:
    """Enlist or verify."""
    if call.version < 4:
        _add_unbatched(call, now_ms, request)
        return None
    answers = []
    for transaction in request.transactions:
        errors = _errors(call, now_ms, transaction)
        results = _results(transaction, errors)
        answers.append(AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=results))
    call.reply_when_durable(now_ms, AddPartitionsToTxnResponse(results_by_transaction=answers))
    return None


def _add_unbatched(call: Call, now_ms: int, request: AddPartitionsToTxnRequest) -> None:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )

    def decide(now_ms: int) -> tuple[int, Callable[[int], None]]:
        errors = _errors(call, now_ms, transaction)
        response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(transaction, errors))
        code = errors if isinstance(errors, int) else ErrorCode.NONE
        return code, lambda _: call.reply(response)

    decide_and_reply(call, now_ms, request, transaction.transactional_id, decide)


def _errors(call: Call, now_ms: int, transaction: AddPartitionsToTxnTransaction) -> Errors | int:
    """Enlist or verify one transaction's partitions.

    Return the error code of each, or the coordinator's code for all.
    """
    core = call.core
    requested = [TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    refused = {partition: code for partition in requested if (code := _refusal(core, partition))}
    if refused:
        return {each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in requested}
    coordinator = core.transactions.coordinator
    pair = ProducerPair(transaction.producer_id, transaction.producer_epoch)
    wanted = EnlistRequest(transaction.transactional_id, pair, requested, call.version, call.connection.software_name)
    if transaction.verify_only:
        return coordinator.verify(wanted).reply.errors
    result = coordinator.add(now_ms, wanted)
    core.transactions.apply(now_ms, result)
    return int(result.reply.error_code)


def _refusal(core: BrokerParts, partition: TopicPartition) -> int:
    """Return the error if no client may enlist the partition, or 0. Internal topics must not contain markers."""
    if is_internal(partition.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if core.topics.partition(*partition) is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _results(transaction: AddPartitionsToTxnTransaction, errors: Errors | int) -> list[AddPartitionsToTxnTopicResult]:
    """Return the results.

    One code for all keeps the request's order; single codes are grouped by topic, as in Kafka.
    """
    if not isinstance(errors, int):
        return _topics(transaction.topics, errors)
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=errors)
                for index in topic.partitions
            ],
        )
        for topic in transaction.topics
    ]


def _topics(topics: Sequence[AddPartitionsToTxnTopic], errors: Errors) -> list[AddPartitionsToTxnTopicResult]:
    """Return each partition's result once, by topic. A topic without partitions is omitted."""
    by_topic: dict[str, dict[int, AddPartitionsToTxnPartitionResult]] = {}
    for topic in topics:
        for index in topic.partitions:
            code = errors[TopicPartition(topic.name, index)]
            by_topic.setdefault(topic.name, {})[index] = AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=code
            )
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=[*results.values()])
        for name, results in by_topic.items()
    ]


def _authorize(call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse | None:
    """Authorize the request. v4 and later come from brokers. Below, one denied topic prevents enlisting the others."""
    if call.version >= 4:
        if call.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return None
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    named = request.v3_and_below_transactional_id
    if not call.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, named):
        response: AddPartitionsToTxnResponse = refusal(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return response
    topics = request.v3_and_below_topics
    denied = {topic.name for topic in topics if not call.may(Operation.WRITE, ResourceType.TOPIC, topic.name)}
    if not denied:
        return None

    def code(partition: TopicPartition) -> int:
        if partition.topic in denied:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if call.core.topics.partition(*partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED

    requested = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
    errors = {partition: code(partition) for partition in requested}
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topics(topics, errors))


HANDLER = Handler(_handle, authorize=_authorize)
