"""Final reads of a Kafka for a history: complete read_committed partitions, and groups' positions."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.client.admin.core import AdminCore
from fencepost.client.consumer.fetch_requests import FetchSettings, fetch_range
from fencepost.client.net.list_offsets import LATEST
from fencepost.client.types import Isolation, TopicPartition
from fencepost_lab.check.history import RecordRead

__all__ = ["read_group_offsets", "read_to_end"]

PATIENCE_MS = 60_000


async def read_to_end(admin: AdminCore, reader: str, partition: TopicPartition) -> list[RecordRead]:
    """Return every committed record of a partition up to its present high watermark.

    Raises KafkaTimeoutError if an open transaction before it blocks the read.
    """
    ends = await admin.list_offsets({partition: LATEST}, isolation=Isolation.READ_UNCOMMITTED)
    settings = FetchSettings(isolation=Isolation.READ_COMMITTED)
    reads = []
    async for fetched in fetch_range(admin.cluster, partition, 0, ends[partition].offset, settings, PATIENCE_MS):
        values = fetched.columns.values()
        for offset, value in zip(fetched.columns.offsets.tolist(), values, strict=True):
            reads.append(RecordRead(reader, partition.topic, partition.partition, offset, (value or b"").decode()))
    return reads


async def read_group_offsets(admin: AdminCore, groups: Iterable[str], partition: TopicPartition) -> dict[str, int]:
    """Return each group's stable position in a partition, without groups that have none."""
    positions = {}
    for group in groups:
        found = await admin.group_offsets(group, [partition])
        if partition in found:
            positions[group] = found[partition].offset
    return positions
