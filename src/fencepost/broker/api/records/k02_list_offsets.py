"""ListOffsets, v1-11: offsets by time. v2 isolation levels, v4 leader epochs, v7 -3 (latest timestamp).

v8 adds -4, v9 -5, v11 -6. -1 is the end for the reader: the high watermark, or for read_committed the last stable
offset, which is read once the markers of answered transactions are durable. -2 and -4 are the first offset (there is no
remote storage), so -5 and -6 find nothing: offset -1.
"""

from __future__ import annotations

import logging
from collections import Counter, deque

from fencepost.broker.api.common import find_partition, leader_epoch_error
from fencepost.broker.api.handler import Handler
from fencepost.broker.api.time_slices import TURN_MS, Resume, in_turns
from fencepost.broker.api.visibility import when_ends_are_visible
from fencepost.broker.connection import Call
from fencepost.broker.log.decompression_budget import DecompressionDeferred
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import CorruptSegment
from fencepost.broker.log.validate import Decompress
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

__all__ = ["HANDLER"]

_log = logging.getLogger("fencepost.broker.offsets")

_ISOLATION_LEVELS = (0, 1)
_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
_SINCE = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_PENDING: 11}


def _handle(call: Call, now_ms: int, request: ListOffsetsRequest) -> ListOffsetsResponse | None:
    """Look up each partition's offset in turns, because a time may lie in a batch that takes long to decompress.

    A partition that is named twice is refused.
    """
    committed = request.isolation_level == 1
    if request.isolation_level not in _ISOLATION_LEVELS:
        return ListOffsetsResponse(topics=[_refuse(topic) for topic in request.topics])
    times = Counter((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
    answers: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    remaining = deque((topic.name, wanted) for topic in request.topics for wanted in topic.partitions)

    def turn(_now_ms: int) -> Resume | None:
        until_ms = call.core.steady_ms() + TURN_MS
        while remaining:
            name, wanted = remaining.popleft()
            index = wanted.partition_index
            if times[name, index] > 1:
                answer = ListOffsetsPartitionResponse(partition_index=index, error_code=ErrorCode.INVALID_REQUEST)
            else:
                try:
                    answer = _answer(call, name, wanted, committed)
                except DecompressionDeferred:
                    remaining.appendleft((name, wanted))
                    return call.core.large.wait
            answers.setdefault(name, {})[index] = answer
            if call.core.steady_ms() >= until_ms:
                return call.core.soon
        topics = [ListOffsetsTopicResponse(name=name, partitions=[*of.values()]) for name, of in answers.items()]
        call.reply(ListOffsetsResponse(topics=topics))
        return None

    if committed:
        named = (call.core.topics.partition(name, wanted.partition_index) for name, wanted in remaining)
        when_ends_are_visible(call, now_ms, request, lambda now_ms: in_turns(call, now_ms, request, turn), named)
    else:
        in_turns(call, now_ms, request, turn)
    return None


def _refuse(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
    refused = [
        ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=ErrorCode.INVALID_REQUEST)
        for wanted in topic.partitions
    ]
    return ListOffsetsTopicResponse(name=topic.name, partitions=refused)


def _answer(call: Call, name: str, wanted: ListOffsetsPartition, committed: bool) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    partition, code, _ = find_partition(call.core, name, None, index)
    code = code or leader_epoch_error(wanted.current_leader_epoch)
    if wanted.timestamp < 0 and not _known(wanted.timestamp, call.version):
        code = ErrorCode.UNSUPPORTED_VERSION
    if partition is None or code:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
    try:
        offset, timestamp = _find(partition.log, wanted.timestamp, committed, call.core.large.section_of)
    except (CorruptSegment, OSError) as error:
        call.core.metrics.count("corrupt_reads" if isinstance(error, CorruptSegment) else "storage_errors")
        _log.error("cannot look up a time in %s: %s", partition.directory, error)
        return ListOffsetsPartitionResponse(partition_index=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    leader_epoch = 0 if offset >= 0 else -1
    return ListOffsetsPartitionResponse(
        partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=leader_epoch
    )


def _known(timestamp: int, version: int) -> bool:
    return timestamp in (_LATEST, _EARLIEST) or version >= _SINCE.get(timestamp, 2**15)


def _find(log: PartitionLog, timestamp: int, committed: bool, decompress: Decompress) -> tuple[int, int]:
    """Return (offset, timestamp), -1 if there is none. Raises OSError, CorruptSegment, DecompressionDeferred."""
    if timestamp == _LATEST:
        return log.last_stable_offset if committed else log.high_watermark, -1
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return log.log_start_offset, -1
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING):
        return -1, -1
    if timestamp == _MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp(decompress, committed_only=committed)
    else:
        found = log.offset_for_timestamp(timestamp, decompress, committed_only=committed)
    found_timestamp, offset = (-1, -1) if found is None else found
    return offset, found_timestamp


HANDLER = Handler(_handle)
