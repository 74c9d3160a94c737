"""DescribeLogDirs, v1-5: sizes of the partitions' logs in the one data directory. Free space (v4) is not known to the
core: -1.

Only partitions whose directory exists have a size; asking does not bring one into being.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.broker.connection import Call
from fencepost.broker.topics import Topic
from fencepost.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

__all__ = ["handle"]


def handle(call: Call, now_ms: int, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe the partitions asked for; null asks for all."""
    core = call.core
    topics = []
    if request.topics is None:
        topics = [_describe(call, topic, range(len(topic.partitions))) for topic in core.topics]
    else:
        for wanted in request.topics:
            topic = core.topics.get(wanted.topic)
            if topic is not None:
                topics.append(_describe(call, topic, wanted.partitions))
    shown = [topic for topic in topics if topic.partitions]
    return DescribeLogDirsResponse(results=(DescribeLogDirsResult(log_dir=core.data_directory, topics=shown),))


def _describe(call: Call, topic: Topic, indexes: Iterable[int]) -> DescribeLogDirsTopic:
    """A partition that nobody has written to or read from yet has no files: its size is 0."""
    wanted = set(indexes)
    files = call.core.files
    partitions = [
        DescribeLogDirsPartition(
            partition_index=partition.index,
            partition_size=partition.log.size_bytes if files.exists(partition.directory) else 0,
        )
        for partition in topic.partitions
        if partition.index in wanted
    ]
    return DescribeLogDirsTopic(name=topic.name, partitions=partitions)
