"""Transactions that hold back read_committed readers, and hanging transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from fencepost.client.admin.hanging import HangingTransaction, hanging_of, may_be_committed
from fencepost.client.admin.transactions import ProducerDescription, TransactionDescription
from fencepost.client.diagnosis.facts import Facts, UnansweredQuestion
from fencepost.client.diagnosis.visibility import TRANSACTIONAL_IDS
from fencepost.client.prepared import PreparedTransaction
from fencepost.client.types import TopicPartition
from fencepost.counted import some_of
from fencepost.protocol.transactions import NO_TIMEOUT_MS

__all__ = [
    "OPEN_STATES",
    "Cause",
    "HeldBack",
    "held_back",
    "is_open",
    "is_two_phase",
    "note_of",
    "partition_name",
    "partition_words",
    "undecided_of",
]

OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


class Cause(Enum):
    """Reason why the last stable offset of a partition is before its end."""

    TRANSACTION = "transaction"  # its coordinator will end it
    HANGING = "hanging"
    MAY_BE_PREPARED = "may be prepared"  # it may belong to an undecided two-phase transaction
    ENDED = "ended"  # it ended between two requests
    UNKNOWN = "unknown"


class HeldBack(NamedTuple):
    """A partition whose read_committed readers stop before its end, and the first open transaction there.

    `reason` is set for Cause.UNKNOWN.
    """

    partition: TopicPartition
    stable: int
    end: int
    cause: Cause
    producer: ProducerDescription | None = None
    transaction: TransactionDescription | None = None
    reason: str = ""

    @property
    def behind(self) -> int:
        """Number of offsets that readers cannot see."""
        return self.end - self.stable

    @property
    def may_be_committed(self) -> bool:
        """True if it hangs, and its coordinator may have committed it."""
        producer = self.producer
        return self.cause is Cause.HANGING and producer is not None and may_be_committed(producer, self.transaction)

    @property
    def transactional_id(self) -> str | None:
        """Transactional id of the holder, if known."""
        return None if self.transaction is None else self.transaction.transactional_id

    @property
    def words(self) -> str:
        """The holder, as text."""
        producer = self.producer
        pair = "" if producer is None else f"{producer.producer_id}:{producer.producer_epoch}"
        named = "" if self.transactional_id is None else f" of {self.transactional_id!r}"
        match self.cause:
            case Cause.ENDED:
                return "a transaction that has ended meanwhile"
            case Cause.UNKNOWN:
                return f"an open transaction; which one is not known: {self.reason}"
            case Cause.HANGING if self.transaction is None:
                return (
                    f"a transaction of producer {pair}, which no coordinator names: it hangs, or this principal may "
                    "not DESCRIBE its transactional id"
                )
            case Cause.HANGING if self.may_be_committed:
                return (
                    f"a hanging transaction{named} (producer {pair}), which its coordinator may have committed without "
                    "a marker here"
                )
            case Cause.HANGING:
                return f"a hanging transaction{named} (producer {pair}), which no coordinator will end"
            case Cause.MAY_BE_PREPARED:
                return f"a transaction of producer {pair}, which may belong to the prepared transaction{named}"
            case _:
                return f"transaction {self.transactional_id!r} (producer {pair})"


def is_open(transaction: TransactionDescription) -> bool:
    """Return true if the transaction can still be committed or aborted."""
    return transaction.error_code == 0 and transaction.state == "Ongoing"


def is_two_phase(transaction: TransactionDescription) -> bool:
    """Return true if the transaction has no timeout: it is prepared or may be prepared, and waits for a decision."""
    return is_open(transaction) and transaction.timeout_ms == NO_TIMEOUT_MS


def note_of(transaction: TransactionDescription) -> PreparedTransaction | None:
    """Return the name of a prepared transaction, or None.

    A transaction with a timeout is only open, unless a producer has kept it. Then another pair ends it than that of its
    records.
    """
    pair = transaction.prepared
    ends_with = PreparedTransaction(transaction.producer_id, transaction.producer_epoch)
    return pair if is_two_phase(transaction) or pair != ends_with else None


def partition_name(partition: TopicPartition) -> str:
    """Return the name "topic-partition"."""
    return f"{partition.topic}-{partition.partition}"


def partition_words(partitions: Iterable[TopicPartition], most: int) -> str:
    """Return the names of at most `most` partitions, and the number of the others."""
    return some_of(list(map(partition_name, partitions)), most)


def _by_producer(transactions: Iterable[TransactionDescription]) -> dict[int, TransactionDescription]:
    known = [each for each in transactions if each.error_code == 0]
    prepared = {each.prepared.producer_id: each for each in known if each.prepared is not None}
    return {**prepared, **{each.producer_id: each for each in known}}


def undecided_of(
    hanging_transactions: Iterable[HangingTransaction],
    producers: Mapping[TopicPartition, Iterable[ProducerDescription]],
    transactions: Iterable[TransactionDescription],
) -> dict[HangingTransaction, str]:
    """Return the transactions that may belong to an undecided two-phase transaction, with its transactional id.

    A kept transaction may be ended with another producer id than its records have. Therefore a two-phase transaction
    also counts if it names the partition and its own producer id has nothing open there.
    """
    two_phase = [each for each in transactions if is_two_phase(each)]
    open_ids = {
        partition: {each.producer_id for each in seen if each.transaction_start_offset >= 0}
        for partition, seen in producers.items()
    }
    return {
        hanging: each.transactional_id
        for hanging in hanging_transactions
        for each in two_phase
        if each.producer_id == hanging.producer.producer_id
        or (hanging.partition in each.partitions and each.producer_id not in open_ids.get(hanging.partition, ()))
    }


def held_back(facts: Facts) -> dict[TopicPartition, HeldBack]:
    """Return the partitions whose last stable offset is before their end, each with the cause."""
    known = _by_producer(facts.described.values())
    return {
        partition: _held(facts, known, partition) for partition, at in sorted(facts.ends.items()) if at.stable < at.end
    }


def _held(facts: Facts, known: Mapping[int, TransactionDescription], partition: TopicPartition) -> HeldBack:
    at = facts.ends[partition]
    answer = facts.producers.get(partition, UnansweredQuestion("producers", "its producers were not asked for"))
    if isinstance(answer, UnansweredQuestion):
        return HeldBack(partition, at.stable, at.end, Cause.UNKNOWN, reason=answer.reason)
    first = min(
        (each for each in answer if each.transaction_start_offset >= 0),
        key=lambda each: each.transaction_start_offset,
        default=None,
    )
    if first is None:
        return HeldBack(partition, at.stable, at.end, Cause.ENDED)
    transaction = known.get(first.producer_id)
    hangs = hanging_of({partition: [first]}, [] if transaction is None else [transaction], first.last_timestamp_ms)
    if not hangs:
        return HeldBack(partition, at.stable, at.end, Cause.TRANSACTION, first, transaction)
    missing = next((each for each in facts.unknown if each.part == "transactions"), None)
    if missing is not None and transaction is None:
        return HeldBack(partition, at.stable, at.end, Cause.UNKNOWN, first, reason=missing.reason)
    if transaction is None and TRANSACTIONAL_IDS in facts.hidden:
        reason = f"its id is hidden from this principal, or it hangs; DESCRIBE on all {TRANSACTIONAL_IDS} tells which"
        return HeldBack(partition, at.stable, at.end, Cause.UNKNOWN, first, reason=reason)
    undecided = undecided_of(hangs, {partition: answer}, facts.described.values())
    if undecided:
        owner = facts.described[next(iter(undecided.values()))]
        return HeldBack(partition, at.stable, at.end, Cause.MAY_BE_PREPARED, first, owner)
    return HeldBack(partition, at.stable, at.end, Cause.HANGING, first, transaction)
