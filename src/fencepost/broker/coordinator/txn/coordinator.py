"""The transaction coordinator: pure decisions over one replayed state.

Its owner drives it as follows, for a request and for a timeout alike:

1. ``result = coordinator.end_txn(...)`` decides and changes nothing.
2. Append ``result.records`` to ``__transaction_state`` and `replay` each at once; apply ``result.fence``.
3. When the log is durable up to there, send ``result.reply``. A reply without records must wait, too: it may depend on
   a record of the id that was appended before it.
4. `marker_work` returns the missing markers. Write each after the durability of step 3, then call `marker_written`; the
   last one's result has the completion record, to be treated as in step 2.

At start: `replay` every record, then `marker_work` and `on_time`. Only the views look at all ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from fencepost.broker.coordinator.txn import decide_end, decide_enlist, decide_init, views
from fencepost.broker.coordinator.txn.decide_end import EndRequest
from fencepost.broker.coordinator.txn.decide_enlist import EnlistRequest
from fencepost.broker.coordinator.txn.decide_init import InitRequest
from fencepost.broker.coordinator.txn.ending import AllocateProducerId
from fencepost.broker.coordinator.txn.model import (
    NO_PAIR,
    NO_PRODUCER_ID,
    EndReply,
    ErrorReply,
    InitReply,
    MarkerWrite,
    OffsetsVerdict,
    PartitionErrors,
    ProducerPair,
    ProduceVerdict,
    Result,
    Transaction,
    TransactionConfig,
    TransactionRecord,
)
from fencepost.broker.coordinator.txn.replay import IdContext, TransactionStore
from fencepost.broker.coordinator.txn.snapshot import IdsSnapshot
from fencepost.broker.coordinator.txn.states import PREPARED
from fencepost.broker.coordinator.txn.views import DescribedTransaction, ListReply
from fencepost.broker.timing.clock import ClockJumps
from fencepost.broker.timing.deadline_signal import DeadlineSignal
from fencepost.protocol.codes import ErrorCode
from fencepost.topic_partition import TopicPartition

_MOST_PER_LOOK = 1_000


class TransactionCoordinator:
    """The coordinator. ``allocate_producer_id`` must return unique ids above `highest_producer_id`."""

    def __init__(
        self,
        config: TransactionConfig,
        allocate_producer_id: AllocateProducerId,
        clock_jumps: ClockJumps | None = None,
        shard_of: Callable[[str], int] = lambda _: 0,
        deadline_signal: DeadlineSignal | None = None,
    ) -> None:
        """Create the coordinator without any id.

        Args:
            config: Its settings.
            allocate_producer_id: Returns a new producer id.
            clock_jumps: The jumps of the clock.
            shard_of: Returns an id's partition of the transaction log.
            deadline_signal: It is set when a deadline becomes earlier.
        """
        self._deadline_signal = DeadlineSignal() if deadline_signal is None else deadline_signal
        self._config = config
        self._allocate = allocate_producer_id
        self._store = TransactionStore(
            config.transactional_id_expiration_ms,
            ClockJumps() if clock_jumps is None else clock_jumps,
            shard_of,
            self._deadline_signal,
        )
        # Number of refusals of an old epoch with error 59 (UNKNOWN_PRODUCER_ID), by id. It is not replayed: after a
        # restart, a client that never bumps its epoch gets three more of them.
        self._refusals: dict[str, tuple[ProducerPair, int]] = {}

    def __len__(self) -> int:
        return len(self._store)

    @property
    def config(self) -> TransactionConfig:
        return self._config

    @config.setter
    def config(self, config: TransactionConfig) -> None:
        """Replace the settings for all later requests. An id's expiry changes when the id is used or becomes due."""
        self._config = config
        self._store.expiration_ms = config.transactional_id_expiration_ms
        self._deadline_signal.is_set = True

    @property
    def highest_producer_id(self) -> int:
        return self._store.highest_producer_id

    def transaction(self, transactional_id: str) -> Transaction | None:
        """Return the present state, for tests and tools."""
        return self._store.get(transactional_id)

    def awake(self) -> list[Transaction]:
        """Return the states of all ids with an open transaction or missing markers, and perhaps of some others."""
        return self._store.awake()

    # Requests

    def init_producer_id(self, now_ms: int, request: InitRequest) -> Result[InitReply]:
        """Handle InitProducerId (KIP-98, 360, 588, 939).

        If the id has an open transaction, the reply is error 51 (CONCURRENT_TRANSACTIONS), and the records abort it.
        """
        current = None if request.transactional_id is None else self._store.get(request.transactional_id)
        if current is None and request.transactional_id and len(self._store) >= self._config.max_transactional_ids:
            return Result(InitReply(ErrorCode.POLICY_VIOLATION))
        return decide_init.init_producer_id(now_ms, self._config, current, request, self._allocate)

    def add(self, now_ms: int, request: EnlistRequest) -> Result[ErrorReply]:
        """Handle AddPartitionsToTxn and AddOffsetsToTxn.

        The caller has checked the ACLs, and has refused requests with a missing partition: error 3 for that partition,
        and 55 (OPERATION_NOT_ATTEMPTED) for the others.
        """
        name, pair = request.transactional_id, request.pair
        refusals = self._refusals_of(name, pair)
        result = decide_enlist.add(now_ms, self._config, self._store.get(name), request, refusals=refusals)
        if result.reply.error_code == ErrorCode.UNKNOWN_PRODUCER_ID:
            self._refusals[name] = (pair, refusals + 1)
        return result

    def verify(self, request: EnlistRequest) -> Result[PartitionErrors]:
        """Handle AddPartitionsToTxn v4+ with VerifyOnly."""
        return decide_enlist.verify(self._store.get(request.transactional_id), request)

    def enlist_for_produce(self, now_ms: int, request: EnlistRequest) -> Result[ProduceVerdict]:
        """Decide about a transactional batch of any Produce version. Append it only after error 0."""
        current = self._store.get(request.transactional_id)
        return decide_enlist.enlist_for_produce(now_ms, self._config, current, request)

    def enlist_for_offsets(self, now_ms: int, request: EnlistRequest) -> Result[OffsetsVerdict]:
        """Decide about a TxnOffsetCommit of any version. Store the offsets only after error 0 without ``drop``."""
        current = self._store.get(request.transactional_id)
        return decide_enlist.enlist_for_offsets(now_ms, self._config, current, request)

    def adopt(self, now_ms: int, transactional_id: str, partition: tuple[str, int]) -> Result[None]:
        """Enlist a partition with an open transaction from before a power loss. No effect while markers are missing."""
        current = self._store.get(transactional_id)
        if current is None or current.state in PREPARED or current.is_kept:
            return Result(None)
        return decide_enlist.adopt(now_ms, current, TopicPartition(*partition))

    def end_txn(self, now_ms: int, request: EndRequest) -> Result[EndReply]:
        """Handle EndTxn. The reply's pair (v5+) is for the next transaction."""
        current = self._store.get(request.transactional_id)
        return decide_end.end_txn(now_ms, self._config, current, request, self._allocate)

    # Records

    def context(self, transactional_id: str) -> IdContext:
        """Return the key and the partition of an id's records. The transaction log must exist."""
        return self._store.context(transactional_id)

    # Views

    def describe(self, transactional_id: str, prepared: ProducerPair = NO_PAIR) -> DescribedTransaction:
        """Describe the id, and the end of its transaction with the pair `prepared`."""
        return views.describe(transactional_id, self._store.get(transactional_id), prepared)

    def list_transactions(
        self,
        now_ms: int,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
    ) -> ListReply:
        return views.list_transactions(
            now_ms,
            self._store.summaries(),
            states=states,
            producer_ids=producer_ids,
            duration_ms=duration_ms,
            pattern=pattern,
        )

    def owned_producer_ids(self) -> Iterable[int]:
        """Yield the producer ids of existing transactional ids. Their state in the partitions must not expire."""
        for _, _, producer_id, next_producer_id, _ in self._store.summaries():
            yield producer_id
            if next_producer_id != NO_PRODUCER_ID:
                yield next_producer_id

    def owners(self) -> dict[int, str]:
        """Return all transactional ids by producer id. Visits every id."""
        found = {}
        for name, _, producer_id, next_producer_id, _ in self._store.summaries():
            found[next_producer_id] = found[producer_id] = name
        found.pop(NO_PRODUCER_ID, None)
        return found

    # Markers

    def marker_work(self, transactional_id: str | None = None) -> list[MarkerWrite]:
        """Return the missing markers of one id, or of all (at start). They are returned until acknowledged."""
        return list(self._store.outstanding.writes(transactional_id, self._config.coordinator_epoch))

    def marker_written(self, now_ms: int, write: MarkerWrite) -> Result[None]:
        """Acknowledge a marker, or a partition that was deleted. The last marker's result has the completion record."""
        finished = self._store.outstanding.acknowledge(write)
        if finished is None:
            return Result(None)
        return Result(None, (decide_end.completed(now_ms, finished),))

    # Time

    def next_deadline_ms(self) -> int | None:
        """Return a time no later than the next work of `on_time`."""
        return self._store.next_ms()

    def on_time(
        self, now_ms: int, limit: int = _MOST_PER_LOOK, *, failed: Callable[[str, Exception], None] | None = None
    ) -> Iterator[Result[None]]:
        """Yield due timeouts and expiries, at most ``limit``, one result per id.

        ``failed`` is called for an id whose decision raises; the others are decided regardless. Each id is checked when
        its turn comes, because carrying out the previous result may have changed it: opening a log to fence it can
        enlist a transaction left open by a power loss.
        """
        for taken in self._store.take_due(now_ms, limit):
            current = self._store.get(taken.transactional_id)
            if current is None:
                continue
            try:
                result = self._due(now_ms, current)
            except Exception as error:
                if failed is None:
                    raise
                failed(current.transactional_id, error)
                continue
            if result is None:
                self._store.reset_deadline(current)
            else:
                yield result

    def _due(self, now_ms: int, current: Transaction) -> Result[None] | None:
        if current.state in PREPARED:
            return None if current.partitions else Result(None, (decide_end.completed(now_ms, current),))
        due_ms = self._store.due_ms(current)
        if due_ms is None or due_ms > now_ms:
            return None
        if current.deadline_ms is not None:
            return decide_end.time_out(now_ms, current, self._allocate)
        return decide_end.expired(current)

    # State

    def replay(self, record: TransactionRecord) -> Transaction | None:
        """Apply a record. Return the state before it. Raises `IllegalTransition`."""
        before = self._store.replay(record)
        refused = self._refusals.get(record.transactional_id)
        if refused is not None and not self._still_timed_out(record.transaction, refused[0]):
            del self._refusals[record.transactional_id]
        return before

    def snapshot(self, shard: int) -> IdsSnapshot:
        """Return the states of all ids of one partition of the transaction log."""
        idle, awake = self._store.of_shard(shard)
        records = [TransactionRecord(each.transactional_id, each) for each in awake]
        return IdsSnapshot(self.highest_producer_id, idle, [(each.key(), each.value() or b"") for each in records])

    def load(self, shard: int, snapshot: IdsSnapshot) -> None:
        """Load a snapshot, before any replay. After an error of `TransactionRecord.from_bytes` nothing has changed."""
        records = [TransactionRecord.from_bytes(key, value) for key, value in snapshot.awake]
        self._store.load_packed(shard, snapshot.idle)
        for record in records:
            self._store.replay(record)
        self.used(snapshot.highest_producer_id)

    def used(self, producer_id: int) -> None:
        """Note that the log has used this producer id."""
        self._store.highest_producer_id = max(self._store.highest_producer_id, producer_id)

    def loaded(self, now_ms: int) -> None:
        """Finish loading, after all records were replayed."""
        self._store.loaded(now_ms)

    def names(self) -> list[str]:
        """Return all transactional ids."""
        return [name for name, *_ in self._store.summaries()]

    def set_aside(self, transactional_id: str) -> Transaction | None:
        """Remove the id without a record, because loading found that its state cannot be trusted."""
        self._refusals.pop(transactional_id, None)
        return self._store.set_aside(transactional_id)

    @staticmethod
    def _still_timed_out(transaction: Transaction | None, pair: ProducerPair) -> bool:
        return transaction is not None and transaction.timed_out(pair)

    def _refusals_of(self, transactional_id: str, pair: ProducerPair) -> int:
        refused_pair, count = self._refusals.get(transactional_id, (pair, 0))
        return count if refused_pair == pair else 0
