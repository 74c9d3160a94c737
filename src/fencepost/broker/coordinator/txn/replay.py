"""The transaction state: a record of ``__transaction_state`` becomes the id's state, while running and loading.

`TransactionStore` also derives which transactions await markers and when work is due, so that no request visits all
ids. Ids without an open transaction are packed (`compact_idle_ids.py`): the cost depends on the open transactions,
not on the number of ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from fencepost.broker.coordinator.txn.compact_idle_ids import IdleIds, Summary, is_idle, pack
from fencepost.broker.coordinator.txn.markers import Outstanding
from fencepost.broker.coordinator.txn.model import Transaction, TransactionRecord
from fencepost.broker.coordinator.txn.states import (
    IDLE,
    NEVER_LOGGED,
    PREPARED,
    TABLE,
    IllegalTransition,
    TxnRecordEvent,
    TxnState,
)
from fencepost.broker.timing.clock import ClockJumps
from fencepost.broker.timing.deadline_signal import DeadlineSignal
from fencepost.broker.timing.deadlines import RETRY_MS, Deadlines
from fencepost.protocol.logs.transaction_log import encode_key
from fencepost.values import replace

_MOST_CONTEXTS = 1_024


class IdContext:
    """A transactional id in use: what every record of it needs, computed once."""

    __slots__ = ("idle", "key", "shard", "state")

    def __init__(self, key: bytes, shard: int, idle: IdleIds, state: Transaction | None) -> None:
        self.key = key
        """The key of its records."""
        self.shard = shard
        """Its partition of the transaction log."""
        self.idle = idle
        """The packed ids of that partition."""
        self.state = state
        """The present state; None for an id that does not exist."""


class TransactionStore:
    """All transactional ids. Only `replay` changes the state of an id."""

    def __init__(
        self,
        expiration_ms: int,
        clock_jumps: ClockJumps,
        shard_of: Callable[[str], int] = lambda _: 0,
        deadline_signal: DeadlineSignal | None = None,
    ) -> None:
        """Create an empty store.

        Args:
            expiration_ms: Time in ms after which an unused id expires.
            clock_jumps: The jumps of the clock.
            shard_of: Returns an id's partition of the transaction log.
            deadline_signal: It is set when a deadline becomes earlier.
        """
        self._deadline_signal = DeadlineSignal() if deadline_signal is None else deadline_signal
        self._jumps = clock_jumps
        self._shard_of = shard_of
        self.expiration_ms = expiration_ms
        self._awake: dict[str, Transaction] = {}  # ids with an open transaction or missing markers, or about to expire
        self._idle: defaultdict[int, IdleIds] = defaultdict(IdleIds)
        self._contexts: dict[str, IdContext] = {}  # ids whose records were appended lately
        self._idle_floor_ms: int | None = None  # no idle id was last used before this time
        self.outstanding = Outstanding()
        self.deadlines = Deadlines[str](self._deadline_signal)
        self.highest_producer_id = -1
        """Highest producer id in any record. An allocator must start above it."""

    def __len__(self) -> int:
        return len(self._awake) + sum(map(len, self._idle.values()))

    def __iter__(self) -> Iterator[Transaction]:
        return chain(list(self._awake.values()), *self._idle.values())

    def awake(self) -> list[Transaction]:
        """Return the states of all unpacked ids, which include every id with an open transaction or missing markers."""
        return list(self._awake.values())

    def summaries(self) -> Iterator[Summary]:
        """Yield the values of a listing of all ids."""
        awake = [
            (each.transactional_id, each.state, each.producer_id, each.next_producer_id, each.start_ms)
            for each in self._awake.values()
        ]
        return chain(awake, *(idle.summaries() for idle in self._idle.values()))

    def of_shard(self, shard: int) -> tuple[list[tuple[str, bytes]], list[Transaction]]:
        """Return all ids of one partition of the transaction log: the packed ones, and the others."""
        awake = [each for name, each in self._awake.items() if self._shard_of(name) == shard]
        return list(self._idle[shard].packed()), awake

    def load_packed(self, shard: int, packed: Iterable[tuple[str, bytes]]) -> None:
        """Load packed ids from `of_shard`, before any of their records is replayed."""
        self._contexts.clear()
        for name, state in packed:
            self._put_idle(self._idle[shard], name, state)

    def get(self, transactional_id: str) -> Transaction | None:
        context = self._contexts.get(transactional_id)
        if context is not None:
            return context.state
        return self._awake.get(transactional_id) or self._idle[self._shard_of(transactional_id)].get(transactional_id)

    def context(self, transactional_id: str) -> IdContext:
        """Return the context of an id, before a record of it is appended. The transaction log must exist."""
        context = self._contexts.get(transactional_id)
        if context is None:
            shard = self._shard_of(transactional_id)
            idle = self._idle[shard]
            state = self._awake.get(transactional_id) or idle.get(transactional_id)
            if len(self._contexts) >= _MOST_CONTEXTS:
                self._contexts.clear()
            context = self._contexts[transactional_id] = IdContext(encode_key(transactional_id), shard, idle, state)
        return context

    def replay(self, record: TransactionRecord) -> Transaction | None:
        """Apply a record. Return the state before it.

        Raises `IllegalTransition` if its state cannot follow the present one.

        A compacted log may start with any state of an id, so the first record of an id is accepted unchecked.
        """
        transactional_id, after = record.transactional_id, record.transaction
        context = self._contexts.get(transactional_id)
        if context is None:  # while loading, which reads most ids once
            idle = self._idle[self._shard_of(transactional_id)]
            before = self._awake.get(transactional_id) or idle.get(transactional_id)
        else:
            idle, before = context.idle, context.state
        if after is not None and after.state in NEVER_LOGGED:
            raise IllegalTransition(after.state, TxnRecordEvent.INITIALIZED, transactional_id)
        reached = TxnState.DEAD if after is None else after.state
        if before is not None and not TABLE.may_follow(before.state, reached):
            raise IllegalTransition(before.state, reached, transactional_id)
        if context is not None:
            context.state = after
        if after is None:
            self._contexts.pop(transactional_id, None)
            self._forget_awake(transactional_id)
            idle.discard(transactional_id)
            return before
        if after.producer_id > self.highest_producer_id or after.next_producer_id > self.highest_producer_id:
            self.highest_producer_id = max(after.producer_id, after.next_producer_id)
        if is_idle(after):
            self._forget_awake(transactional_id)
            self._put_idle(idle, transactional_id, pack(after))
            return before
        idle.discard(transactional_id)
        self._awake[transactional_id] = after
        if after.state in PREPARED:
            self.outstanding.expect(after)
        else:
            self.outstanding.forget(transactional_id)
        self.deadlines.set(transactional_id, self.due_ms(after))
        return before

    def loaded(self, now_ms: int) -> None:
        """Finish loading after all records were replayed.

        If the clock was set back while the broker was down, a start time may lie in the future. It is replaced by the
        present, so that the timeout does not wait for that time.
        """
        for name, each in self._awake.items():
            if max(each.start_ms, each.last_update_ms) > now_ms:
                since_now = replace(
                    each, start_ms=min(each.start_ms, now_ms), last_update_ms=min(each.last_update_ms, now_ms)
                )
                self._awake[name] = since_now
                self._contexts.pop(name, None)
                self.deadlines.set(name, self.due_ms(since_now))

    def set_aside(self, transactional_id: str) -> Transaction | None:
        """Remove the id and return its state."""
        self._contexts.pop(transactional_id, None)
        awake = self._forget_awake(transactional_id)
        return awake or self._idle[self._shard_of(transactional_id)].pop(transactional_id)

    def _put_idle(self, idle: IdleIds, transactional_id: str, packed: bytes) -> None:
        used_ms, floor_ms = idle.put(transactional_id, packed), self._idle_floor_ms
        if floor_ms is None or used_ms < floor_ms:
            self._idle_floor_ms = used_ms
            self._deadline_signal.is_set = True

    def _forget_awake(self, transactional_id: str) -> Transaction | None:
        self.outstanding.forget(transactional_id)
        self.deadlines.cancel(transactional_id)
        return self._awake.pop(transactional_id, None)

    def next_ms(self) -> int | None:
        """Return a time no later than the next work of `take_due`."""
        due_ms = self.deadlines.next_ms()
        if self._idle_floor_ms is None:
            return due_ms
        expires_ms = self._expires_ms(self._idle_floor_ms)
        return expires_ms if due_ms is None else min(due_ms, expires_ms)

    def take_due(self, now_ms: int, limit: int) -> list[Transaction]:
        """Return due ids, at most `limit`. Each becomes due again after a second unless it is replayed."""
        due = [self._awake[name] for name in self.deadlines.take_due(now_ms, limit) if name in self._awake]
        due += self._take_idle(now_ms, limit - len(due))
        return due

    def _take_idle(self, now_ms: int, limit: int) -> list[Transaction]:
        if self._idle_floor_ms is None or self._expires_ms(self._idle_floor_ms) > now_ms:
            return []
        due: list[Transaction] = []
        for idle in self._idle.values():
            due += idle.take_due(lambda used_ms: self._expires_ms(used_ms) <= now_ms, limit - len(due))
        for transaction in due:
            self._awake[transaction.transactional_id] = transaction
            self.deadlines.set(transaction.transactional_id, now_ms + RETRY_MS)
        oldest = [used_ms for idle in self._idle.values() if (used_ms := idle.oldest_ms()) is not None]
        self._idle_floor_ms = min(oldest, default=None)
        return due

    def reset_deadline(self, transaction: Transaction) -> None:
        """Reset the deadline of an id that was not due yet."""
        self.deadlines.set(transaction.transactional_id, self.due_ms(transaction))

    def _expires_ms(self, used_ms: int) -> int:
        """Return the expiry time. Skipped time since the last use does not count."""
        return used_ms + self.expiration_ms + self._jumps.skipped(used_ms)

    def due_ms(self, transaction: Transaction) -> int | None:
        """Return the time of an id's next work: timeout, expiry, or completion of a prepared one without partitions.

        Skipped time does not count.
        """
        if transaction.state in IDLE:
            return self._expires_ms(transaction.last_update_ms)
        if transaction.state in PREPARED:
            return None if transaction.partitions else transaction.last_update_ms
        deadline_ms = transaction.deadline_ms
        return None if deadline_ms is None else deadline_ms + self._jumps.skipped(transaction.start_ms)
