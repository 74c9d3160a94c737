"""Hanging transactions (KIP-664): no coordinator will end them, so read_committed readers wait forever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fencepost.client.admin.topics import AdminTopics
from fencepost.client.admin.transactions import AdminTransactions, ProducerDescription, TransactionDescription
from fencepost.client.types import TopicPartition

__all__ = ["AdminHanging", "HangingTransaction", "hanging_of", "may_be_committed"]

USUAL_AGE_MS = 900_000  # the maximum transaction timeout that brokers allow by default
COMMITTED_STATES = ("PrepareCommit", "CompleteCommit")


class HangingTransaction(NamedTuple):
    """A partition's open transaction.

    Attributes:
        partition: The partition.
        producer: The producer's state in the partition.
        transactional_id: The transactional id of the producer, if known.
        may_be_committed: True if the coordinator may have committed the transaction without a marker in this partition.
    """

    partition: TopicPartition
    producer: ProducerDescription
    transactional_id: str | None
    may_be_committed: bool = False


def may_be_committed(producer: ProducerDescription, transaction: TransactionDescription | None) -> bool:
    """Return true if the coordinator may have committed a transaction that hangs.

    Kafka writes no marker to a partition that has no leader when its transaction ends (K31). The coordinator's last
    decision applies to the epoch of the records, or the one after it: EndTxn v5 raises it. An older client ends many
    transactions with one epoch, so the decision may be about a later one.
    """
    return (
        transaction is not None
        and transaction.state in COMMITTED_STATES
        and 0 <= transaction.producer_epoch - producer.producer_epoch <= 1
    )


def hanging_of(
    producers: Mapping[TopicPartition, Iterable[ProducerDescription]],
    transactions: Iterable[TransactionDescription],
    written_before_ms: float,
) -> list[HangingTransaction]:
    """Return the open transactions of partitions that no coordinator will end.

    As in Kafka's own tool, a transaction hangs if it was last written before the given time and its partition is not in
    the transaction that the coordinator has for its producer id.
    """
    known = {each.producer_id: each for each in transactions if each.error_code == 0}
    return [
        HangingTransaction(
            partition, producer, None if at is None else at.transactional_id, may_be_committed(producer, at)
        )
        for partition, seen in sorted(producers.items())
        for producer in seen
        if producer.transaction_start_offset >= 0 and producer.last_timestamp_ms <= written_before_ms
        for at in (known.get(producer.producer_id),)
        if at is None or partition not in at.partitions
    ]


class AdminHanging(AdminTopics, AdminTransactions):
    """Calls of `AdminCore` for hanging transactions."""

    async def find_hanging_transactions(
        self,
        topics: Iterable[str] | None = None,
        *,
        older_than_ms: int = USUAL_AGE_MS,
        api_timeout_ms: int | None = None,
    ) -> list[HangingTransaction]:
        """Return the open transactions of partitions that no coordinator knows, so that nothing will end them.

        The call reads the partitions, the coordinators, and the partitions again, to exclude transactions that ended
        meanwhile. `write_abort_marker` ends one, or `write_commit_marker` if it was committed. Partitions without a
        leader are left out.

        Args:
            topics: Names of topics; None: all, internal ones included. Missing topics are left out.
            older_than_ms: Minimum time since the last write in ms; use the largest transaction timeout.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            KafkaError: A topic, producer or transaction cannot be described.
        """
        deadline_ms = self._deadline(api_timeout_ms)

        def left_ms() -> int:
            return max(deadline_ms - self.cluster.runtime.now_ms(), 1)

        names = None if topics is None else list(topics)
        described = await self.describe_topics(names, api_timeout_ms=left_ms())
        led = [
            TopicPartition(name, number)
            for name, topic in described.items()
            for number, at in topic.partitions.items()
            if at.leader >= 0
        ]
        before_ms = self.cluster.runtime.wall_ms() - older_than_ms
        producers = await self.describe_producers(led, api_timeout_ms=left_ms())
        suspected = hanging_of(producers, (), before_ms)
        known = await self._transactions_of([each.producer.producer_id for each in suspected], left_ms())
        found = hanging_of(producers, known, before_ms)
        again = await self.describe_producers(
            list(dict.fromkeys(each.partition for each in found)), api_timeout_ms=left_ms()
        )
        still = hanging_of(again, known, before_ms)
        return [each for each in found if each in still]

    async def _transactions_of(self, producer_ids: Sequence[int], timeout_ms: int) -> list[TransactionDescription]:
        if not producer_ids:
            return []
        listed = await self.list_transactions(producer_ids=sorted(set(producer_ids)), api_timeout_ms=timeout_ms)
        ids = [each.transactional_id for each in listed]
        return await self.describe_transactions(ids, api_timeout_ms=timeout_ms)
