"""WriteTxnMarkers, v1-2: an administrator writes markers (`kafka-transactions abort`), without the coordinator.

They end the partition's transaction even if it is ongoing for the coordinator, as in Kafka. v2 has the transaction
version. A group's offsets can be ended in this way, too; the coordinator's own log accepts no markers (29).
"""

from __future__ import annotations

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.log.results import Rejected
from fencepost.broker.topics.internal import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost.broker.topics.opening import open_log
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = ["HANDLER"]

_UNKNOWN_VERSION = -1
"""Kafka's value for a missing transaction version. It accepts any other number."""


def _handle(call: Call, now_ms: int, request: WriteTxnMarkersRequest) -> None:
    """Write the markers and reply when they are durable.

    As in Kafka, the result lists each producer id that names a partition, with each of its partitions once.
    """
    written: dict[int, dict[str, dict[int, int]]] = {}
    for marker in request.markers:
        partitions = [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
        for name, index in dict.fromkeys(partitions):
            codes = written.setdefault(marker.producer_id, {}).setdefault(name, {})
            codes[index] = _write(call, now_ms, marker, name, index)
    results = [
        WritableTxnMarkerResult(
            producer_id=producer_id, topics=[_result(name, codes) for name, codes in by_name.items()]
        )
        for producer_id, by_name in written.items()
    ]
    call.reply_when_durable(now_ms, WriteTxnMarkersResponse(markers=results))


def _result(name: str, codes: dict[int, int]) -> WritableTxnMarkerTopicResult:
    return WritableTxnMarkerTopicResult(
        name=name,
        partitions=[
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code) for index, code in codes.items()
        ],
    )


def _write(call: Call, now_ms: int, marker: WritableTxnMarker, name: str, index: int) -> int:
    core = call.core
    if name == TRANSACTION_STATE:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partition = core.topics.partition(name, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # An invalid producer or version. Kafka fails on it and writes nothing.
    if marker.producer_id < 0 or marker.transaction_version == _UNKNOWN_VERSION:
        return ErrorCode.INVALID_REQUEST
    if marker.producer_epoch < 0:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    log = open_log(partition, call.core.metrics)
    if log is None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    producer_id, epoch, commit = marker.producer_id, marker.producer_epoch, marker.transaction_result
    appended = log.append_marker(
        producer_id,
        epoch,
        commit,
        marker.coordinator_epoch,
        now_ms,
        transaction_version=marker.transaction_version,
    )
    if isinstance(appended, Rejected):
        return appended.error_code
    core.durability.appended(partition)
    if name == CONSUMER_OFFSETS:
        core.durability.when_durable(
            now_ms, lambda _: core.groups.complete_transaction(producer_id, epoch, commit, index, now_ms)
        )
    return ErrorCode.NONE


HANDLER = Handler(_handle)
