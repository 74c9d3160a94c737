"""Names and descriptions of the broker's counters and gauges.

Every event that can mean lost or damaged data has a counter here and a log line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fencepost.broker.metrics.latencies import Latency
from fencepost.broker.metrics.pushed import PushingClient
from fencepost.broker.metrics.traffic import TopicTraffic

__all__ = ["COUNTERS", "GAUGES", "LogExtent", "Metrics", "Snapshot"]

COUNTERS: Final[Mapping[str, str]] = {
    "corrupt_reads": "Reads refused because of damaged bytes.",
    "storage_errors": "Requests for one partition that failed because of a disk error.",
    "failed_requests": "Requests that failed because of a bug in the broker: each closed its connection and is logged.",
    "failed_work": "Scheduled work for one partition, group or id that failed because of a bug in the broker: each "
    "affected only its own subject and is logged.",
    "failed_syncs": "Logs that became read-only because an fsync failed.",
    "recovered_logs": "Logs whose end was scanned when they were opened.",
    "cut_bytes": "Bytes cut from the ends of logs at opening: torn writes that were never acknowledged.",
    "damaged_places": "Damaged ranges below a synced offset, found when logs were opened.",
    "damaged_offsets": "Unreadable offsets in the damaged ranges.",
    "start_records_read": "Records of internal topics read at start-up, after their snapshots.",
    "unknown_producers": "Batches refused because their producer id is unknown (59), or accepted from clients too old "
    "for that error code: earlier records may be lost.",
    "unknown_producers_after_deletion": "Unknown producers in partitions whose oldest records were deleted (retention, "
    "DeleteRecords): that explains them, no other records need be lost, and clients recover by themselves.",
    "transactions_timed_out": "Transactions aborted after their timeout.",
    "timeouts_reclaimed": "Producers that continued with their id after their transaction timed out (KIP-588).",
    "fenced_transactions": "Open transactions aborted because another producer took over their transactional id.",
    "fenced_requests": "Requests of fenced producers that were refused (47, 90).",
    "out_of_order_sequences": "Batches refused because of a gap in the producer's sequence (45): records are lost.",
    "compactions": "Completed rounds of compaction.",
    "compaction_failures": "Rounds of compaction that failed because of damage, the disk or a bug in the broker.",
    "compaction_read_bytes": "Bytes read by compaction.",
    "compaction_written_bytes": "Bytes written by compaction.",
    "deleted_segments": "Segments deleted by retention.",
    "fetch_sessions": "Fetch sessions opened.",
    "incremental_fetches": "Fetches in a session.",
    "evicted_fetch_sessions": "Fetch sessions closed to make room for another.",
    "share_records_delivered": "Deliveries of records to members of share groups.",
    "share_records_accepted": "Records that members of share groups accepted.",
    "share_records_returned": "Records to be delivered again: released by their member, also when it left, or by the "
    "end of their lock.",
    "share_records_rejected": "Records that members of share groups rejected.",
    "share_records_exhausted": "Records archived by share groups because they reached the delivery limit.",
    "share_locks_expired": "Records of share groups whose lock expired before an acknowledgement.",
    "denials": "Operations denied by the authorizer.",
    "failed_logins": "Failed authentications.",
    "failed_handshakes": "Failed TLS handshakes, including rejected client certificates.",
    "throttled_requests": "Requests after which a client was throttled by a quota.",
    "telemetry_pushes": "Pushes of client metrics that were accepted (KIP-714).",
    "telemetry_refused": "Pushes of client metrics that were refused; clients push again after their interval.",
    "telemetry_cut_pushes": "Accepted pushes of client metrics of which some values are not shown: beyond a limit, or "
    "changes instead of totals.",
    "time_jumps": "Forward jumps of the system's clock by a second or more.",
    "refused_connections": "Connections refused because there were too many.",
    "displaced_connections": "Connections without requests that were closed for new ones because there were too many.",
    "idle_connections": "Connections closed because they were idle for too long.",
    "stalled_connections": "Connections closed because their clients did not read responses, or did not complete a "
    "request, while memory for others was exhausted.",
    "refused_groups": "Groups refused because there are too many.",
    "refused_transactional_ids": "Transactional ids refused because there are too many.",
    "refused_topics": "Topics or partitions refused because there are too many partitions.",
    "postponed_syncs": "Syncs repeated because the process had no free file descriptor.",
}


GAUGES: Final[Mapping[str, str]] = {
    "groups": "Groups, including those that have only committed offsets.",
    "partitions": "Partitions of all topics.",
    "unopened_logs": "Partitions whose log was not opened since the start, so that its size is not known.",
    "hidden_series": "Topics, partitions, and groups with a topic, that are not shown because there are too many.",
    "transactional_ids": "Transactional ids.",
    "transactions_open": "Open transactions.",
    "transactions_two_phase": "Open two-phase transactions, which never time out (KIP-939).",
    "transactions_kept": "Open prepared transactions that a new producer kept (KeepPreparedTxn).",
    "transactions_ending": "Decided transactions whose markers are being written.",
    "oldest_transaction_seconds": "Age of the oldest open transaction that can time out.",
    "oldest_two_phase_seconds": "Age of the oldest open transaction that never times out.",
    "markers_pending": "Markers of decided transactions that are not durable yet.",
    "share_partitions": "Partitions in use by share groups, counted once per group.",
    "share_sessions": "Open share sessions.",
    "share_records_locked": "Records locked by members of share groups.",
    "unremovable_directories": "Directories of deleted topics that the disk refuses to remove; each is logged.",
    "uncleanable_partitions": "Partitions whose compaction stopped because of damage or a bug in the broker.",
    "connections": "Open connections.",
    "untaken_answer_bytes": "Response bytes that clients have not read.",
    "unfinished_request_bytes": "Memory of incomplete requests, and of requests that wait for earlier ones.",
    "certificate_end_timestamp_seconds": "Expiry of the broker's first expiring certificate since 1970; 0: no TLS.",
    "disk_total_bytes": "Size of the file system with the data directory; -1: unknown.",
    "disk_free_bytes": "Free space for the broker in that file system; -1: unknown.",
    "clock_ahead_seconds": "Lead of the broker's time over the system's clock after that was set back.",
}


class LogExtent(NamedTuple):
    """Size of a partition's log in bytes, its first offset, and the offset after its last record."""

    size_bytes: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True)
