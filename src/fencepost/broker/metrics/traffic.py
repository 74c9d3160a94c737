"""Counts of what clients wrote to one topic, read from it, and were refused."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.protocol.records.batch import LENGTH_PREFIX_BYTES, BatchHeader

__all__ = ["TopicTraffic"]


@dataclass(slots=True)
class TopicTraffic:
    """Counters since the start, or since the topic was created.

    Attributes:
        written_records: Records that clients appended. Duplicates and markers do not count.
        written_bytes: Bytes of their batches, as they are stored.
        read_bytes: Bytes of batches in answers to Fetch and ShareFetch.
        produce_errors: Partitions that Produce refused.
        fetch_errors: Partitions that Fetch refused.
    """

    written_records: int = 0
    written_bytes: int = 0
    read_bytes: int = 0
    produce_errors: int = 0
    fetch_errors: int = 0

    def wrote(self, batch: BatchHeader) -> None:
        """Count an appended batch of a client."""
        self.written_records += batch.record_count
        self.written_bytes += LENGTH_PREFIX_BYTES + batch.batch_length
