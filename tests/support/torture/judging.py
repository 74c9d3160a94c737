"""The judgement after a run: the records of committed readers, their differences from the input, and the report."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import fencepost
from fencepost import TopicPartition
from fencepost.client.types import Isolation

__all__ = ["committed_values", "differences", "hanging", "open_after", "tell"]

PATIENCE_MS = 60_000
MOST_ANOMALIES = 50


def committed_values(admin: fencepost.Admin, consumer: fencepost.Consumer, topic: str, partitions: int) -> list[bytes]:
    """Return all committed values of a topic.

    They are read up to the end of all records, so that a transaction that holds readers back raises KafkaTimeoutError.
    """
    parts = [TopicPartition(topic, number) for number in range(partitions)]
    ends = admin.list_offsets(dict.fromkeys(parts, -1), isolation=Isolation.READ_UNCOMMITTED)
    values: list[bytes] = []
    for part, end in ends.items():
        for fetched in consumer.fetch_range(topic, part.partition, 0, end.offset, timeout_ms=PATIENCE_MS):
            values += [value or b"" for value in fetched.columns.values()]
    return values


def differences(wanted: Iterable[bytes], found: Iterable[bytes]) -> dict[str, Counter[bytes]]:
    """Return the values that are "missing" and those that are "too many"; nothing if each is there once."""
    wished, counted = Counter(wanted), Counter(found)
    both = {"missing": wished - counted, "too many": counted - wished}
    return {what: values for what, values in both.items() if values}


def hanging(admin: fencepost.Admin) -> list[str]:
    """Return an anomaly for each transaction that has no end."""
    found = admin.list_transactions(states=["Ongoing", "PrepareCommit", "PrepareAbort"])
    return [f"hangs: {transaction.transactional_id} is {transaction.state}" for transaction in found]


def open_after(admin: fencepost.Admin, topics: Mapping[str, int], within_s: float) -> list[str]:
    """Wait until no transaction is open, and committed readers come to the end of the topics (name: partitions).

    Returns what is still open after `within_s` seconds. The last marker is in the log shortly before the coordinator
    completes the transaction.
    """
    deadline = time.monotonic() + within_s
    wanted = {TopicPartition(name, number): -1 for name, count in topics.items() for number in range(count)}
    while True:
        ends = admin.list_offsets(wanted, isolation=Isolation.READ_UNCOMMITTED)
        stable = admin.list_offsets(wanted, isolation=Isolation.READ_COMMITTED)
        found = hanging(admin)
        found += [
            f"{partition} ends at {ends[partition].offset}, for committed readers at {stable[partition].offset}"
            for partition in wanted
            if stable[partition].offset < ends[partition].offset
        ]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def tell(anomalies: Sequence[object], happened: Mapping[str, int] | None = None, folder: Path | None = None) -> int:
    """Print the counts of a run and its anomalies, and return the exit status.

    The folder of a run without anomalies is deleted.
    """
    for what, count in sorted((happened or {}).items()):
        print(f"{count:7} {what}")
    print(f"{len(anomalies)} anomalies")
    for anomaly in anomalies[:MOST_ANOMALIES]:
        print(anomaly)
    if folder is not None:
        if anomalies:
            print(f"kept for inspection: {folder}")
        else:
            shutil.rmtree(folder)
    return 1 if anomalies else 0
