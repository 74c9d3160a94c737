"""The markers that prepared transactions still owe their partitions.

What is outstanding is derived from the PREPARE_* states: after a restart all markers of a prepared transaction are
outstanding again. Writing a marker twice is harmless: the second finds no open transaction of that producer and only
repeats the epoch. A partition that no longer exists is to be acknowledged without a write.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.broker.coordinator.txn.model import MarkerWrite, TopicPartition, Transaction
from fencepost.broker.coordinator.txn.states import TxnState


class Outstanding:
    """Per prepared transaction the partitions whose marker is not acknowledged; in the order they were prepared."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[str, tuple[Transaction, dict[TopicPartition, None]]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def expect(self, transaction: Transaction) -> None:
        if transaction.partitions:
            partitions = dict.fromkeys(sorted(transaction.partitions))
            self._by_id[transaction.transactional_id] = (transaction, partitions)

    def forget(self, transactional_id: str) -> None:
        self._by_id.pop(transactional_id, None)

    def acknowledge(self, write: MarkerWrite) -> Transaction | None:
        """Note a written marker. The transaction when it was the last one; None otherwise, also for one that was
        acknowledged before or belongs to an earlier transaction of the id."""
        entry = self._by_id.get(write.transactional_id)
        if entry is None:
            return None
        transaction, partitions = entry
        if marker_for(transaction, write.partition, write.coordinator_epoch) != write:
            return None
        partitions.pop(write.partition, None)
        return None if partitions else transaction

    def writes(self, transactional_id: str | None, coordinator_epoch: int) -> Iterator[MarkerWrite]:
        """All writes that are owed, or those of one id."""
        names = list(self._by_id) if transactional_id is None else [transactional_id]
        for name in names:
            entry = self._by_id.get(name)
            if entry is None:
                continue
            transaction, partitions = entry
            for partition in list(partitions):
                yield marker_for(transaction, partition, coordinator_epoch)


def marker_for(transaction: Transaction, partition: TopicPartition, coordinator_epoch: int) -> MarkerWrite:
    return MarkerWrite(
        transaction.transactional_id,
        partition,
        transaction.producer_id,
        transaction.producer_epoch,
        coordinator_epoch,
        transaction.state is TxnState.PREPARE_COMMIT,
        transaction.client_transaction_version,
    )
