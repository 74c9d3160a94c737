"""OffsetForLeaderEpoch, v2-4: the end of a leader epoch.

The only epoch, 0, ends at the end of the log. A later epoch is unknown, (-1, -1). An earlier one ended at the log start
offset, under its own number.
"""

from __future__ import annotations

from fencepost.broker.api.common import find_partition, leader_epoch_error
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.topics.opening import open_log
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """Answer for each partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_answer(call, topic.topic, wanted) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(call: Call, name: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    partition, code, _ = find_partition(call.core, name, None, wanted.partition)
    code = code or leader_epoch_error(wanted.current_leader_epoch)
    if partition is None or code:
        return EpochEndOffset(error_code=code, partition=wanted.partition)
    if wanted.leader_epoch > 0 or wanted.leader_epoch == -1:
        return EpochEndOffset(partition=wanted.partition)
    log = open_log(partition, call.core.metrics)
    if log is None:
        return EpochEndOffset(error_code=ErrorCode.KAFKA_STORAGE_ERROR, partition=wanted.partition)
    end_offset = log.high_watermark if wanted.leader_epoch == 0 else log.log_start_offset
    return EpochEndOffset(partition=wanted.partition, leader_epoch=wanted.leader_epoch, end_offset=end_offset)


HANDLER = Handler(_handle)
