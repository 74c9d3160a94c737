"""The sink's protocol, pure: steps out, observations in. It knows neither Spark nor a client nor a clock.

Each function here is a generator. It yields a step, is sent what the step's docstring promises, and returns its result
or raises. Whoever runs it (runner.py with a real client, a simulated world in the tests) does the steps in order.

S is the sink's own transactional id; a *claim* is the pair that one InitProducerId(S) returned. The order of the steps
was model-checked and each has its reason; tests/unit/spark/test_plan_model.py plants the known mistakes and finds them.

    open_sink     in the process that plans a batch, once, before its tasks       steps 1-5
    write_task    in every task attempt                                           steps 6-7
    commit_batch  in Spark's commit worker, which may be a zombie                 steps 8-10
    abort_batch   in Spark's commit worker, after a failed commit or failed tasks step 11
    choose_level  which guarantee the brokers allow

The wire codes are EndTxn v5's as Apache Kafka 4.3.1 gives them: 0 done or done before, 48 INVALID_TXN_STATE (ended the
other way), 49 INVALID_PRODUCER_ID_MAPPING (expired after completion), 90 PRODUCER_FENCED. Our broker answers the commit
of a transaction that timed out with 120 TRANSACTION_ABORTABLE, where Kafka says 48. Retriable codes never come.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar

from fencepost.errors import KafkaTimeoutError, PreparedTransactionLostError, error_for
from fencepost.protocol.codes import ErrorCode, describe
from fencepost.spark import names
from fencepost.spark.decision import Decision, Pair, Winner
from fencepost.spark.errors import (
    DecisionRefusedError,
    DecisionUnknownError,
    LevelUnavailableError,
    SinkContradictionError,
    SupersededError,
)

__all__ = [
    "AbortOutcome",
    "AskOwner",
    "BeginTask",
    "BrokerOffer",
    "Claim",
    "DescribeBroker",
    "Drain",
    "End",
    "EndTransactions",
    "HasRows",
    "Level",
    "ListTransactions",
    "Listed",
    "Message",
    "Mint",
    "Nothing",
    "Opened",
    "Plan",
    "Prepare",
    "Prepared",
    "ProbeTwoPhase",
    "ReadDecisions",
    "Skipped",
    "Step",
    "WriteDecision",
    "WriteRows",
    "abort_batch",
    "choose_level",
    "commit_batch",
    "is_decided",
    "open_sink",
    "write_task",
]

MINT_ATTEMPTS: Final = 5

_NONE: Final = int(ErrorCode.NONE)
_OTHER_WAY: Final = int(ErrorCode.INVALID_TXN_STATE)
_EXPIRED: Final = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_FENCED: Final = int(ErrorCode.PRODUCER_FENCED)
_OLD_EPOCH: Final = int(ErrorCode.INVALID_PRODUCER_EPOCH)
_TIMED_OUT: Final = int(ErrorCode.TRANSACTION_ABORTABLE)
_COMMITTED: Final = frozenset({_NONE, _EXPIRED})
_CONTRADICTS: Final = frozenset({_OTHER_WAY, _FENCED, _OLD_EPOCH, _TIMED_OUT})
_ABORT_IS_FINE: Final = frozenset({_NONE, _OTHER_WAY, _EXPIRED, _FENCED, _OLD_EPOCH})
_SUPERSEDED: Final = frozenset({_FENCED, _EXPIRED, _OLD_EPOCH})


class Level(Enum):
    """What a broker's transactions can promise about a decided batch (design, "Two-phase commit")."""

    KEEP_PREPARED = "keep-prepared"  # a prepared transaction waits for ever; an attempt that died writing expires
    TWO_PHASE = "two-phase"  # a transaction waits for ever from its beginning on
    RESUME = "resume"  # it waits for transaction.timeout.ms; a decided one can be lost, loudly

    @property
    def rank(self) -> int:
        """3 is the strongest."""
        return {Level.KEEP_PREPARED: 3, Level.TWO_PHASE: 2, Level.RESUME: 1}[self]


# --- values ---


@dataclass(frozen=True, slots=True)
class Listed:
    """A transaction that ListTransactions and DescribeTransactions showed; `state` is Kafka's name for it."""

    transactional_id: str
    pair: Pair
    state: str


