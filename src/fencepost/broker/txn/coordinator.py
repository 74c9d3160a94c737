"""The transaction coordinator: one facade over the pure decisions and the one replayed state.

How the owner drives it, for a request and for a timeout alike:

1. ``result = coordinator.end_txn(...)`` decides and changes nothing.
2. Append ``result.records`` to ``__transaction_state`` and `replay` each at once; apply ``result.fence``.
3. When the log is durable up to there, send ``result.reply``. A reply without records must wait too, for whatever
   record of the id was appended before it: it may repeat what that record says.
4. `marker_work` names the markers owed. Write each (only after step 3's durability), then `marker_written`; the last
   one's result holds the completion record, to be treated as in step 2.

At start: `replay` every record, then `marker_work` and `on_time`. No method looks at all ids but `list_transactions`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fencepost.broker.txn import decide_end, decide_enlist, decide_init, views
from fencepost.broker.txn.decide_end import EndRequest
from fencepost.broker.txn.decide_init import InitRequest
from fencepost.broker.txn.ending import AllocateProducerId
from fencepost.broker.txn.model import (
    NO_EPOCH,
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
    TopicPartition,
    Transaction,
    TransactionConfig,
    TransactionRecord,
)
from fencepost.broker.txn.replay import TransactionStore
from fencepost.broker.txn.states import PREPARED
from fencepost.broker.txn.views import ListReply, TransactionDescription
from fencepost.protocol.codes import ErrorCode

_MOST_PER_LOOK = 1_000


class TransactionCoordinator:
    """See the module. ``allocate_producer_id`` must give ids above `highest_producer_id` and never one twice."""

    def __init__(self, config: TransactionConfig, allocate_producer_id: AllocateProducerId) -> None:
        self._config = config
        self._allocate = allocate_producer_id
        self._store = TransactionStore(config.transactional_id_expiration_ms)
        # Not part of the replayed state: how often an old epoch was answered 59. Lost with a restart, which only means
        # that a client which never bumps is told three times more.
        self._refusals: dict[str, tuple[ProducerPair, int]] = {}

    def __len__(self) -> int:
        return len(self._store)

    @property
    def config(self) -> TransactionConfig:
        return self._config

    @config.setter
    def config(self, config: TransactionConfig) -> None:
        """Takes effect from the next request on; an id's expiry time moves when it is touched or comes up."""
        self._config = config
        self._store.expiration_ms = config.transactional_id_expiration_ms

    @property
    def highest_producer_id(self) -> int:
        return self._store.highest_producer_id

    def transaction(self, transactional_id: str) -> Transaction | None:
        """The present state, for tests and tools."""
        return self._store.get(transactional_id)

    # Requests

    def init_producer_id(
        self,
        now_ms: int,
        transactional_id: str | None,
        *,
        timeout_ms: int,
        api_version: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_EPOCH,
        enable_two_phase: bool = False,
        keep_prepared: bool = False,
        may_two_phase: bool = True,
    ) -> Result[InitReply]:
        """InitProducerId (KIP-98, 360, 588, 939). 51 with a record: an open transaction is being aborted first."""
        producer = ProducerPair(producer_id, producer_epoch)
        request = InitRequest(
            transactional_id, timeout_ms, producer, api_version, enable_two_phase, keep_prepared, may_two_phase
        )
        current = None if transactional_id is None else self._store.get(transactional_id)
        return decide_init.init_producer_id(now_ms, self._config, current, request, self._allocate)

    def add_partitions(
        self,
        now_ms: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[tuple[str, int]],
        *,
        api_version: int,
        software_name: str = "",
    ) -> Result[ErrorReply]:
        """AddPartitionsToTxn. The caller has checked that the partitions exist (3, and 55 for the others) and ACLs."""
        pair = ProducerPair(producer_id, producer_epoch)
        result = decide_enlist.add(
            now_ms,
            self._config,
            self._store.get(transactional_id),
            transactional_id,
            pair,
            partitions,
            api_version=api_version,
            software_name=software_name,
            refusals=self._refusals_of(transactional_id, pair),
        )
        if result.reply.error_code == ErrorCode.UNKNOWN_PRODUCER_ID:
            self._refusals[transactional_id] = (pair, self._refusals_of(transactional_id, pair) + 1)
        return result

    def add_offsets(
        self,
        now_ms: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        offsets_partition: tuple[str, int],
        *,
        api_version: int,
        software_name: str = "",
    ) -> Result[ErrorReply]:
        """AddOffsetsToTxn; ``offsets_partition`` is the group's partition of ``__consumer_offsets``."""
        return self.add_partitions(
            now_ms,
            transactional_id,
            producer_id,
            producer_epoch,
            (offsets_partition,),
            api_version=api_version,
            software_name=software_name,
        )

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[tuple[str, int]],
        *,
        api_version: int = 4,
    ) -> Result[PartitionErrors]:
        """AddPartitionsToTxn v4+ with VerifyOnly."""
        pair = ProducerPair(producer_id, producer_epoch)
        return decide_enlist.verify(self._store.get(transactional_id), pair, partitions, api_version=api_version)

    def produce_verdict(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, produce_version: int
    ) -> ProduceVerdict:
        """Whether the pair may write into a transaction of the id (error 0), else Produce's (error, log start offset).

        For a batch that the log refused after it was enlisted: what the log says is right unless this says otherwise.
        """
        pair = ProducerPair(producer_id, producer_epoch)
        return decide_enlist.produce_verdict(self._store.get(transactional_id), pair, produce_version=produce_version)

    def enlist_for_produce(
        self,
        now_ms: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[tuple[str, int]],
        *,
        produce_version: int,
    ) -> Result[ProduceVerdict]:
        """To be asked for every transactional batch of every Produce version; append only after error 0."""
        return decide_enlist.enlist_for_produce(
            now_ms,
            self._config,
            self._store.get(transactional_id),
            ProducerPair(producer_id, producer_epoch),
            partitions,
            produce_version=produce_version,
        )

    def enlist_for_offsets(
        self,
        now_ms: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        offsets_partition: tuple[str, int],
        *,
        api_version: int,
    ) -> Result[OffsetsVerdict]:
        """To be asked for every TxnOffsetCommit of every version; store only after error 0 without ``drop``."""
        return decide_enlist.enlist_for_offsets(
            now_ms,
            self._config,
            self._store.get(transactional_id),
            ProducerPair(producer_id, producer_epoch),
            offsets_partition,
            api_version=api_version,
        )

    def adopt(self, now_ms: int, transactional_id: str, partition: tuple[str, int]) -> Result[None]:
        """Enlist what a power loss left open in a partition under the id's present pair; nothing while markers pend."""
        current = self._store.get(transactional_id)
        if current is None or current.state in PREPARED or current.is_kept:
            return Result(None)
        return decide_enlist.adopt(now_ms, current, TopicPartition(*partition))

    def end_txn(
        self,
        now_ms: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        *,
        api_version: int,
        software_name: str = "",
    ) -> Result[EndReply]:
        """EndTxn. The reply's pair (v5+) is the one for the next transaction."""
        pair = ProducerPair(producer_id, producer_epoch)
        request = EndRequest(transactional_id, pair, commit, api_version, software_name)
        return decide_end.end_txn(now_ms, self._config, self._store.get(transactional_id), request, self._allocate)

    # Views

    def describe(self, transactional_id: str) -> TransactionDescription:
        return views.describe(transactional_id, self._store.get(transactional_id))

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
            now_ms, self._store, states=states, producer_ids=producer_ids, duration_ms=duration_ms, pattern=pattern
        )

    def owned_producer_ids(self) -> Iterable[int]:
        """The producer ids of live transactional ids, whose state in the partitions must not expire."""
        for transaction in self._store:
            yield transaction.producer_id
            if transaction.next_producer_id != NO_PRODUCER_ID:
                yield transaction.next_producer_id

    # Markers

    def marker_work(self, transactional_id: str | None = None) -> list[MarkerWrite]:
        """The markers owed: of one id, or of all (at start). Asking again names them again until acknowledged."""
        return list(self._store.outstanding.writes(transactional_id, self._config.coordinator_epoch))

    def marker_written(self, now_ms: int, write: MarkerWrite) -> Result[None]:
        """Acknowledge a marker, or a partition that is gone. The last one's result holds the completion record."""
        finished = self._store.outstanding.acknowledge(write)
        if finished is None:
            return Result(None)
        return Result(None, (decide_end.completed(now_ms, finished),))

    # Time

    def next_deadline_ms(self) -> int | None:
        """No later than the next moment at which `on_time` has something to do."""
        return self._store.deadlines.next_ms()

    def on_time(self, now_ms: int, limit: int = _MOST_PER_LOOK) -> list[Result[None]]:
        """Timeouts and expiries that are due, at most ``limit``; each result is one id's."""
        results = []
        for transactional_id in self._store.deadlines.take_due(now_ms, limit):
            current = self._store.get(transactional_id)
            if current is None:
                continue
            result = self._due(now_ms, current)
            if result is None:
                self._store.deadlines.set(transactional_id, self._store.due_ms(current))
            else:
                results.append(result)
        return results

    def _due(self, now_ms: int, current: Transaction) -> Result[None] | None:
        if current.state in PREPARED:
            return None if current.partitions else Result(None, (decide_end.completed(now_ms, current),))
        deadline_ms = current.deadline_ms
        if deadline_ms is not None:
            return decide_end.time_out(now_ms, current, self._allocate) if deadline_ms <= now_ms else None
        return decide_end.expired(now_ms, self._config, current)

    # State

    def replay(self, record: TransactionRecord) -> None:
        """Make the record's state the present one. Raises `IllegalTransition`."""
        self._store.replay(record)
        refused = self._refusals.get(record.transactional_id)
        if refused is not None and not self._still_timed_out(record.transaction, refused[0]):
            del self._refusals[record.transactional_id]

    @staticmethod
    def _still_timed_out(transaction: Transaction | None, pair: ProducerPair) -> bool:
        return transaction is not None and transaction.timed_out(pair)

    def _refusals_of(self, transactional_id: str, pair: ProducerPair) -> int:
        refused_pair, count = self._refusals.get(transactional_id, (pair, 0))
        return count if refused_pair == pair else 0
