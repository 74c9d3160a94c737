"""Find partitions whose last stable offset an open transaction holds back, and the name of that transaction.

To a read_committed reader such a partition looks as if no records were written: there is no lag and no error. The
source therefore watches the last stable offsets, and logs the name of the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fencepost.client.admin.transactions import ProducerDescription
from fencepost.client.net.tasks import gather
from fencepost.client.types import TopicPartition
from fencepost.counted import duration_words
from fencepost.errors import KafkaError
from fencepost.protocol.transactions import NO_TIMEOUT_MS
from fencepost.spark.cluster_calls import ClusterCalls
from fencepost.spark.sink.decision import Pair

__all__ = [
    "BOUND_MS",
    "FirstOpenTransaction",
    "StallWatch",
    "StalledPartition",
    "describe_first_open",
    "first_open_transactions",
]

BOUND_MS: Final = 60_000  # Kafka's default transaction timeout: most producers' transactions have ended by then
AGAIN_S: Final = 60.0


class StalledPartition(NamedTuple):
    """A partition whose last stable offset has not changed for `for_s` seconds.

    `stable` is that offset, and `behind` the number of offsets from it to the high watermark.
    """

    partition: TopicPartition
    stable: int
    behind: int
    for_s: float


@dataclass(slots=True)
class _StableOffset:
    stable: int
    since_s: float
    reported_s: float | None = None


class StallWatch:
    """Measures for how long the last stable offset of each partition has not changed. Pure: the caller passes times."""

    def __init__(self, bound_ms: int = BOUND_MS) -> None:
        """Start without partitions. `bound_ms`: report a partition after it has not changed for this time."""
        self._bound_s = bound_ms / 1000
        self._seen: dict[TopicPartition, _StableOffset] = {}

    def update(
        self, now_s: float, stable: Mapping[TopicPartition, int], high: Mapping[TopicPartition, int]
    ) -> tuple[list[StalledPartition], list[TopicPartition]]:
        """Return the partitions to report now, and the reported partitions that have moved.

        A partition is reported when the bound is reached, and then every minute. The longest wait comes first.

        Args:
            now_s: The present time, in seconds.
            stable: The last stable offsets.
            high: The high watermarks.
        """
        before = self._seen
        self._seen = {
            partition: seen
            if (seen := before.get(partition)) is not None and seen.stable == at
            else _StableOffset(at, now_s)
            for partition, at in stable.items()
            if high.get(partition, at) > at
        }
        due = []
        for partition, seen in self._seen.items():
            stood_s = now_s - seen.since_s
            if stood_s >= self._bound_s and (seen.reported_s is None or now_s - seen.reported_s >= AGAIN_S):
                seen.reported_s = now_s
                due.append(StalledPartition(partition, seen.stable, high[partition] - seen.stable, stood_s))
        moved = [
            partition
            for partition, seen in before.items()
            if seen.reported_s is not None and self._seen.get(partition) is not seen
        ]
        return sorted(due, key=lambda waiting: (-waiting.for_s, waiting.partition)), sorted(moved)


class FirstOpenTransaction(NamedTuple):
    """The first open transaction of a partition. `transactional_id` is None if no coordinator lists the producer."""

    pair: Pair
    transactional_id: str | None
    age_ms: int | None
    timeout_ms: int | None

    def __str__(self) -> str:
        if self.transactional_id is None:
            return (
                f"a transaction of producer {self.pair}, which no coordinator reports: it hangs, or this principal may "
                "not DESCRIBE its transactional id"
            )
        age = "" if self.age_ms is None else f", open for {duration_words(self.age_ms)}"
        timeout = "no timeout: its owner is to decide it"
        if self.timeout_ms is not None:
            timeout = f"timeout {duration_words(self.timeout_ms)}"
        return f"transaction {self.transactional_id!r} (producer {self.pair}{age}, {timeout})"


async def first_open_transactions(
    admin: ClusterCalls, partitions: Sequence[TopicPartition], api_timeout_ms: int | None = None
) -> dict[TopicPartition, FirstOpenTransaction | KafkaError | None]:
    """Return the transaction that holds each partition back.

    The value is None if the transaction has ended, and an error if the brokers did not answer.
    """
    calls = [admin.describe_producers([partition], api_timeout_ms=api_timeout_ms) for partition in partitions]
    first_open: dict[TopicPartition, FirstOpenTransaction | KafkaError | None] = {}
    first: dict[TopicPartition, ProducerDescription] = {}
    for partition, answer in zip(partitions, await gather(admin.cluster.runtime, calls), strict=True):
        if isinstance(answer, Exception):
            if not isinstance(answer, KafkaError):
                raise answer
            first_open[partition] = answer
            continue
        open_ones = [producer for producer in answer[partition] if producer.transaction_start_offset >= 0]
        first_open[partition] = None
        if open_ones:
            first[partition] = min(open_ones, key=lambda producer: producer.transaction_start_offset)
    known = await _named(admin, {producer.producer_id for producer in first.values()}, api_timeout_ms) if first else {}
    for partition, producer in first.items():
        pair = Pair(producer.producer_id, producer.producer_epoch)
        first_open[partition] = known.get(producer.producer_id, FirstOpenTransaction(pair, None, None, None))
    return first_open


async def _named(
    admin: ClusterCalls, producer_ids: set[int], api_timeout_ms: int | None
) -> dict[int, FirstOpenTransaction]:
    """Return the transactions that the coordinators list for these producers, by producer id; {} after an error."""
    try:
        listed = await admin.list_transactions(producer_ids=sorted(producer_ids), api_timeout_ms=api_timeout_ms)
        described = await admin.describe_transactions(
            [txn.transactional_id for txn in listed], api_timeout_ms=api_timeout_ms
        )
    except KafkaError:
        return {}  # `holders` still returns the producer id
    now_ms = admin.cluster.runtime.wall_ms()
    return {
        txn.producer_id: FirstOpenTransaction(
            Pair(txn.producer_id, txn.producer_epoch),
            txn.transactional_id,
            max(now_ms - txn.start_time_ms, 0) if txn.start_time_ms >= 0 else None,
            txn.timeout_ms if txn.timeout_ms < NO_TIMEOUT_MS else None,
        )
        for txn in described
        if txn.error_code == 0
    }


def describe_first_open(transaction: FirstOpenTransaction | KafkaError | None) -> str:
    """Return a text about a result of `holders` for a log line."""
    if transaction is None:
        return "a transaction that has ended meanwhile"
    if isinstance(transaction, KafkaError):
        return f"an open transaction; the brokers do not say which: {transaction}"
    return str(transaction)
