"""Requests that add to a transaction: AddPartitionsToTxn, AddOffsetsToTxn, transactional Produce, TxnOffsetCommit.

Sources, in docs/observed.md: K40 to K43 (a timed-out or fenced producer), K50 (which version enlists by itself, which
verifies) and K101 (51 while markers are being written); R1 for the timed-out one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from fencepost.broker.coordinator.txn import generations
from fencepost.broker.coordinator.txn.generations import FENCED, KAFKA_PYTHON, TIMED_OUT, fenced_code
from fencepost.broker.coordinator.txn.model import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    BumpCause,
    ErrorReply,
    OffsetsVerdict,
    PartitionErrors,
    ProducerPair,
    ProduceVerdict,
    Result,
    Transaction,
    TransactionConfig,
    TransactionRecord,
)
from fencepost.broker.coordinator.txn.states import IDLE, PREPARED, TxnState
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.transactions import FIRST_ENLISTING_PRODUCE
from fencepost.topic_partition import TopicPartition
from fencepost.values import replace

FIRST_ADD_WITH_PRODUCER_FENCED = 2
FIRST_ABORTABLE_PRODUCE = 11
FIRST_ABORTABLE_OFFSETS = 4

_STARTED: Final[dict[str, Any]] = {
    "state": TxnState.ONGOING,
    "client_transaction_version": 0,
    "previous_producer_id": NO_PRODUCER_ID,
    "last_producer_epoch": NO_EPOCH,
    "last_bump": BumpCause.NONE,
}
"""Changes of an id whose transaction opens."""
_MAY_WRITE = ProduceVerdict(ErrorCode.NONE)
_GO_ON = Result(_MAY_WRITE)
_COMMIT_OFFSETS = Result(OffsetsVerdict(ErrorCode.NONE))


class EnlistRequest(NamedTuple):
    """Partitions to add to a transaction: written ones, or a group's partition of ``__consumer_offsets``.

    ``api_version`` is that of the request.
    """

    transactional_id: str
    pair: ProducerPair
    partitions: Collection[tuple[str, int]]
    api_version: int
    software_name: str = ""


def add(
    now_ms: int, config: TransactionConfig, current: Transaction | None, request: EnlistRequest, *, refusals: int = 0
) -> Result[ErrorReply]:
    """Decide AddPartitionsToTxn and AddOffsetsToTxn. ``refusals``: number of times this pair was answered 59."""
    pair, api_version = request.pair, request.api_version
    if request.transactional_id == "":
        return Result(ErrorReply(ErrorCode.INVALID_REQUEST))
    if current is None or not current.knows_producer(pair.producer_id):
        return Result(ErrorReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    if pair != current.client_pair:
        code = fenced_code(api_version, FIRST_ADD_WITH_PRODUCER_FENCED)
        if current.timed_out(pair):
            answer = TIMED_OUT[generations.of_add(api_version, current.init_version)].add
            loops = request.software_name == KAFKA_PYTHON or refusals >= config.refusals_before_fencing
            code = code if answer == FENCED or loops else answer
        return Result(ErrorReply(code))
    if current.state in PREPARED:
        return Result(ErrorReply(ErrorCode.CONCURRENT_TRANSACTIONS))
    if current.is_kept:
        return Result(ErrorReply(ErrorCode.INVALID_TXN_STATE))
    records = _enlisted(now_ms, current, request.partitions, add_version=api_version)
    return Result(ErrorReply(ErrorCode.NONE), records)


def verify(current: Transaction | None, request: EnlistRequest) -> Result[PartitionErrors]:
    """Verify partitions for AddPartitionsToTxn v4+ with VerifyOnly: 0 for an enlisted partition, 120 for others."""
    requested = [TopicPartition(*partition) for partition in request.partitions]
    if current is None or not current.knows_producer(request.pair.producer_id):
        return Result(PartitionErrors(dict.fromkeys(requested, ErrorCode.INVALID_PRODUCER_ID_MAPPING)))
    if request.pair != current.client_pair:
        code = fenced_code(request.api_version, FIRST_ADD_WITH_PRODUCER_FENCED)
        return Result(PartitionErrors(dict.fromkeys(requested, code)))
    if current.state in PREPARED:
        return Result(PartitionErrors(dict.fromkeys(requested, ErrorCode.CONCURRENT_TRANSACTIONS)))
    enlisted = current.partitions if current.state is TxnState.ONGOING and not current.is_kept else frozenset()
    return Result(
        PartitionErrors(
            {each: ErrorCode.NONE if each in enlisted else ErrorCode.TRANSACTION_ABORTABLE for each in requested}
        )
    )


def produce_verdict(current: Transaction | None, pair: ProducerPair, *, produce_version: int) -> ProduceVerdict:
    """Return error 0 if the pair may write into a transaction of the id, or else Produce's answer."""
    if current is None or not current.knows_producer(pair.producer_id):
        return ProduceVerdict(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if pair == current.client_pair:
        return ProduceVerdict(ErrorCode.INVALID_TXN_STATE) if current.is_kept else _MAY_WRITE
    if current.timed_out(pair):
        generation = generations.of_produce(produce_version, current.init_version, current.add_partitions_version)
        answers = TIMED_OUT[generation]
        return ProduceVerdict(answers.produce, answers.produce_log_start_offset)
    return ProduceVerdict(ErrorCode.INVALID_PRODUCER_EPOCH)


def enlist_for_produce(
    now_ms: int,
    config: TransactionConfig,
    current: Transaction | None,
    request: EnlistRequest,
) -> Result[ProduceVerdict]:
    """Decide a transactional batch. Produce v12+ enlists its partitions; older versions must find them enlisted."""
    produce_version, partitions = request.api_version, request.partitions
    verdict = produce_verdict(current, request.pair, produce_version=produce_version)
    if verdict.error_code != ErrorCode.NONE or current is None:
        return Result(verdict)
    if current.state is TxnState.ONGOING and current.partitions.issuperset(partitions):
        return _GO_ON
    if produce_version >= FIRST_ENLISTING_PRODUCE:
        if current.state in PREPARED:
            return Result(ProduceVerdict(ErrorCode.CONCURRENT_TRANSACTIONS))
        if config.transaction_version < 1:
            return Result(ProduceVerdict(ErrorCode.UNSUPPORTED_VERSION))
        return Result(verdict, _enlisted(now_ms, current, partitions))
    if produce_version >= FIRST_ABORTABLE_PRODUCE:
        return Result(ProduceVerdict(ErrorCode.TRANSACTION_ABORTABLE))
    return Result(ProduceVerdict(ErrorCode.INVALID_TXN_STATE))


def enlist_for_offsets(
    now_ms: int,
    config: TransactionConfig,
    current: Transaction | None,
    request: EnlistRequest,
) -> Result[OffsetsVerdict]:
    """Decide TxnOffsetCommit. v5+ enlists the group's offsets partition; older versions need AddOffsetsToTxn first."""
    pair, api_version = request.pair, request.api_version
    if current is None or not current.knows_producer(pair.producer_id):
        return Result(OffsetsVerdict(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    if pair != current.client_pair:
        return Result(_offsets_of_another_epoch(current, pair, api_version))
    if current.state in PREPARED:
        return Result(OffsetsVerdict(ErrorCode.CONCURRENT_TRANSACTIONS))
    if current.is_kept:
        return Result(OffsetsVerdict(ErrorCode.INVALID_TXN_STATE))
    if current.state is TxnState.ONGOING and current.partitions.issuperset(request.partitions):
        return _COMMIT_OFFSETS
    if api_version >= generations.FIRST_IMPLICIT_OFFSETS:
        if config.transaction_version < 1:
            return Result(OffsetsVerdict(ErrorCode.UNSUPPORTED_VERSION))
        return Result(OffsetsVerdict(ErrorCode.NONE), _enlisted(now_ms, current, request.partitions))
    if api_version >= FIRST_ABORTABLE_OFFSETS:
        return Result(OffsetsVerdict(ErrorCode.TRANSACTION_ABORTABLE))
    return Result(OffsetsVerdict(ErrorCode.INVALID_TXN_STATE))


def adopt(now_ms: int, current: Transaction, partition: TopicPartition) -> Result[None]:
    """Enlist a partition whose batch survived a power loss that removed the enlisting record.

    The client received no answer, so it sends the batch again, and the log treats it as a duplicate. If the batch were
    aborted, that answer would be wrong. Enlisted again, the batch shares the outcome of its transaction, which is ended
    by its client, by the next owner of the id, or by its timeout.
    """
    return Result(None, _enlisted(now_ms, current, (partition,)))


def _offsets_of_another_epoch(current: Transaction, pair: ProducerPair, api_version: int) -> OffsetsVerdict:
    if not current.timed_out(pair):
        return OffsetsVerdict(ErrorCode.INVALID_PRODUCER_EPOCH)
    generation = generations.of_offsets(api_version, current.init_version, current.add_partitions_version)
    answer = TIMED_OUT[generation].offsets
    return OffsetsVerdict(answer, drop=answer == ErrorCode.NONE)


def _enlisted(
    now_ms: int, current: Transaction, partitions: Collection[tuple[str, int]], *, add_version: int = -1
) -> tuple[TransactionRecord, ...]:
    """Return the record that adds missing partitions, or none if all are enlisted.

    The first one opens the transaction. It proves that the client has its present pair, so earlier pairs need not be
    recognised any longer.
    """
    starting = current.state in IDLE
    already = frozenset[TopicPartition]() if starting else current.partitions
    wanted = already | {TopicPartition(*partition) for partition in partitions}
    if wanted == already:
        return ()
    changes: dict[str, Any] = {"partitions": wanted, "last_update_ms": now_ms}
    if starting or add_version >= 0:
        changes["add_partitions_version"] = add_version
    if starting:
        changes |= _STARTED
        changes["start_ms"] = now_ms
    return (TransactionRecord(current.transactional_id, replace(current, **changes)),)
