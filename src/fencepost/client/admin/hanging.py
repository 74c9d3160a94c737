"""Hanging transactions (KIP-664): no coordinator will end them, so read_committed readers wait forever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from fencepost.client.admin.items import Outcomes
from fencepost.client.admin.topics import AdminTopics
from fencepost.client.admin.transactions import AdminTransactions, ProducerDescription, TransactionDescription
from fencepost.client.types import TopicPartition
from fencepost.errors import DisconnectedError, KafkaError, KafkaTimeoutError
from fencepost.protocol.messages.list_transactions import ListTransactionsRequest

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
            ItemsFailedError: Some partitions are not known: their leader did not answer, or a producer in them may
                belong to a coordinator that did not. By partition, `results` has the lists of the others.
            KafkaError: The topics cannot be described.
        """
        names = None if topics is None else list(topics)
        outcomes = await self._hanging_in_each(names, older_than_ms, self._deadline(api_timeout_ms))
        return list(chain.from_iterable(outcomes.results("find hanging transactions").values()))

    async def _hanging_in_each(
        self, topics: Sequence[str] | None, older_than_ms: int, deadline_ms: int
    ) -> Outcomes[TopicPartition]:
        """Return lists of HangingTransaction. One broker that hangs may use half of the time, and then half of it."""
        left_ms = max(deadline_ms - self.cluster.runtime.now_ms(), 1)
        described = await self.describe_topics(topics, api_timeout_ms=left_ms)
        led = [
            TopicPartition(name, number)
            for name, topic in sorted(described.items())
            for number, at in sorted(topic.partitions.items())
            if at.leader >= 0
        ]
        before_ms = self.cluster.runtime.wall_ms() - older_than_ms
        seen = await self._producers_of_each(led, self._share(1 / 2, deadline_ms))
        suspected = hanging_of(seen.done, (), before_ms)
        producer_ids = {each.producer.producer_id for each in suspected}
        known, missing = await self._transactions_of(sorted(producer_ids), self._share(1 / 2, deadline_ms))
        found = hanging_of(seen.done, known, before_ms)
        failed = dict(seen.failed)
        if missing is not None:  # the coordinator that has not answered may know these producers
            failed |= {each.partition: missing for each in found if each.transactional_id is None}
        again = await self._producers_of_each(
            dict.fromkeys(each.partition for each in found if each.partition not in failed), deadline_ms
        )
        failed |= again.failed
        still = hanging_of(again.done, known, before_ms)
        by_partition: dict[TopicPartition, list[HangingTransaction]] = {
            partition: [] for partition in led if partition not in failed
        }
        for each in found:
            if each in still:
                by_partition[each.partition].append(each)
        return Outcomes(by_partition, failed)

    async def _transactions_of(
        self, producer_ids: Sequence[int], deadline_ms: int
    ) -> tuple[list[TransactionDescription], KafkaError | None]:
        """Return the transactions of these producers, and an error if not all coordinators have answered."""
        if not producer_ids:
            return [], None
        request = ListTransactionsRequest(producer_id_filters=producer_ids)
        try:
            listed = await self._transactions_by_broker(self._share(3 / 4, deadline_ms), request)
            ids = [each.transactional_id for each in chain.from_iterable(listed.done.values())]
            left_ms = max(deadline_ms - self.cluster.runtime.now_ms(), 1)
            known = await self.describe_transactions(ids, api_timeout_ms=left_ms)
        except (DisconnectedError, KafkaTimeoutError) as error:
            return [], error
        return known, next(iter(listed.failed.values()), None)
