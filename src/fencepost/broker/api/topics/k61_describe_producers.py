"""DescribeProducers, v0: producer states of partitions, with open transactions (KIP-664)."""

from __future__ import annotations

from fencepost.broker.api.common import absent_topic
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.topics.opening import open_log
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Describe each partition's producers."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_describe(call, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _describe(call: Call, name: str, index: int) -> PartitionResponse:
    partition = call.core.topics.partition(name, index)
    if partition is None:
        code, why = absent_topic(name)
        why = why or "This server does not host this topic-partition."
        return PartitionResponse(partition_index=index, error_code=code, error_message=why)
    log = open_log(partition, call.core.metrics)
    if log is None:
        return PartitionResponse(partition_index=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    producers = [
        ProducerState(
            producer_id=state.producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp_ms,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=state.txn_first_offset,
        )
        for state in log.producers
        if not state.shrunk  # Kafka does not keep expired states
    ]
    return PartitionResponse(partition_index=index, active_producers=producers)


HANDLER = Handler(_handle)
