"""Rules for idempotent producers of one partition: a batch is new, a duplicate or refused.

Pure functions over a small state per producer id (KIP-98, KIP-360, KIP-890, and R2 of docs/observed.md: "out of order"
always means loss):

* one of the last five batches again: success, with its original offset;
* wholly at or below the last sequence of the same epoch, within the sequences that this broker saw:
  DUPLICATE_SEQUENCE_NUMBER (46), which every client takes as success. For sequences that were never appended this
  would be silent loss, hence the limit `seen`;
* a gap or a partial overlap: OUT_OF_ORDER_SEQUENCE_NUMBER (45);
* no state at all and a sequence that is not 0: UNKNOWN_PRODUCER_ID (59). Never while there is state: a client that
  then restarts at 0 in the same epoch would be answered with an old offset, and its records would be lost. Nor for a
  producer that wrote to a deleted topic of the same name (`is_earlier`): DeleteTopics removed its records on purpose.

Apache Kafka 4.3.1 accepts any sequence from an unknown producer, but not if the Produce request enlists the partition,
and answers 45 to an old duplicate; `kafka_rules=True` does the same. Sequences are 0 ... 2**31-1 and wrap to 0.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.transactions import FIRST_ENLISTING_PRODUCE

__all__ = [
    "LAST_BATCHES",
    "NEWEST_PRODUCE",
    "BatchFacts",
    "LastBatch",
    "ProducerRefusal",
    "ProducerState",
    "RepeatedBatch",
    "apply_batch",
    "apply_marker",
    "check_batch",
    "check_marker",
    "ended_of",
    "has_ended",
    "pack_ended",
    "shrink",
    "unpack_ended",
]

LAST_BATCHES: Final = 5
NEWEST_PRODUCE: Final = 13
_LAST_LENIENT: Final = 7  # clients of this Produce version and older cannot handle 59
_SEQUENCES: Final = 2**31
_SEEN_MAX: Final = 2**30  # a larger distance cannot be distinguished from a wrapped sequence

_ENDED: Final = struct.Struct(">hiq")
_new = tuple.__new__

TRUE_LOG_START: Final = 0
NO_LOG_START: Final = -1
LOST_LOG_START: Final = -2


class LastBatch(NamedTuple):
    """A remembered batch. Sequences are -1 for offsets committed in a transaction, which carry none."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class BatchFacts(NamedTuple):
    """Facts about a batch that the rules need."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    transactional: bool


class RepeatedBatch(NamedTuple):
    """The batch is a duplicate: repeat the first answer."""

    batch: LastBatch


class ProducerRefusal(NamedTuple):
    """A refusal. `log_start`: log start offset for the answer; TRUE_LOG_START stands for the true one."""

    code: ErrorCode
    log_start: int
    message: str


class ProducerState:
    """Producer state of one producer id in a partition. Only `apply_batch`, `apply_marker` and `shrink` change it."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_offset",
        "last_offset_delta",
        "last_sequence",
        "last_timestamp_ms",
        "producer_id",
        "seen",
        "shrunk",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int = -1) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1  # of the last marker; -1 before the first one
        self.last_timestamp_ms = -1
        self.txn_first_offset = -1  # of the open transaction; -1 if there is none
        self.last_sequence = -1  # in this epoch; -1 before its first batch
        self.last_offset = -1
        self.last_offset_delta = 0
        self.seen = 0  # number of sequences up to last_sequence that this broker saw in this epoch
        self.batches: list[LastBatch] = []  # the last five, oldest first
        self.shrunk = False  # expired: only (producer id, epoch, last sequence) remains

    def copy(self) -> ProducerState:
        """Return an equal state that can be changed independently."""
        copied = ProducerState(self.producer_id, self.epoch)
        copied.coordinator_epoch = self.coordinator_epoch
        copied.last_timestamp_ms = self.last_timestamp_ms
        copied.txn_first_offset = self.txn_first_offset
        copied.last_sequence = self.last_sequence
        copied.last_offset, copied.last_offset_delta = self.last_offset, self.last_offset_delta
        copied.seen = self.seen
        copied.batches = self.batches.copy()
        copied.shrunk = self.shrunk
        return copied

    def facts(self) -> tuple[object, ...]:
        """Return the complete state as a comparable value."""
        return tuple(getattr(self, name) if name != "batches" else tuple(self.batches) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerState) and self.facts() == other.facts()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"ProducerState({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


