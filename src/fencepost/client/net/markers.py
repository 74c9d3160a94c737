"""Searches the logs of a transaction's partitions for its marker, if the coordinator does not store the outcome.

Each transaction of a producer has an epoch of its own (transaction.version 2, KIP-890). So the first marker of the
producer id after records of the transaction's epoch belongs to the transaction, whatever epoch the marker has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fencepost.client.net.cluster import Cluster
from fencepost.client.net.list_offsets import EARLIEST, LATEST, list_offsets
from fencepost.client.net.stored_batches import StoredBatches
from fencepost.client.prepared import PreparedTransaction
from fencepost.client.types import Isolation, TopicPartition
from fencepost.errors import CorruptRecordError
from fencepost.protocol.endings import Ending
from fencepost.protocol.errors import WireError
from fencepost.protocol.records.batch import iter_batches
from fencepost.protocol.records.markers import COMMIT, control_type

__all__ = ["search"]

_BYTES: Final = 8 * 1024 * 1024
_WAIT_MS: Final = 500


async def search(cluster: Cluster, topics: Iterable[str], prepared: PreparedTransaction, deadline_ms: int) -> Ending:
    """Return COMMITTED or ABORTED according to the first marker found, else UNKNOWN.

    Reads the topics from their beginning. Raises KafkaTimeoutError, CorruptRecordError, and the errors of topics that
    do not exist or may not be read.
    """
    partitions = []
    for name in topics:
        topic = await cluster.topic(name, deadline_ms)
        partitions += [TopicPartition(name, number) for number in topic.partitions]
    starts = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST), Isolation.READ_UNCOMMITTED, deadline_ms)
    ends = await list_offsets(cluster, dict.fromkeys(partitions, LATEST), Isolation.READ_UNCOMMITTED, deadline_ms)
    for partition in partitions:
        found = await _search(
            cluster, partition, starts[partition].offset, ends[partition].offset, prepared, deadline_ms
        )
        if found is not Ending.UNKNOWN:
            return found
    return Ending.UNKNOWN


async def _search(
    cluster: Cluster,
    partition: TopicPartition,
    position: int,
    end: int,
    prepared: PreparedTransaction,
    deadline_ms: int,
) -> Ending:
    stored = StoredBatches(cluster, Isolation.READ_UNCOMMITTED, _BYTES, _WAIT_MS)
    was_written = False
    while position < end:
        before = position
        try:
            fetched = await stored.fetch(partition, position, deadline_ms)
            for header, batch in iter_batches(fetched.records, allow_partial=True):
                position = max(position, header.last_offset + 1)
                if header.producer_id != prepared.producer_id:
                    continue
                if header.is_control and header.record_count and was_written:
                    return Ending.COMMITTED if control_type(batch) == COMMIT else Ending.ABORTED
                was_written |= not header.is_control and header.producer_epoch == prepared.epoch
        except WireError as error:
            raise CorruptRecordError(
                f"{partition.topic}-{partition.partition}: the records from offset {position} on cannot be "
                f"read: {error}",
                topic=partition.topic,
                partition=partition.partition,
                offset=position,
            ) from error
        if position == before:
            await cluster.pause(0, deadline_ms, f"read {partition.topic}-{partition.partition} at {position}", None)
    return Ending.UNKNOWN
