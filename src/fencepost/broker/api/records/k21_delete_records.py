"""DeleteRecords, v0-2: move partitions' first offset forward; -1 means to the high watermark.

The producer state is not changed.
"""

from __future__ import annotations

import logging

from fencepost.broker.api.common import failure_code, find_partition
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.disk.changes import Change
from fencepost.broker.log.removing import moving
from fencepost.broker.topics.opening import open_log
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

__all__ = ["HANDLER"]

_log = logging.getLogger("fencepost.broker.storage")


def _handle(call: Call, now_ms: int, request: DeleteRecordsRequest) -> None:
    """Delete from each partition. If a partition is named twice, the last offset counts."""
    call.change(request, _deleted(call, request))


def _deleted(call: Call, request: DeleteRecordsRequest) -> Change[DeleteRecordsResponse]:
    requested: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            requested.setdefault(topic.name, {})[wanted.partition_index] = wanted
    topics = []
    for name, found in requested.items():
        partitions = []
        for wanted in found.values():
            partitions.append((yield from _delete(call, name, wanted)))
        topics.append(DeleteRecordsTopicResult(name=name, partitions=partitions))
    return DeleteRecordsResponse(topics=topics)


def _delete(call: Call, name: str, requested: DeleteRecordsPartition) -> Change[DeleteRecordsPartitionResult]:
    partition, code, topic = find_partition(call.core, name, None, requested.partition_index)
    if topic is not None and topic.internal:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif topic is not None and not code and topic.config.text("cleanup.policy") == "compact":
        code = ErrorCode.POLICY_VIOLATION
    if partition is None or code:
        return DeleteRecordsPartitionResult(
            partition_index=requested.partition_index, low_watermark=-1, error_code=code
        )
    log = open_log(partition, call.core.metrics)
    if log is None:
        return _failed(requested)
    offset = log.high_watermark if requested.offset == -1 else requested.offset
    if not 0 <= offset <= log.high_watermark:
        out = ErrorCode.OFFSET_OUT_OF_RANGE
        return DeleteRecordsPartitionResult(partition_index=requested.partition_index, low_watermark=-1, error_code=out)
    if offset > log.log_start_offset:
        try:
            yield from moving(log, offset)
        except OSError as error:
            call.core.metrics.count("storage_errors")
            _log.error("%s: records cannot be deleted: %s", partition.directory, error)
            return _failed(requested, error)
        call.core.advanced(partition)
        hit = {producer_id for producer_id, first in log.producers.open_transactions.items() if first < offset}
        if hit:
            what = f"records of {partition.directory} before offset {offset} are deleted"
            call.core.transactions.warn_of_loss(what, producer_ids=hit)
    return DeleteRecordsPartitionResult(partition_index=requested.partition_index, low_watermark=log.log_start_offset)


def _failed(wanted: DeleteRecordsPartition, error: OSError | None = None) -> DeleteRecordsPartitionResult:
    failed = ErrorCode.KAFKA_STORAGE_ERROR if error is None else failure_code(error)
    return DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1, error_code=failed)


HANDLER = Handler(_handle)