@dataclass(frozen=True, slots=True)
class Opened:
    """What Open found, for the tasks of one batch: `decided` is (query id, last decided batch id) of each query."""

    sink: str
    level: Level
    claim: Pair
    decided: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """The batch was decided before; the rows were thrown away."""

    query_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """There were no rows; nothing was opened."""

    query_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The rows are in a flushed, open transaction that EndTxn with `pair` ends."""

    claim: Pair
    query_id: str
    batch_id: int
    transactional_id: str
    pair: Pair


Message: TypeAlias = Skipped | Nothing | Prepared


@dataclass(frozen=True, slots=True)
class BrokerOffer:
    """ApiVersions: highest InitProducerId and EndTxn versions (-1: none), finalized transaction.version (0: absent)."""

    init_producer_id_max: int
    end_txn_max: int
    transaction_version: int


class AbortOutcome(Enum):
    """What an abort found."""

    NOTHING = "there was nothing to abort"
    ABORTED = "the batch can never be decided; its transactions were aborted"
    COMMITTED = "the batch was decided; its transactions were committed"
    LEFT = "a newer run owns the sink; everything was left to it"


# --- steps ---


@dataclass(frozen=True, slots=True)
class ListTransactions:
    """-> tuple[Listed, ...]: at least the ongoing transactions of the sink's task ids."""

    sink: str


@dataclass(frozen=True, slots=True)
class Claim:
    """-> Pair: plain InitProducerId(S), repeated until it is answered."""

    sink: str


@dataclass(frozen=True, slots=True)
class ReadDecisions:
    """-> tuple[Decision, ...]: the last decision of every query of the sink, up to the end offset taken now."""

    sink: str


@dataclass(frozen=True, slots=True)
class End:
    """One EndTxn v5."""

    transactional_id: str
    pair: Pair
    commit: bool


@dataclass(frozen=True, slots=True)
class EndTransactions:
    """-> tuple[int, ...]: the definite wire code of each, in order; they may be carried out in parallel."""

    ends: tuple[End, ...]


@dataclass(frozen=True, slots=True)
class AskOwner:
    """-> int: the definite wire code of EndTxn v5(abort) on S with the claim."""

    sink: str
    claim: Pair


@dataclass(frozen=True, slots=True)
class WriteDecision:
    """-> int | None: one transaction on S with the claim, no new InitProducerId: the record, then EndTxn v5(commit).

    0 when it is durable; the wire code of what refused it; None when no answer could be had.
    """

    claim: Pair
    decision: Decision


@dataclass(frozen=True, slots=True)
class Drain:
    """-> None: throw the task's rows away."""


@dataclass(frozen=True, slots=True)
class HasRows:
    """-> bool: is there a first row?"""


@dataclass(frozen=True, slots=True)
class Mint:
    """-> str: a task id of the sink that was never used before."""

    sink: str


@dataclass(frozen=True, slots=True)
class BeginTask:
    """-> Pair | None: InitProducerId of a minted id, sent once. None when its answer was lost: it may arrive late."""

    transactional_id: str
    two_phase: bool


@dataclass(frozen=True, slots=True)
class WriteRows:
    """-> None: produce all rows in a transaction of the id, and flush: every one is acknowledged."""

    transactional_id: str
    pair: Pair


@dataclass(frozen=True, slots=True)
class Prepare:
    """-> Pair: InitProducerId(keep, 2PC) with the transaction's own pair, sent once; the pair EndTxn must carry."""

    transactional_id: str
    pair: Pair


@dataclass(frozen=True, slots=True)
class DescribeBroker:
    """-> BrokerOffer."""


@dataclass(frozen=True, slots=True)
class ProbeTwoPhase:
    """-> int: the wire code of InitProducerId v6(2PC) on the sink's probe id, with or without keep."""

    sink: str
    keep_prepared: bool


Step: TypeAlias = (
    ListTransactions
    | Claim
    | ReadDecisions
    | EndTransactions
    | AskOwner
    | WriteDecision
    | Drain
    | HasRows
    | Mint
    | BeginTask
    | WriteRows
    | Prepare
    | DescribeBroker
    | ProbeTwoPhase
)
T = TypeVar("T")
Plan: TypeAlias = Generator[Step, Any, T]


# --- open ---


