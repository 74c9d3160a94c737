"""The one writer of transaction state: a record of ``__transaction_state`` becomes the id's state, at run and at load.

`TransactionStore` also keeps what can be derived from the states, so that no request has to look at all ids: which
transactions await markers, and when something is due.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.broker.txn.deadlines import Deadlines
from fencepost.broker.txn.markers import Outstanding
from fencepost.broker.txn.model import Transaction, TransactionRecord
from fencepost.broker.txn.states import IDLE, PREPARED, Event, IllegalTransition, TxnState, step


def event_of(before: Transaction | None, after: Transaction | None) -> Event:
    """What happened, told from the two states."""
    if after is None:
        return Event.EXPIRED
    match after.state:
        case TxnState.EMPTY:
            return Event.INITIALIZED
        case TxnState.ONGOING:
            kept = before is not None and before.state is TxnState.ONGOING and before.client_pair != after.client_pair
            return Event.KEPT if kept else Event.PARTITIONS_ADDED
        case TxnState.PREPARE_COMMIT:
            return Event.COMMIT_PREPARED
        case TxnState.PREPARE_ABORT:
            return Event.ABORT_PREPARED
        case TxnState.COMPLETE_COMMIT:
            return Event.COMMIT_COMPLETED
        case TxnState.COMPLETE_ABORT:
            idle = before is not None and before.state in IDLE
            return Event.EMPTY_ABORTED if idle else Event.ABORT_COMPLETED
        case _:
            raise IllegalTransition(after.state, Event.INITIALIZED, after.transactional_id)


class TransactionStore:
    """All transactional ids. Reading is free; `replay` is the only way to change anything."""

    def __init__(self, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self._by_id: dict[str, Transaction] = {}
        self.outstanding = Outstanding()
        self.deadlines = Deadlines()
        self.highest_producer_id = -1
        """The highest one seen in any record: an allocator must start above it."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._by_id.values())

    def get(self, transactional_id: str) -> Transaction | None:
        return self._by_id.get(transactional_id)

    def replay(self, record: TransactionRecord) -> None:
        """Install the record's state. Raises `IllegalTransition` when it does not follow from the present one.

        A compacted log may start with any state of an id, so the first record of an id is taken as it is.
        """
        transactional_id, after = record.transactional_id, record.transaction
        before = self._by_id.get(transactional_id)
        if before is not None:
            reached = step(before.state, event_of(before, after), transactional_id)
            if after is not None and reached is not after.state:
                raise IllegalTransition(before.state, event_of(before, after), transactional_id)
        elif after is not None and after.state in (TxnState.DEAD, TxnState.PREPARE_EPOCH_FENCE):
            raise IllegalTransition(after.state, Event.INITIALIZED, transactional_id)
        if after is None:
            self._by_id.pop(transactional_id, None)
            self.outstanding.forget(transactional_id)
            self.deadlines.forget(transactional_id)
            return
        self._by_id[transactional_id] = after
        self.highest_producer_id = max(self.highest_producer_id, after.producer_id, after.next_producer_id)
        if after.state in PREPARED:
            self.outstanding.expect(after)
        else:
            self.outstanding.forget(transactional_id)
        self.deadlines.set(transactional_id, self.due_ms(after))

    def due_ms(self, transaction: Transaction) -> int | None:
        """When the id needs a look without anybody asking: timeout, expiry, or a prepared one without partitions."""
        if transaction.state in IDLE:
            return transaction.last_update_ms + self.expiration_ms
        if transaction.state in PREPARED:
            return None if transaction.partitions else transaction.last_update_ms
        return transaction.deadline_ms
