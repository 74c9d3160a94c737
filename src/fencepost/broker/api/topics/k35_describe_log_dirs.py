"""DescribeLogDirs, v1-5: sizes of the partitions' logs in the one data directory, and the space of its disk (v4).

Only partitions whose directory exists have a size; asking does not bring one into being.
"""

from __future__ import annotations

from collections.abc import Container

from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.topics.opening import open_log
from fencepost.broker.topics.topic import Partition, Topic
from fencepost.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe the partitions asked for; null asks for all."""
    core = call.core
    topics = []
    if request.topics is None:
        topics = [_describe(call, topic, range(len(topic.partitions))) for topic in core.topics]
    else:
        indexes: dict[str, set[int]] = {}
        for wanted in request.topics:
            indexes.setdefault(wanted.topic, set()).update(wanted.partitions)
        known = ((core.topics.get(name), partitions) for name, partitions in indexes.items())
        topics = [_describe(call, topic, partitions) for topic, partitions in known if topic is not None]
    shown = [topic for topic in topics if topic.partitions]
    total, usable = core.files.space()
    result = DescribeLogDirsResult(log_dir=core.data_directory, topics=shown, total_bytes=total, usable_bytes=usable)
    return DescribeLogDirsResponse(results=(result,))


def _describe(call: Call, topic: Topic, indexes: Container[int]) -> DescribeLogDirsTopic:
    """Return the sizes of a topic's partitions. A partition without files has size 0.

    A partition whose log cannot be opened is left out, as Kafka leaves out offline partitions.
    """
    sizes = [(partition.index, _size(call, partition)) for partition in topic.partitions if partition.index in indexes]
    partitions = [
        DescribeLogDirsPartition(partition_index=index, partition_size=size)
        for index, size in sizes
        if size is not None
    ]
    return DescribeLogDirsTopic(name=topic.name, partitions=partitions)


def _size(call: Call, partition: Partition) -> int | None:
    if not call.core.files.exists(partition.directory):
        return 0
    log = open_log(partition, call.core.metrics)
    return None if log is None else log.size_bytes


HANDLER = Handler(_handle)
