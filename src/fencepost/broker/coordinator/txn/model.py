"""Values of the transaction coordinator: an id's state, its log record, and requests' results.

All are immutable: a decision makes a new `Transaction` by `dataclasses.replace`, and replaying its record installs it.

A transactional id has up to three (producer id, epoch) pairs:

* the *transaction pair* (``producer_id``, ``producer_epoch``): its records and, bumped, its markers carry it;
* the *client pair*: the latest pair handed out. Requests must carry it. It is the transaction pair, unless a kept
  transaction (KIP-939) or an exhausted epoch gave out another one: then it is ``next_producer_*``;
* the *last pair* (``previous_producer_id``, ``last_producer_epoch``): the client pair before the latest bump, kept so
  that a client whose answer was lost can ask again. ``last_bump`` is the cause of the bump.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from fencepost.broker.coordinator.txn.states import PREPARED, TxnState
from fencepost.protocol.logs import transaction_log
from fencepost.protocol.logs.transaction_log import TransactionLogValue
from fencepost.protocol.transactions import LAST_EPOCH, NO_TIMEOUT_MS
from fencepost.topic_partition import TopicPartition
from fencepost.values import Value

_new = tuple.__new__

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
LAST_CLIENT_EPOCH: Final = LAST_EPOCH - 1


class ProducerPair(NamedTuple):
    producer_id: int
    epoch: int


NO_PAIR: Final = ProducerPair(NO_PRODUCER_ID, NO_EPOCH)


class BumpCause(IntEnum):
    """Cause of the change from the last pair to the present client pair. Stored in the log."""

    NONE = 0
    END_TXN = 1
    """The client ended its transaction (EndTxn v5+)."""
    TIMEOUT = 2
    """The coordinator aborted the transaction, and no client has taken the id since (KIP-588)."""
    INITIALIZED = 3
    """The client requested it with its own pair (KIP-360), or kept its transaction (KIP-939)."""


class Transaction(Value):
    """The state of one transactional id. Times in ms since the epoch, -1 = none."""

    transactional_id: str
    state: TxnState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    last_update_ms: int
    start_ms: int = -1
    partitions: frozenset[TopicPartition] = frozenset()
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    last_bump: BumpCause = BumpCause.NONE
    client_transaction_version: int = 0
    """2: this transaction was ended with an epoch bump (its markers carry a new epoch); 0: with the epoch kept."""
    init_version: int = -1
    """Version of the InitProducerId request that handed out the client pair."""
    add_partitions_version: int = -1
    """Version of the latest AddPartitionsToTxn or AddOffsetsToTxn request, -1 when there was none."""
    next_timeout_ms: int = -1
    """Timeout for the transactions after the kept one, -1 if it stays ``timeout_ms``."""
    endings: bytes = b""
    """Outcomes of this id's transactions (`endings.py`); empty if the record comes from a broker without it."""

    @property
    def transaction_pair(self) -> ProducerPair:
        return _new(ProducerPair, (self.producer_id, self.producer_epoch))

    @property
    def client_pair(self) -> ProducerPair:
        if self.next_producer_id != NO_PRODUCER_ID:
            return _new(ProducerPair, (self.next_producer_id, self.next_producer_epoch))
        return _new(ProducerPair, (self.producer_id, self.producer_epoch))

    @property
    def last_pair(self) -> ProducerPair:
        if self.last_producer_epoch == NO_EPOCH:
            return NO_PAIR
        return ProducerPair(self.previous_producer_id, self.last_producer_epoch)

    @property
    def is_kept(self) -> bool:
        """True for an open transaction that KeepPreparedTxn handed to a resolver: it can be ended, but not extended."""
        return self.state is TxnState.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def deadline_ms(self) -> int | None:
        """Time at which the open transaction times out; None if none is open or it has no timeout."""
        if self.state is not TxnState.ONGOING or self.is_two_phase:
            return None
        return self.start_ms + self.timeout_ms

    def knows_producer(self, producer_id: int) -> bool:
        return producer_id != NO_PRODUCER_ID and producer_id in (
            self.producer_id,
            self.next_producer_id,
            self.previous_producer_id,
        )

    def timed_out(self, pair: ProducerPair) -> bool:
        """Return true if this pair's transaction ended by timeout and no client has taken the id since."""
        return self.last_bump is BumpCause.TIMEOUT and self.last_pair == pair


class TransactionRecord(Value):
    """One record of ``__transaction_state``. ``transaction`` None is the tombstone of an expired id."""

    transactional_id: str
    transaction: Transaction | None

    def key(self) -> bytes:
        return transaction_log.encode_key(self.transactional_id)

    def value(self) -> bytes | None:
        return None if self.transaction is None else transaction_log.encode_value(to_log_value(self.transaction))

    @classmethod
    def from_bytes(cls, key: bytes | memoryview, value: bytes | memoryview | None) -> TransactionRecord:
        """Decode a record.

        Raises `CorruptTransactionRecord`, `UnknownTransactionRecord` of `protocol.logs.transaction_log`.
        """
        transactional_id = transaction_log.decode_key(key)
        if value is None:
            return cls(transactional_id, None)
        return cls(transactional_id, from_log_value(transactional_id, transaction_log.decode_value(value)))


