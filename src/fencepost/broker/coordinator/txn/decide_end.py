"""EndTxn, timeouts, the completion after the last marker, expiry of ids.

Sources, in docs/observed.md: K20 to K27 (EndTxn v3/v4 against v5 in every state), K42 (after a timeout) and K51 (abort
of an empty transaction); R1 for timed-out transactions, R4 for kept ones.

EndTxn v5+ names its transaction by (producer id, epoch), since each transaction has an epoch of its own. A repeated
EndTxn therefore gets the same answer until the client starts its next transaction, and a late EndTxn can never end a
later transaction. EndTxn v0-4 keeps the epoch, so a late one may do so, as with any Kafka.
"""

from __future__ import annotations

from fencepost.broker.coordinator.txn import ending, endings, generations
from fencepost.broker.coordinator.txn.ending import BUMPING, AllocateProducerId
from fencepost.broker.coordinator.txn.generations import FENCED, FIRST_BUMPING_END, KAFKA_PYTHON, TIMED_OUT, fenced_code
from fencepost.broker.coordinator.txn.model import (
    BumpCause,
    EndReply,
    PartitionFence,
    ProducerPair,
    Result,
    Transaction,
    TransactionConfig,
    TransactionRecord,
)
from fencepost.broker.coordinator.txn.states import IDLE, PREPARED, TxnState
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.endings import Ending
from fencepost.values import Value

FIRST_WITH_PRODUCER_FENCED = 2


class EndRequest(Value):
    transactional_id: str
    pair: ProducerPair
    commit: bool
    api_version: int
    software_name: str = ""

    @property
    def bumping(self) -> bool:
        return self.api_version >= FIRST_BUMPING_END


