"""Read the records at which groups stand, and find those that cannot be read."""

from __future__ import annotations

from typing import Final

from fencepost.client.diagnosis.facts import UnreadableRecords
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.stored_batches import StoredBatches
from fencepost.client.types import Isolation, TopicPartition
from fencepost.errors import CorruptRecordError, OffsetOutOfRangeError
from fencepost.protocol.records.decoding import decode_readable

__all__ = ["damage_at"]

_MOST_BYTES: Final = 1  # a result has at least one whole batch


async def damage_at(
    cluster: Cluster, partition: TopicPartition, offset: int, deadline_ms: int
) -> UnreadableRecords | None:
    """Fetch the batch at an offset, and return its damage, or None if it can be read. Raises KafkaError.

    Brokers do not look into stored records: a changed byte shows only in the checksum that the reader computes.
    """
    stored = StoredBatches(cluster, Isolation.READ_COMMITTED, _MOST_BYTES, wait_ms=0)
    try:
        result = await stored.fetch(partition, offset, deadline_ms)
    except CorruptRecordError as error:
        return UnreadableRecords(offset, None, str(error))
    except OffsetOutOfRangeError:  # retention deleted the records; consumers continue at auto.offset.reset
        return None
    unreadable = decode_readable(result.records, start_offset=offset).unreadable
    if unreadable is None:
        return None
    return UnreadableRecords(unreadable.offset, unreadable.next_offset, str(unreadable.error))
