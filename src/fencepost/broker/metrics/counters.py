"""What the broker counts and what it can tell of its present state, for whoever exposes it. Everything that may mean
lost or damaged data is here, and in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fencepost.broker.metrics.latencies import Latencies, Latency

__all__ = ["COUNTERS", "GAUGES", "Metrics", "Snapshot"]

COUNTERS: Final[Mapping[str, str]] = {
    "corrupt_reads": "Reads that met damaged bytes and were refused.",
    "storage_errors": "Requests for one partition that the disk made fail.",
    "failed_requests": "Requests that met a mistake of the broker's own: each cost its connection, and is in the log.",
    "failed_work": "Work that came due for one partition, group or id and met a mistake of the broker's own: each "
    "cost that one only, and is in the log.",
    "failed_syncs": "Logs that became read-only because an fsync failed.",
    "recovered_logs": "Logs whose end had to be scanned when they were opened.",
    "cut_bytes": "Bytes cut off at the ends of logs when they were opened: torn writes that nobody was promised.",
    "damaged_places": "Places where logs are damaged below a point that had been synced, found when they were opened.",
    "damaged_offsets": "Offsets of which nothing whole is left in those places.",
    "start_records_read": "Records of the internal topics that the start had to read, behind their snapshots.",
    "unknown_producers": "Batches refused because nothing is known of their producer id (59), or accepted all the same "
    "from clients too old for that answer: records before them may be lost.",
    "unknown_producers_after_deletion": "Those of them in partitions whose oldest records were deleted (retention, "
    "DeleteRecords), which explains them: nothing else need be lost, and clients go on by themselves.",
    "transactions_timed_out": "Transactions aborted because their time was over.",
    "timeouts_reclaimed": "Producers that went on with their id after their transaction had timed out (KIP-588).",
    "fenced_transactions": "Open transactions aborted because another producer took over their id.",
    "fenced_requests": "Requests refused because another producer has taken over the id (47, 90): from a zombie.",
    "out_of_order_sequences": "Batches refused because of a gap in their producer's sequence (45): records are lost.",
    "compactions": "Rounds of compaction that ended well.",
    "compaction_failures": "Rounds of compaction that damage, the disk or a mistake of the broker's own ended.",
    "compacted_bytes_read": "Bytes that compaction read.",
    "compacted_bytes_written": "Bytes that compaction wrote anew.",
    "deleted_segments": "Segments removed by retention.",
    "fetch_sessions": "Fetch sessions opened.",
    "incremental_fetches": "Fetches that belonged to a session.",
    "evicted_fetch_sessions": "Fetch sessions given up to make room for another.",
    "share_records_delivered": "Records handed out to members of share groups, each time that they were.",
    "share_records_accepted": "Records that members of share groups have processed.",
    "share_records_returned": "Records that came back to be handed out again: released by their member, which may be "
    "gone, or after their lock.",
    "share_records_rejected": "Records of which a member of a share group said that nobody can process them.",
    "share_records_exhausted": "Records given up by share groups because they were delivered as often as they may be.",
    "share_locks_expired": "Records of share groups whose lock ran out before their member said anything.",
    "denials": "Times that a client asked for what it may not.",
    "failed_logins": "Clients that were not let in.",
    "failed_handshakes": "Clients whose TLS could not be, or that were not let in for their certificate.",
    "throttled_requests": "Requests after which a client had to wait for its quota.",
    "time_jumps": "Times that the system's clock went forward by a second or more.",
    "refused_connections": "Connections that were closed at once because there were too many.",
    "displaced_connections": "Connections that asked nothing and gave way to new ones because there were too many.",
    "idle_connections": "Connections closed because nothing was asked or answered on them for too long.",
    "stalled_connections": "Connections closed because their clients took no answers, or did not finish a request, "
    "while there was no room for those of others.",
    "refused_groups": "Groups that were not made because there are too many.",
    "refused_transactional_ids": "Transactional ids that were not taken because there are too many.",
    "refused_topics": "Topics that were not made, or did not grow, because there are too many partitions.",
    "postponed_syncs": "Syncs tried again because the process had no descriptor left.",
}


GAUGES: Final[Mapping[str, str]] = {
    "groups": "Groups that are known, those included that have nothing but offsets.",
    "partitions": "Partitions of all topics.",
    "transactional_ids": "Transactional ids that are known.",
    "transactions_open": "Transactions that are open.",
    "transactions_two_phase": "Those of them that never time out, because somebody else decides them (KIP-939).",
    "transactions_kept": "Those of them that were prepared and taken over for their decision (KeepPreparedTxn).",
    "transactions_ending": "Transactions that are decided and whose markers are being written.",
    "oldest_transaction_ms": "Age of the oldest open transaction that may time out.",
    "oldest_two_phase_ms": "Age of the oldest open transaction that never times out.",
    "markers_owed": "Markers of decided transactions that are not durable yet.",
    "share_partitions": "Partitions that share groups have begun to read, each for each of them.",
    "share_sessions": "Members of share groups that are reading.",
    "share_records_locked": "Records that members of share groups have been handed out.",
    "unremovable_directories": "Directories of deleted topics that the disk does not let go; each is in the log.",
    "uncleanable_partitions": "Partitions that are not compacted any more because damage or a mistake ended a round.",
    "connections": "Connections.",
    "untaken_answer_bytes": "Bytes of answers that clients have not taken yet.",
    "unfinished_request_bytes": "Memory of requests that have not come whole, or wait for others of their connection.",
    "certificate_end_s": "When the first of the broker's certificates expires, in seconds since 1970; 0: no TLS.",
    "clock_ahead_ms": "How far the broker's time is ahead of the system's clock, which was set back.",
}


@dataclass(frozen=True)
class Snapshot:
    """All of it at one moment. `counters` and `gauges` by the names in COUNTERS and GAUGES.

    `requests`: how many of each API; `latencies`: how long those took that were answered; `syncs`: how long the disk
    took for what was synced together. `stable_lag`: (topic, partition) -> how many offsets readers of committed records
    do not see yet because a transaction before them is open; only partitions where there are some.
    """

    counters: Mapping[str, int]
    gauges: Mapping[str, int]
    requests: Mapping[str, int]
    latencies: Mapping[str, Latency]
    syncs: Latency
    stable_lag: Mapping[tuple[str, int], int]


class Metrics:
    """Counters since the start. Raises KeyError for a name that is not in COUNTERS."""

    def __init__(self) -> None:
        self.values: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self.requests: Counter[int] = Counter()
        """By API key."""
        self.latencies = Latencies()
        self.syncs = Latency()

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        self.values[name] += by
