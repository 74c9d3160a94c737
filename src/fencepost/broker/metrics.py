"""What the broker counts, for whoever exposes it. Everything that may mean lost or damaged data is here, and in the
log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["COUNTERS", "Metrics"]

COUNTERS: Final[Mapping[str, str]] = {
    "corrupt_reads": "Reads that met damaged bytes and were refused.",
    "storage_errors": "Requests for one partition that the disk made fail.",
    "failed_syncs": "Logs that became read-only because an fsync failed.",
    "recovered_logs": "Logs whose end had to be scanned when they were opened.",
    "cut_bytes": "Bytes cut off at the ends of logs when they were opened: torn writes that nobody was promised.",
    "damaged_places": "Damage found below a point that had been synced, when logs were opened.",
    "unknown_producers": "Batches refused because nothing is known of their producer id (59), or accepted all the same "
    "from clients too old for that answer: records before them may be lost.",
    "out_of_order_sequences": "Batches refused because of a gap in their producer's sequence (45): records are lost.",
    "compactions": "Rounds of compaction that ended well.",
    "compaction_failures": "Rounds of compaction that damage or the disk ended.",
    "compacted_bytes_read": "Bytes that compaction read.",
    "compacted_bytes_written": "Bytes that compaction wrote anew.",
    "deleted_segments": "Segments removed by retention.",
    "fetch_sessions": "Fetch sessions opened.",
    "incremental_fetches": "Fetches that belonged to a session.",
    "evicted_fetch_sessions": "Fetch sessions given up to make room for another.",
    "denials": "Times that a client asked for what it may not.",
    "failed_logins": "Clients that were not let in.",
}


class Metrics:
    """Counters since the start. Raises KeyError for a name that is not in COUNTERS."""

    def __init__(self) -> None:
        self.values: dict[str, int] = dict.fromkeys(COUNTERS, 0)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        self.values[name] += by
