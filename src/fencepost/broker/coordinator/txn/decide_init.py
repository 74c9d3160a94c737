"""InitProducerId: the permission to take an id, the pair handed out, and the end of an open transaction.

Sources, in docs/observed.md: K10 to K18 (Kafka's answers), R1 (a timed-out producer gets its bumped epoch, repeatably),
R4 (KIP-939's keep; a stale pair is refused before any change, where Kafka aborts first).

KeepPreparedTxn has two uses:

* *A resolver after a crash* keeps without a pair. It gets the client pair, which EndTxn must carry, and as
  ``ongoing_*`` the pair of the transaction, to compare with the one that the application stored at its prepare.
* *The writer, as its prepare step* (keep and Enable2Pc, with its own pair): its ordinary transaction becomes a
  two-phase one and is frozen, because the pair of its records is fenced. Only the latest pair handed out can end the
  transaction: every further keep hands out another one and fences the resolver before it. EndTxn with the pair of the
  records is refused while the transaction is open. A decider that stored that pair gets the other one from
  DescribeTransactions.
"""

from __future__ import annotations

from fencepost.broker.coordinator.txn import ending, endings
from fencepost.broker.coordinator.txn.ending import AllocateProducerId
from fencepost.broker.coordinator.txn.generations import fenced_code
from fencepost.broker.coordinator.txn.model import (
    NO_EPOCH,
    NO_PAIR,
    NO_PRODUCER_ID,
    BumpCause,
    InitReply,
    PartitionFence,
    ProducerPair,
    Result,
    Transaction,
    TransactionConfig,
    TransactionRecord,
)
from fencepost.broker.coordinator.txn.states import PREPARED, TxnState
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.transactions import NO_TIMEOUT_MS
from fencepost.values import Value, replace

FIRST_WITH_PRODUCER_FENCED = 4


class InitRequest(Value):
    """An InitProducerId. ``producer`` is `NO_PAIR` if absent. ``may_two_phase``: the caller's ACLs allow two phases."""

    transactional_id: str | None
    timeout_ms: int
    producer: ProducerPair
    api_version: int
    enable_two_phase: bool = False
    keep_prepared: bool = False
    may_two_phase: bool = True


def init_producer_id(
    now_ms: int,
    config: TransactionConfig,
    current: Transaction | None,
    request: InitRequest,
    allocate: AllocateProducerId,
) -> Result[InitReply]:
    """Decide InitProducerId.

    Checks are in the observed order: null id, empty id, two-phase right (53), timeout (50), state.
    """
    if request.transactional_id is None:
        return Result(InitReply(ErrorCode.NONE, allocate(), 0))
    refusal = _refusal(config, request)
    if refusal is not None:
        return Result(InitReply(refusal))
    if current is None:
        return _create(now_ms, request.transactional_id, request, allocate)
    if current.state in PREPARED:
        # A stale producer is fenced at once. All others must retry after the markers were written.
        stale = request.producer != NO_PAIR and not _is_current_or_last(current, request.producer)
        return _refuse(request) if stale else Result(InitReply(ErrorCode.CONCURRENT_TRANSACTIONS))
    if current.state is TxnState.ONGOING:
        return _init_over_open(now_ms, config, current, request, allocate)
    return _init_idle(now_ms, current, request, allocate)


def _refusal(config: TransactionConfig, request: InitRequest) -> ErrorCode | None:
    half_a_pair = (request.producer.producer_id == NO_PRODUCER_ID) != (request.producer.epoch == NO_EPOCH)
    if request.transactional_id == "" or half_a_pair:
        return ErrorCode.INVALID_REQUEST
    if request.enable_two_phase:
        if not (config.transaction_two_phase_commit_enable and request.may_two_phase):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not 0 < request.timeout_ms <= config.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return None


def _refuse(request: InitRequest) -> Result[InitReply]:
    return Result(InitReply(fenced_code(request.api_version, FIRST_WITH_PRODUCER_FENCED)))


def _timeout_ms(request: InitRequest) -> int:
    """Return the timeout. A two-phase client's own timeout is neither used nor checked."""
    return NO_TIMEOUT_MS if request.enable_two_phase else request.timeout_ms


def _is_current_or_last(current: Transaction, pair: ProducerPair) -> bool:
    return pair in (current.client_pair, current.last_pair)


def _create(
    now_ms: int, transactional_id: str, request: InitRequest, allocate: AllocateProducerId
) -> Result[InitReply]:
    """Create the state of an unknown or expired id. Any pair of the client is ignored, and it gets a new one."""
    pair = ProducerPair(allocate(), 0)
    after = Transaction(
        transactional_id=transactional_id,
        state=TxnState.EMPTY,
        producer_id=pair.producer_id,
        producer_epoch=pair.epoch,
        timeout_ms=_timeout_ms(request),
        last_update_ms=now_ms,
        init_version=request.api_version,
        endings=endings.begin(pair),
    )
    return _granted(after)