def end_txn(
    now_ms: int,
    config: TransactionConfig,
    current: Transaction | None,
    request: EndRequest,
    allocate: AllocateProducerId,
) -> Result[EndReply]:
    if request.transactional_id == "":
        return _error(ErrorCode.INVALID_REQUEST)
    if request.bumping and config.transaction_version < 1:
        # Kafka 4.3.1 accepts it on this level, and the id is then blocked forever. Refusing it changes no state.
        return _error(ErrorCode.UNSUPPORTED_VERSION)
    if current is None:
        return _error(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if not current.knows_producer(request.pair.producer_id):
        return _end_with_older_pair(current, request, _error(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    if request.pair == current.client_pair:
        return _end_with_client_pair(now_ms, current, request, allocate)
    if request.pair == current.last_pair:
        return _end_with_last_pair(current, request)
    return _end_with_older_pair(current, request, _fenced(request))


def _end_with_client_pair(
    now_ms: int, current: Transaction, request: EndRequest, allocate: AllocateProducerId
) -> Result[EndReply]:
    if current.state is TxnState.ONGOING:
        after = ending.prepare(
            now_ms, current, request.commit, bumping=request.bumping, cause=BumpCause.END_TXN, allocate=allocate
        )
        pair = after.client_pair
        reply = EndReply(ErrorCode.NONE, pair.producer_id, pair.epoch)
        return Result(reply, (TransactionRecord(after.transactional_id, after),), _fences(after))
    if current.state in PREPARED:
        return _error(ErrorCode.CONCURRENT_TRANSACTIONS)
    if request.bumping:
        return _end_without_transaction(now_ms, current, request, allocate)
    outcome = _outcome(current)
    has_bumped = current.client_transaction_version == BUMPING and current.last_bump is not BumpCause.NONE
    if outcome is None or has_bumped:
        # No transaction was begun with this epoch, so this EndTxn repeats none. Kept transactions get bumped markers
        # with v0-4 as well, but their client has the pair that ended it.
        return _error(ErrorCode.INVALID_TXN_STATE)
    if outcome != request.commit:
        return _error(ErrorCode.INVALID_TXN_STATE)
    return Result(EndReply(ErrorCode.NONE, *current.client_pair))


def _end_without_transaction(
    now_ms: int, current: Transaction, request: EndRequest, allocate: AllocateProducerId
) -> Result[EndReply]:
    """Decide EndTxn v5+ with the present pair and no transaction. A commit is refused, and an abort bumps the epoch."""
    if request.commit:
        return _error(ErrorCode.INVALID_TXN_STATE)
    after = ending.abort_nothing(now_ms, current, allocate)
    reply = EndReply(ErrorCode.NONE, *after.client_pair)
    return Result(reply, (TransactionRecord(after.transactional_id, after),))


def _end_with_last_pair(current: Transaction, request: EndRequest) -> Result[EndReply]:
    """Decide EndTxn with the pair before the latest bump: a repetition, or a producer unaware of its timeout."""
    if current.last_bump is BumpCause.TIMEOUT:
        return _end_timed_out(current, request)
    if current.last_bump is not BumpCause.END_TXN or not request.bumping:
        return _end_with_older_pair(current, request, _fenced(request))
    if current.state in PREPARED:
        return _error(ErrorCode.CONCURRENT_TRANSACTIONS)
    outcome = _outcome(current)
    if outcome is None:
        return _end_with_older_pair(current, request, _fenced(request))
    if outcome != request.commit:
        return _error(ErrorCode.INVALID_TXN_STATE)
    return Result(EndReply(ErrorCode.NONE, *current.client_pair))


def _end_with_older_pair(current: Transaction, request: EndRequest, refusal: Result[EndReply]) -> Result[EndReply]:
    """Decide EndTxn with an older pair.

    The repetition of a completed commit succeeds; everything else is refused.

    The answer names the pair of the request, which is fenced: the id's present pair belongs to another producer.
    """
    committed = endings.ending_of(current, request.pair) is Ending.COMMITTED
    if not (request.bumping and request.commit and committed):
        return refusal
    if current.state in PREPARED:
        return _error(ErrorCode.CONCURRENT_TRANSACTIONS)
    return Result(EndReply(ErrorCode.NONE, *request.pair))


def _end_timed_out(current: Transaction, request: EndRequest) -> Result[EndReply]:
    answers = TIMED_OUT[generations.of_end(request.api_version, current.init_version)]
    answer = answers.end_commit if request.commit else answers.end_abort
    if answer == FENCED or (request.software_name == KAFKA_PYTHON and not request.bumping):
        return _fenced(request)
    if answer == ErrorCode.NONE:
        return Result(EndReply(ErrorCode.NONE, *current.client_pair))
    return _error(ErrorCode(answer))


def time_out(now_ms: int, current: Transaction, allocate: AllocateProducerId) -> Result[None]:
    """Abort the open transaction. Its producer, if still alive, can take the bumped pair (KIP-588)."""
    after = ending.prepare(now_ms, current, commit=False, bumping=True, cause=BumpCause.TIMEOUT, allocate=allocate)
    return Result(None, (TransactionRecord(after.transactional_id, after),), ending.fences(after))


def completed(now_ms: int, current: Transaction) -> TransactionRecord:
    """Return the record that follows the last marker."""
    return TransactionRecord(current.transactional_id, ending.complete(now_ms, current))


def expired(current: Transaction) -> Result[None] | None:
    """Return the tombstone of an id that was idle for too long, None for an id that is not idle."""
    if current.state not in IDLE:
        return None
    return Result(None, (TransactionRecord(current.transactional_id, None),))


def _fences(after: Transaction) -> tuple[PartitionFence, ...]:
    """Return the fences of the partitions.

    Without a bump there is no epoch to fence, and the coordinator refuses late requests.
    """
    return ending.fences(after) if after.client_transaction_version == BUMPING else ()


def _outcome(current: Transaction) -> bool | None:
    """Return true for committed, false for aborted, None if no transaction has ended."""
    if current.state is TxnState.COMPLETE_COMMIT:
        return True
    return False if current.state is TxnState.COMPLETE_ABORT else None


def _error(code: ErrorCode) -> Result[EndReply]:
    return Result(EndReply(code))


def _fenced(request: EndRequest) -> Result[EndReply]:
    return Result(EndReply(fenced_code(request.api_version, FIRST_WITH_PRODUCER_FENCED)))
