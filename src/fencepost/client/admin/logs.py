"""Admin calls for the logs of partitions: records, directories, sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fencepost.arguments import Int32, OrMinusOne
from fencepost.client.admin.base import AdminBase
from fencepost.client.admin.items import outcomes_of
from fencepost.client.net.answers import only, refusal
from fencepost.client.net.cluster import Leader
from fencepost.client.net.tasks import gather
from fencepost.client.types import K, TopicPartition
from fencepost.errors import KafkaError, error_for
from fencepost.protocol.messages import delete_records as dr
from fencepost.protocol.messages import describe_log_dirs as ld


class LogDirReplica(NamedTuple):
    """A partition's log in a directory. `is_future` is true while it moves there from another directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A log directory of a broker.

    `error_code` 56 means offline. Disk sizes are -1 if the broker does not report them.
    """

    broker: int
    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    replicas: dict[TopicPartition, LogDirReplica]


class AdminLogs(AdminBase):
    """Calls of `AdminCore` for logs."""

    async def delete_records(
        self, before: Mapping[K, OrMinusOne], *, api_timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete records of partitions.

        Args:
            before: First offset to keep, by partition; -1: the high watermark.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Returns:
            The new start of the log by partition.

        Raises:
            ItemsFailedError: The records of some partitions could not be deleted; those of the others were.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        wanted = {TopicPartition(*partition): at for partition, at in before.items()}
        calls = {
            topic_partition: self._delete_records_of(topic_partition, at, deadline_ms)
            for topic_partition, at in wanted.items()
        }
        return (await outcomes_of(self.cluster, calls)).results("delete records")

    async def _delete_records_of(self, topic_partition: TopicPartition, before: int, deadline_ms: int) -> int:
        timeout_ms = self.cluster.server_timeout_ms(deadline_ms)
        operation = f"delete records of {topic_partition.topic}-{topic_partition.partition}"
        partition = dr.DeleteRecordsPartition(partition_index=topic_partition.partition, offset=before)
        unanswered: list[KafkaError] = []
        reply: dr.DeleteRecordsResponse = await self.cluster.call(
            Leader(topic_partition.topic, topic_partition.partition),
            dr.DeleteRecordsRequest(
                topics=[dr.DeleteRecordsTopic(name=topic_partition.topic, partitions=[partition])],
                timeout_ms=timeout_ms,
            ),
            (0, 2),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(only(only(answer.topics).partitions).error_code),
            operation=operation,
            unanswered=unanswered,
        )
        result = only(only(reply.topics).partitions)
        if result.error_code != 0:
            raise refusal(result.error_code, operation, None, unanswered)
        return int(result.low_watermark)

    async def describe_log_dirs(
        self, brokers: Iterable[Int32] | None = None, *, api_timeout_ms: int | None = None
    ) -> list[LogDir]:
        """Return the log directories of the brokers (None: all), with the size of every partition."""
        deadline_ms = self._deadline(api_timeout_ms)
        await self.cluster.refresh([], deadline_ms)
        broker_ids = sorted(self.cluster.nodes) if brokers is None else list(brokers)
        replies = await gather(
            self.cluster.runtime,
            [
                self.cluster.call(
                    node,
                    ld.DescribeLogDirsRequest(topics=None),
                    (1, 4),
                    deadline_ms=deadline_ms,
                    code_of=lambda answer: int(answer.error_code),
                )
                for node in broker_ids
            ],
        )
        found = []
        for node, reply in zip(broker_ids, replies, strict=True):
            if isinstance(reply, Exception):
                raise reply
            if reply.error_code != 0:
                raise error_for(reply.error_code, f"log directories of broker {node}")
            found += [_log_dir(node, result) for result in reply.results]
        return found


def _log_dir(broker: int, result: ld.DescribeLogDirsResult) -> LogDir:
    replicas = {
        TopicPartition(topic.name, partition.partition_index): LogDirReplica(
            partition.partition_size, partition.offset_lag, partition.is_future_key
        )
        for topic in result.topics
        for partition in topic.partitions
    }
    return LogDir(broker, result.log_dir, result.error_code, result.total_bytes, result.usable_bytes, replicas)