class PartitionFence(NamedTuple):
    """A fence: the partition refuses batches of this producer id whose epoch is lower than ``epoch``."""

    partition: TopicPartition
    producer_id: int
    epoch: int


class MarkerWrite(NamedTuple):
    """A missing marker of a partition. Writing it twice is harmless."""

    transactional_id: str
    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int


Reply_co = TypeVar("Reply_co", covariant=True)


class Result(Value, Generic[Reply_co]):
    """A decision: append ``records`` in order, replay each, apply ``fence``, and once durable send ``reply``.

    It is not a ``GroupResult``: one function makes it whole, and it fences logs. A ``GroupResult`` is collected by many
    functions, and answers parked requests of other members.
    """

    reply: Reply_co
    records: tuple[TransactionRecord, ...] = ()
    fence: tuple[PartitionFence, ...] = ()


class ErrorReply(NamedTuple):
    error_code: int


class InitReply(NamedTuple):
    error_code: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    ongoing_producer_id: int = NO_PRODUCER_ID
    ongoing_producer_epoch: int = NO_EPOCH


class EndReply(NamedTuple):
    """Answer to EndTxn. The pair is for v5+, and -1/-1 with an error."""

    error_code: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class ProduceVerdict(NamedTuple):
    """Decision about a transactional Produce.

    With error 0 the batch is appended.

    ``log_start_offset`` is only for errors and never a real offset: franz-go would commit half a transaction as a
    success.
    """

    error_code: int
    log_start_offset: int = -1


class OffsetsVerdict(NamedTuple):
    """Decision about a TxnOffsetCommit.

    With error 0 and ``drop`` it succeeds without storing; EndTxn(commit) then fails.
    """

    error_code: int
    drop: bool = False


class PartitionErrors(NamedTuple):
    errors: dict[TopicPartition, int]


class TransactionConfig(Value):
    """Settings by Kafka's names in snake case. Times are in ms."""

    max_transactional_ids: int = 2**31 - 1
    """Limit of remembered ids. Not a setting of Kafka."""
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_two_phase_commit_enable: bool = False
    transaction_version: int = 2
    """The finalized feature level ``transaction.version``; 0 refuses the requests of the newer protocol."""
    coordinator_epoch: int = 0
    refusals_before_fencing: int = 3
    """Number of answers 59 to the old epoch of a timed-out transaction before it is fenced."""


def to_log_value(transaction: Transaction) -> TransactionLogValue:
    """Return the value as Kafka writes it: no partition list (null) for an Empty id."""
    partitions = None if transaction.state is TxnState.EMPTY else group_by_topic(transaction.partitions)
    return _new(
        TransactionLogValue,
        (  # in the order of its fields, because keywords take as long as all the rest
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.timeout_ms,
            int(transaction.state),
            partitions,
            transaction.last_update_ms,
            transaction.start_ms,
            transaction.previous_producer_id,
            transaction.next_producer_id,
            transaction.client_transaction_version,
            transaction.next_producer_epoch,
            transaction.last_producer_epoch,
            int(transaction.last_bump),
            transaction.init_version,
            transaction.add_partitions_version,
            transaction.next_timeout_ms,
            transaction.endings,
        ),
    )


def from_log_value(transactional_id: str, value: TransactionLogValue) -> Transaction:
    """Decode a value, also Kafka's: its exhausted-epoch PrepareX has a next producer id without an epoch (0)."""
    state, cause = _known_state(value)
    next_epoch = value.next_producer_epoch
    if state in PREPARED and value.next_producer_id != NO_PRODUCER_ID and next_epoch == NO_EPOCH:
        next_epoch = 0
    return Transaction(
        transactional_id=transactional_id,
        state=state,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        last_update_ms=value.last_update_timestamp_ms,
        start_ms=value.start_timestamp_ms,
        partitions=frozenset(
            TopicPartition(topic, partition)
            for topic, partitions in value.transaction_partitions or ()
            for partition in partitions
        ),
        next_producer_id=value.next_producer_id,
        next_producer_epoch=next_epoch,
        previous_producer_id=value.previous_producer_id,
        last_producer_epoch=value.last_producer_epoch,
        last_bump=cause,
        client_transaction_version=value.client_transaction_version,
        init_version=value.init_producer_id_version,
        add_partitions_version=value.add_partitions_version,
        next_timeout_ms=value.next_transaction_timeout_ms,
        endings=value.endings,
    )


def _known_state(value: TransactionLogValue) -> tuple[TxnState, BumpCause]:
    try:
        return TxnState(value.transaction_status), BumpCause(value.last_bump_cause)
    except ValueError as error:
        raise transaction_log.CorruptTransactionRecord(str(error)) from error


def group_by_topic(partitions: Collection[tuple[str, int]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Group partitions by topic in sorted order, so that equal states have equal bytes."""
    if not partitions:
        return ()
    if len(partitions) == 1:
        ((topic, partition),) = partitions
        return ((topic, (partition,)),)
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        by_topic[topic].append(partition)
    return tuple((topic, tuple(numbers)) for topic, numbers in by_topic.items())