def open_sink(sink: str, level: Level) -> Plan[Opened]:
    """Take the sink over: finish what is decided, abort what never can be.

    Raises SupersededError, PreparedTransactionLostError, or what the broker's refusal maps to.
    """
    # Listed before the claim: what is listed then belongs to drivers that the claim shuts out.
    listed: tuple[Listed, ...] = yield ListTransactions(sink)
    claim: Pair = yield Claim(sink)
    # Read after the claim: no older driver can add a decision any more.
    decisions: tuple[Decision, ...] = yield ReadDecisions(sink)
    for decision in decisions:
        if decision.sink != sink:
            raise SinkContradictionError(f"a decision of sink {decision.sink!r} was read for sink {sink!r}")
    winners = tuple(winner for decision in decisions for winner in decision.winners)
    yield from _complete(sink, claim, winners)
    decided_ids = {winner.transactional_id for winner in winners}
    yield from _abort(
        tuple(
            End(one.transactional_id, one.pair, commit=False)
            for one in listed
            if one.state == "Ongoing" and _is_task_of(sink, one) and one.transactional_id not in decided_ids
        )
    )
    return Opened(sink, level, claim, tuple(sorted((one.query_id, one.batch_id) for one in decisions)))


def _is_task_of(sink: str, listed: Listed) -> bool:
    name = names.parse(listed.transactional_id)
    return isinstance(name, names.TaskId) and name.sink == sink


# --- write ---


def is_decided(opened: Opened, query_id: str, batch_id: int) -> bool:
    """Had a decision of this query, when Open read them, this batch or a later one?"""
    return any(query == query_id and batch >= batch_id for query, batch in opened.decided)


def write_task(opened: Opened, query_id: str, batch_id: int) -> Plan[Message]:
    """Write one task attempt's rows in a transaction of its own and leave it prepared."""
    # By Open's record and not by reading again: all tasks of a batch have to come to the same answer.
    if is_decided(opened, query_id, batch_id):
        yield Drain()
        return Skipped(query_id, batch_id)
    has_rows: bool = yield HasRows()
    if not has_rows:
        return Nothing(query_id, batch_id)
    for _ in range(MINT_ATTEMPTS):
        transactional_id: str = yield Mint(opened.sink)
        # A lost InitProducerId may arrive when the transaction is already prepared, and abort it: take another id.
        pair: Pair | None = yield BeginTask(transactional_id, two_phase=opened.level is Level.TWO_PHASE)
        if pair is not None:
            break
    else:
        raise KafkaTimeoutError(f"no transaction could be begun in {MINT_ATTEMPTS} attempts")
    yield WriteRows(transactional_id, pair)
    if opened.level is Level.KEEP_PREPARED:
        pair = yield Prepare(transactional_id, pair)
    return Prepared(opened.claim, query_id, batch_id, transactional_id, pair)


# --- commit ---


def commit_batch(sink: str, batch_id: int, messages: Sequence[Message | None]) -> Plan[bool]:
    """Decide the batch and complete it. Returns False when there was nothing to decide.

    Whatever it raises, nothing was aborted: DecisionUnknownError, DecisionRefusedError, SupersededError,
    PreparedTransactionLostError, SinkContradictionError.
    """
    if any(message is None for message in messages):
        raise SinkContradictionError("a batch is to be committed of which a task has no message")
    prepared = _prepared(messages)
    if any(message is not None and message.batch_id != batch_id for message in messages):
        raise SinkContradictionError(f"a message of another batch came to the commit of batch {batch_id}")
    if not prepared:
        return False
    if any(isinstance(message, Skipped) for message in messages):
        raise SinkContradictionError("some tasks of the batch found it decided and some did not")
    first = prepared[0]
    winners = tuple(Winner(one.transactional_id, one.pair) for one in prepared)
    code: int | None = yield WriteDecision(first.claim, Decision(sink, first.query_id, batch_id, winners))
    if code is None:
        raise DecisionUnknownError(f"no answer says whether batch {batch_id} of query {first.query_id} is decided")
    if code in _SUPERSEDED:
        raise SupersededError(
            f"a newer run of sink {sink!r} took over before batch {batch_id} was decided; it is written by that run. "
            "If you did not start one: two queries have the same sink.id, or two drivers the same checkpoint",
            code=code,
        )
    if code != _NONE:
        raise DecisionRefusedError(f"batch {batch_id} could not be decided: {describe(code)}", code=code)
    yield from _complete(sink, first.claim, winners)
    return True


# --- abort ---