def _init_idle(
    now_ms: int, current: Transaction, request: InitRequest, allocate: AllocateProducerId
) -> Result[InitReply]:
    """Decide without an open transaction: bump, or repeat a lost answer. KeepPreparedTxn has nothing to keep."""
    if request.producer != NO_PAIR and request.producer == current.last_pair:
        # The client repeats its own bump. A bump by a timeout belongs to the producer that timed out.
        return _granted(_emptied(now_ms, current, current.client_pair, request))
    if request.producer not in (NO_PAIR, current.client_pair):
        return _refuse(request)
    after = _emptied(now_ms, current, ending.bump(current.client_pair, allocate), request)
    owner = request.producer if request.producer != NO_PAIR else None
    after = ending.remember(after, owner, BumpCause.INITIALIZED)
    if owner is None:
        after = replace(after, add_partitions_version=-1)
    return _granted(after)


def _emptied(now_ms: int, current: Transaction, pair: ProducerPair, request: InitRequest) -> Transaction:
    return replace(
        current,
        state=TxnState.EMPTY,
        producer_id=pair.producer_id,
        producer_epoch=pair.epoch,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        timeout_ms=_timeout_ms(request),
        next_timeout_ms=-1,
        partitions=frozenset(),
        start_ms=-1,
        client_transaction_version=0,
        init_version=request.api_version,
        last_update_ms=now_ms,
    )


def _granted(after: Transaction) -> Result[InitReply]:
    pair = after.client_pair
    reply = InitReply(ErrorCode.NONE, pair.producer_id, pair.epoch)
    return Result(reply, (TransactionRecord(after.transactional_id, after),))


def _init_over_open(
    now_ms: int,
    config: TransactionConfig,
    current: Transaction,
    request: InitRequest,
    allocate: AllocateProducerId,
) -> Result[InitReply]:
    named = request.producer != NO_PAIR
    if request.keep_prepared:
        if named and current.is_kept and request.producer == current.last_pair:
            return _keep_result(_with_timeouts(config, current, request))
        if named and request.producer != current.client_pair:
            return _refuse(request)
        return _keep(now_ms, config, current, request, allocate)
    if named and request.producer != current.client_pair:
        return _refuse(request)
    cause = BumpCause.INITIALIZED if named else BumpCause.NONE
    after = ending.prepare(now_ms, current, commit=False, bumping=True, cause=cause, allocate=allocate)
    # Kafka does not wait for the markers but answers CONCURRENT_TRANSACTIONS, which every client retries.
    return Result(
        InitReply(ErrorCode.CONCURRENT_TRANSACTIONS),
        (TransactionRecord(after.transactional_id, after),),
        ending.fences(after),
    )


def _keep(
    now_ms: int,
    config: TransactionConfig,
    current: Transaction,
    request: InitRequest,
    allocate: AllocateProducerId,
) -> Result[InitReply]:
    following = ending.bump(current.client_pair, allocate)
    after = replace(
        current,
        next_producer_id=following.producer_id,
        next_producer_epoch=following.epoch,
        init_version=request.api_version,
        last_update_ms=now_ms,
    )
    owner = request.producer if request.producer != NO_PAIR else None
    return _keep_result(_with_timeouts(config, ending.remember(after, owner, BumpCause.INITIALIZED), request))


def _with_timeouts(config: TransactionConfig, after: Transaction, request: InitRequest) -> Transaction:
    """Set the timeouts.

    A keep can make the transaction a two-phase one, but cannot revert that.

    The timeout of a keep applies to the transactions after this one. With Enable2Pc these are two-phase ones as well,
    unless the request names a timeout that is valid for an ordinary one: Java's clients send the highest number.
    """
    is_usual = 0 < request.timeout_ms <= config.transaction_max_timeout_ms
    if request.enable_two_phase:
        following_ms = request.timeout_ms if is_usual else -1
        return replace(after, timeout_ms=NO_TIMEOUT_MS, next_timeout_ms=following_ms)
    if after.timeout_ms == request.timeout_ms:
        return replace(after, next_timeout_ms=-1)
    return replace(after, next_timeout_ms=request.timeout_ms)


def _keep_result(after: Transaction) -> Result[InitReply]:
    pair = after.client_pair
    reply = InitReply(ErrorCode.NONE, pair.producer_id, pair.epoch, after.producer_id, after.producer_epoch)
    # The fence is below the marker's epoch, so that the pair of the records cannot add to the prepared transaction.
    frozen = tuple(
        PartitionFence(partition, after.producer_id, after.producer_epoch + 1) for partition in sorted(after.partitions)
    )
    return Result(reply, (TransactionRecord(after.transactional_id, after),), frozen)