def check_batch(
    state: ProducerState | None,
    batch: BatchFacts,
    *,
    fenced_below: int = -1,
    produce_version: int = NEWEST_PRODUCE,
    kafka_rules: bool = False,
    is_earlier: bool = False,
    awaited: tuple[int, int] | None = None,
) -> RepeatedBatch | ProducerRefusal | None:
    """Check a client's batch against the producer's state.

    Args:
        state: The state of the producer id; None if it has none.
        batch: The batch.
        fenced_below: Batches with a smaller epoch are refused, because their transaction has ended.
        produce_version: Version of the Produce request. Up to v7, any sequence of an unknown id is accepted.
        kafka_rules: Apply the rules of Apache Kafka 4.3.1 (see the module's docstring).
        is_earlier: The producer id was allocated before this topic replaced a deleted one of the same name.
        awaited: The (epoch, sequence) of the producer's first batch that was refused while there was no topic.

    Returns:
        None to append the batch; a RepeatedBatch for a duplicate; a ProducerRefusal.
    """
    epoch = batch.epoch
    if epoch < fenced_below:
        return _refuse(batch, ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {epoch} is fenced below {fenced_below}")
    if state is None:
        if epoch < 0:
            return _refuse(batch, ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {epoch}")
        if is_earlier and not kafka_rules and awaited is not None and _is_ahead(batch, awaited):
            return _refuse(
                batch,
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {batch.first_sequence} before {awaited[1]}, which found no topic and is sent again",
            )
        return _check_unknown(batch, produce_version, kafka_rules, is_earlier)
    if epoch == state.epoch:
        if batch.first_sequence != (state.last_sequence + 1) % _SEQUENCES:  # -1 + 1 is 0, as is the wrap
            return _repeat(state, batch) or _check_gap(state, batch, kafka_rules)
    elif epoch < state.epoch:
        return _refuse(batch, ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {epoch} is older than {state.epoch}")
    elif batch.first_sequence != 0:
        return _refuse(
            batch,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"sequence {batch.first_sequence} in new epoch {epoch} (was {state.epoch}); it must start at 0",
        )
    if state.txn_first_offset >= 0 and not batch.transactional:
        return _refuse(
            batch,
            ErrorCode.INVALID_TXN_STATE,
            f"not transactional, but producer id {batch.producer_id} has a transaction open "
            f"since offset {state.txn_first_offset}",
        )
    return None


def _is_ahead(batch: BatchFacts, awaited: tuple[int, int]) -> bool:
    """Return true if another batch of the same epoch must come first."""
    epoch, sequence = awaited
    distance = (batch.first_sequence - sequence) % _SEQUENCES
    return batch.epoch == epoch and batch.first_sequence != 0 and 0 < distance < _SEEN_MAX


def _check_unknown(
    batch: BatchFacts, produce_version: int, kafka_rules: bool, is_earlier: bool
) -> ProducerRefusal | None:
    """Check a batch of a producer without state."""
    enlists = batch.transactional and produce_version >= FIRST_ENLISTING_PRODUCE
    takes_any = (kafka_rules or is_earlier) and not enlists
    if batch.first_sequence == 0 or produce_version <= _LAST_LENIENT or takes_any:
        return None
    if kafka_rules:
        message = f"sequence {batch.first_sequence} begins a transaction; it must be 0"
        return ProducerRefusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, TRUE_LOG_START, message)
    cause = "; the topic was deleted and created again" if is_earlier else ""
    return ProducerRefusal(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        LOST_LOG_START if batch.transactional else TRUE_LOG_START,
        f"no state of producer id {batch.producer_id} here, and its sequence is {batch.first_sequence}, not 0{cause}",
    )


def _repeat(state: ProducerState, batch: BatchFacts) -> RepeatedBatch | None:
    """Return the remembered batch with the same sequences, if any."""
    for remembered in state.batches:
        if remembered.first_sequence == batch.first_sequence and remembered.last_sequence == batch.last_sequence:
            return RepeatedBatch(remembered)
    return None


def _check_gap(state: ProducerState, batch: BatchFacts, kafka_rules: bool) -> ProducerRefusal:
    """Return the refusal of a batch of the present epoch that neither follows the last one nor is a remembered one."""
    last = state.last_sequence
    if last >= 0 and not kafka_rules:
        behind_first = (last - batch.first_sequence) % _SEQUENCES
        behind_last = (last - batch.last_sequence) % _SEQUENCES
        if behind_last <= behind_first < state.seen:
            return _refuse(
                batch,
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"sequences {batch.first_sequence}..{batch.last_sequence} were appended before (last is {last})",
            )
    return _refuse(
        batch,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {batch.first_sequence}..{batch.last_sequence} after {last} of producer id {batch.producer_id}",
    )


def _refuse(batch: BatchFacts, code: ErrorCode, message: str) -> ProducerRefusal:
    return ProducerRefusal(code, NO_LOG_START if batch.transactional else TRUE_LOG_START, message)


def apply_batch(
    state: ProducerState, batch: BatchFacts, *, base_offset: int, last_offset: int, timestamp_ms: int
) -> bool:
    """Update the state for an appended batch, also at replay. Return true if the batch opened a transaction."""
    if batch.epoch != state.epoch:
        state.epoch = batch.epoch
        _forget_sequences(state)
    state.shrunk = False
    if batch.first_sequence >= 0:
        count = (batch.last_sequence - batch.first_sequence) % _SEQUENCES + 1
        follows = state.last_sequence >= 0 and batch.first_sequence == (state.last_sequence + 1) % _SEQUENCES
        state.seen = min(state.seen + count, _SEEN_MAX) if follows else count
        state.last_sequence = batch.last_sequence
        remembered = (batch.first_sequence, batch.last_sequence, base_offset, last_offset, timestamp_ms)
        state.batches.append(_new(LastBatch, remembered))
        if len(state.batches) > LAST_BATCHES:
            del state.batches[0]
    state.last_offset = last_offset
    state.last_offset_delta = last_offset - base_offset
    state.last_timestamp_ms = timestamp_ms
    if batch.transactional and state.txn_first_offset < 0:
        state.txn_first_offset = base_offset
        return True
    return False


def check_marker(
    state: ProducerState | None, *, epoch: int, coordinator_epoch: int, transaction_version: int
) -> ProducerRefusal | None:
    """Check a commit or abort marker. Returns None to append it.

    As in Kafka, a marker for an unknown id or without an open transaction is appended. From transaction version 2 on, a
    marker carries the bumped epoch (KIP-890). A marker with the epoch of an open transaction belongs to an earlier
    transaction and must not end this one (47).
    """
    if epoch < 0:
        return ProducerRefusal(ErrorCode.INVALID_PRODUCER_EPOCH, NO_LOG_START, f"marker with epoch {epoch}")
    if state is None:
        return None
    if epoch < state.epoch or (transaction_version >= 2 and epoch == state.epoch and state.txn_first_offset >= 0):
        return ProducerRefusal(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            NO_LOG_START,
            f"marker with epoch {epoch}, the producer is at {state.epoch}",
        )
    if coordinator_epoch < state.coordinator_epoch:
        return ProducerRefusal(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            NO_LOG_START,
            f"coordinator epoch {coordinator_epoch}, {state.coordinator_epoch} was seen",
        )
    return None


def apply_marker(state: ProducerState, *, epoch: int, coordinator_epoch: int, timestamp_ms: int) -> int:
    """Update the state for an appended marker.

    Return the first offset of the ended transaction, -1 if none was open.
    """
    if epoch != state.epoch:
        state.epoch = epoch
        _forget_sequences(state)
    first_offset, state.txn_first_offset = state.txn_first_offset, -1
    state.coordinator_epoch = coordinator_epoch
    state.last_timestamp_ms = timestamp_ms
    state.shrunk = False
    return first_offset


def shrink(state: ProducerState) -> None:
    """Expire the state: keep (producer id, epoch, last sequence), so that only the next batch is still accepted.

    Raises ValueError if a transaction is open.
    """
    if state.txn_first_offset >= 0:
        raise ValueError(f"producer id {state.producer_id} has an open transaction")
    state.batches = []
    state.shrunk = True


def has_ended(state: ProducerState) -> bool:
    """Return true if only an epoch remains, because the last transaction has ended and its sequences were dropped.

    This happens with transaction version 2. There is one such state for every transactional id that ever wrote here.
    """
    return state.txn_first_offset == state.last_offset == state.last_sequence == -1 and not (state.seen or state.shrunk)


def pack_ended(epoch: int, coordinator_epoch: int, timestamp_ms: int) -> bytes:
    """Pack an ended state, see `has_ended`. The producer id is stored beside it."""
    return _ENDED.pack(epoch, coordinator_epoch, timestamp_ms)


def unpack_ended(packed: bytes) -> tuple[int, int, int]:
    """Return epoch, coordinator epoch, and time of the last marker in ms."""
    epoch, coordinator_epoch, timestamp_ms = _ENDED.unpack(packed)
    return epoch, coordinator_epoch, timestamp_ms


def ended_of(producer_id: int, packed: bytes) -> ProducerState:
    """Unpack an ended state of a producer id."""
    state = ProducerState(producer_id)
    state.epoch, state.coordinator_epoch, state.last_timestamp_ms = unpack_ended(packed)
    return state


def _forget_sequences(state: ProducerState) -> None:
    state.batches = []
    state.last_sequence = -1
    state.last_offset = -1
    state.last_offset_delta = 0
    state.seen = 0