def abort_batch(sink: str, messages: Sequence[Message | None]) -> Plan[AbortOutcome]:
    """Abort the batch if it can never be decided, finish it if it is decided, leave it if a newer run owns the sink."""
    prepared = _prepared(messages)
    if not prepared:
        return AbortOutcome.NOTHING
    claim = prepared[0].claim
    # The topic would not tell: a decision whose answer was lost can still take effect. This request settles it.
    code: int = yield AskOwner(sink, claim)
    if code == _NONE:
        yield from _abort(tuple(End(one.transactional_id, one.pair, commit=False) for one in prepared))
        return AbortOutcome.ABORTED
    if code == _OTHER_WAY:
        yield from _complete(sink, claim, tuple(Winner(one.transactional_id, one.pair) for one in prepared))
        return AbortOutcome.COMMITTED
    if code in _SUPERSEDED:
        return AbortOutcome.LEFT
    raise error_for(code, f"asking whether sink {sink!r} is still owned")


# --- level ---


def choose_level(sink: str, required: Level | None) -> Plan[Level]:
    """The strongest level the brokers offer. LevelUnavailableError when it is below `required`, or none is safe."""
    offer: BrokerOffer = yield DescribeBroker()
    if offer.end_txn_max < 5 or offer.transaction_version < 1:
        raise LevelUnavailableError(
            f"the sink needs EndTxn v5 and transaction.version >= 1 (Kafka 4.0 or newer, finalized); the brokers have "
            f"EndTxn v{offer.end_txn_max} and transaction.version {offer.transaction_version}"
        )
    level = Level.RESUME
    why = f"InitProducerId goes up to v{offer.init_producer_id_max}, two-phase commit needs v6"
    if offer.init_producer_id_max >= 6:
        # 53 before 35: where two-phase commit is not allowed, the question whether it can be kept is not reached.
        code: int = yield ProbeTwoPhase(sink, keep_prepared=True)
        if code == _NONE:
            return Level.KEEP_PREPARED
        why = f"keeping a prepared transaction was answered {describe(code)}"
        code = yield ProbeTwoPhase(sink, keep_prepared=False)
        if code == _NONE:
            level = Level.TWO_PHASE
        else:
            why += f", two-phase commit {describe(code)}"
    if required is not None and level.rank < required.rank:
        raise LevelUnavailableError(f"level {required.value!r} is required, the brokers offer {level.value!r}: {why}")
    return level


# --- shared ---


def _prepared(messages: Sequence[Message | None]) -> tuple[Prepared, ...]:
    prepared = tuple(message for message in messages if isinstance(message, Prepared))
    if len({(one.claim, one.query_id, one.batch_id) for one in prepared}) > 1:
        raise SinkContradictionError("the messages of one batch name several claims, queries or batches")
    return prepared


def _complete(sink: str, claim: Pair, winners: tuple[Winner, ...]) -> Plan[None]:
    """EndTxn(commit) for each winner. 0 and 49 are done; 48, 90 and 120 contradict an owner's decision."""
    if not winners:
        return
    ends = tuple(End(winner.transactional_id, winner.pair, commit=True) for winner in winners)
    codes: tuple[int, ...] = yield EndTransactions(ends)
    contradicted = [(end, code) for end, code in zip(ends, codes, strict=True) if code in _CONTRADICTS]
    if contradicted:
        answer: int = yield AskOwner(sink, claim)
        if answer in _SUPERSEDED:
            raise SupersededError(f"a newer run of sink {sink!r} took over; it finishes what is decided", code=answer)
        # 0 after a claim; 48 after the claim's own decision, which an abort contradicts. Both say: still the owner.
        if answer not in (_NONE, _OTHER_WAY):
            raise error_for(answer, f"asking whether sink {sink!r} is still owned")
        told = ", ".join(f"{end.transactional_id} ({end.pair}): {describe(code)}" for end, code in contradicted[:5])
        raise PreparedTransactionLostError(
            f"{len(contradicted)} of {len(ends)} transactions whose commit is decided cannot be committed: {told}",
            code=contradicted[0][1],
        )
    for end, code in zip(ends, codes, strict=True):
        if code not in _COMMITTED:
            raise error_for(code, f"committing {end.transactional_id} ({end.pair}), which is decided")


def _abort(ends: tuple[End, ...]) -> Plan[None]:
    """EndTxn(abort) for each. Gone, ended or taken over is as good as aborted."""
    if not ends:
        return
    codes: tuple[int, ...] = yield EndTransactions(ends)
    for end, code in zip(ends, codes, strict=True):
        if code not in _ABORT_IS_FINE:
            raise error_for(code, f"aborting {end.transactional_id} ({end.pair})")