class Snapshot:
    """All metrics at one moment.

    Attributes:
        counters: By the names in COUNTERS.
        gauges: By the names in GAUGES.
        requests: Number of requests, by API.
        latencies: Latencies of answered requests, by API.
        syncs: Latencies of group syncs.
        stable_lag: (topic, partition) -> offsets between the last stable offset and the high watermark, if not 0.
        pushing_clients: Clients that push metrics (KIP-714), with these.
        straight_requests: Number of requests that took the straight path, by API; they are in `requests` too.
        request_bytes: Bytes of requests, by API, with the 4 bytes of their size.
        response_bytes: Bytes of responses, by API, with the 4 bytes of their size.
        errors: Number of error codes in responses, by API and name of the code.
        traffic: Counts by topic.
        logs: (topic, partition) -> the log, if it was opened since the start.
        topic_bytes: Bytes of the opened logs, by topic.
        group_lag: (group, topic) -> records behind the committed offsets. A pair is missing if one of its logs was not
            opened since the start.
    """

    counters: Mapping[str, int]
    gauges: Mapping[str, float]
    requests: Mapping[str, int]
    latencies: Mapping[str, Latency]
    syncs: Latency
    stable_lag: Mapping[tuple[str, int], int]
    straight_requests: Mapping[str, int] = field(default_factory=dict)
    pushing_clients: Sequence[PushingClient] = ()
    request_bytes: Mapping[str, int] = field(default_factory=dict)
    response_bytes: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    traffic: Mapping[str, TopicTraffic] = field(default_factory=dict)
    logs: Mapping[tuple[str, int], LogExtent] = field(default_factory=dict)
    topic_bytes: Mapping[str, int] = field(default_factory=dict)
    group_lag: Mapping[tuple[str, str], int] = field(default_factory=dict)


class Metrics:
    """Counters since the start. Raises KeyError for a name that is not in COUNTERS."""

    def __init__(self) -> None:
        self.values: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self.requests: Counter[int] = Counter()
        """By API key."""
        self.straight: Counter[int] = Counter()
        """Of these, requests that took the straight path."""
        self.request_bytes: Counter[int] = Counter()
        """Bytes of requests by API key, with the sizes before them."""
        self.response_bytes: Counter[int] = Counter()
        self.errors: Counter[tuple[int, int]] = Counter()
        """Error codes in responses, by API key and code."""
        self.latencies: defaultdict[int, Latency] = defaultdict(Latency)
        """By API key, from the complete request to its response, deliberate waits included."""
        self.syncs = Latency()

    def count(self, name: str, by: int = 1) -> None:
        """Increase a counter."""
        self.values[name] += by
