"""The missing markers of prepared transactions.

They are derived from the PREPARE_* states: after a restart all markers of a prepared transaction are outstanding again.
Writing a marker twice is harmless: the second one finds no open transaction of that producer and only repeats the
epoch. A partition that no longer exists is acknowledged without a write.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.broker.coordinator.txn.model import MarkerWrite, Transaction
from fencepost.broker.coordinator.txn.states import TxnState
from fencepost.topic_partition import TopicPartition


class Outstanding:
    """The unacknowledged partitions of each prepared transaction, in the order of preparation."""

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
        """Note a written marker.

        Return the transaction after its last marker, or None.

        A marker that was acknowledged before, or that belongs to an earlier transaction of the id, gives None as well.
        """
        entry = self._by_id.get(write.transactional_id)
        if entry is None:
            return None
        transaction, partitions = entry
        if marker_for(transaction, write.partition, write.coordinator_epoch) != write:
            return None
        partitions.pop(write.partition, None)
        return None if partitions else transaction

    def writes(self, transactional_id: str | None, coordinator_epoch: int) -> Iterator[MarkerWrite]:
        """Yield all missing markers, or those of one id."""
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
