"""Counts of what clients wrote to one topic, read from it, and were refused."""

from __future__ import annotations

__all__ = ["TopicTraffic"]


class TopicTraffic:
    """Counters since the start, or since the topic was created.

    Attributes:
        written_records: Records that clients appended. Duplicates and markers do not count.
        written_bytes: Bytes of their batches, as they are stored.
        read_bytes: Bytes of batches in answers to Fetch and ShareFetch.
        produce_errors: Partitions that Produce refused.
        fetch_errors: Partitions that Fetch refused.
    """

    __slots__ = ("fetch_errors", "produce_errors", "read_bytes", "written_bytes", "written_records")

    def __init__(self) -> None:
        self.written_records = self.written_bytes = self.read_bytes = 0
        self.produce_errors = self.fetch_errors = 0

    def wrote(self, records: int, size: int) -> None:
        """Count an appended batch of a client."""
        self.written_records += records
        self.written_bytes += size

    def copy(self) -> TopicTraffic:
        """Return a copy."""
        copied = TopicTraffic()
        copied.written_records, copied.written_bytes = self.written_records, self.written_bytes
        copied.read_bytes = self.read_bytes
        copied.produce_errors, copied.fetch_errors = self.produce_errors, self.fetch_errors
        return copied
