"""The steps that plan.py yields, the values that answer them, and the messages between Spark's processes.

The docstring of a step begins with the type of its answer. S is the sink's own transactional id (names.py).
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import Any, TypeAlias, TypeVar

from fencepost.counted import duration_words
from fencepost.spark.sink.abilities import BrokerAbilities
from fencepost.spark.sink.decision import Content, Decision, Pair, Winner
from fencepost.values import Value

__all__ = [
    "AbortOutcome",
    "AbortTask",
    "AcquireTaskId",
    "BeginTask",
    "BrokerVersions",
    "BumpEpoch",
    "Claim",
    "ClaimedBatch",
    "DecidedBatch",
    "DescribeBroker",
    "DescribeTasks",
    "DescribeWinners",
    "DescribedWinner",
    "DrainRows",
    "EmptyTask",
    "EndTransactions",
    "EndTxn",
    "ForgetQuery",
    "HasDecided",
    "HasRows",
    "KeepWinners",
    "ListTransactions",
    "OpenedSink",
    "Plan",
    "PreparedTask",
    "ProbeTwoPhase",
    "ReadDecisions",
    "ReportUnknown",
    "SameBatch",
    "SaveOffsets",
    "SettledBatch",
    "SinkTransaction",
    "SkippedTask",
    "Step",
    "TaskResult",
    "UnknownOutcome",
    "VerifyClaim",
    "WriteDecision",
    "WriteRows",
]


# --- values ---


class SinkTransaction(Value):
    """A transaction as ListTransactions and DescribeTransactions show it. `state` is Kafka's name for its state."""

    transactional_id: str
    pair: Pair
    state: str


class DescribedWinner(Value):
    """The state of a winning transaction before the decision.

    `timeout_ms` is None for a transaction without a timeout. `is_late`: the timeout may end it before its commit.
    """

    pair: Pair
    state: str
    age_ms: int | None
    timeout_ms: int | None
    is_late: bool

    def __str__(self) -> str:
        begun = "" if self.age_ms is None else f", begun {duration_words(self.age_ms)} ago"
        timeout = "" if self.timeout_ms is None else f", transaction.timeout.ms is {self.timeout_ms}"
        # A keep of a transaction that has ended leaves its id empty.
        state = "aborted before" if self.state == "Empty" else self.state
        return f"{state}{begun}{timeout}"


class DecidedBatch(Value):
    """The last decided batch of a query. `content` is None for an adopted batch whose rows are unknown."""

    query_id: str
    batch_id: int
    content: Content | None


class OpenedSink(Value):
    """The result of Open for the tasks of one batch. `decided` has the last decision of each query.

    `queries_with_winners`: the queries whose decisions still name transactions. All these transactions have ended.
    """

    sink: str
    abilities: BrokerAbilities
    claim: Pair
    decided: tuple[DecidedBatch, ...]
    queries_with_winners: tuple[str, ...] = ()

    def last(self, query_id: str) -> DecidedBatch | None:
        """Return the query's last decided batch."""
        return next((decision for decision in self.decided if decision.query_id == query_id), None)


class ClaimedBatch(Value):
    """The use of a task id: one batch under one claim."""

    sink: str
    claim: Pair
    query_id: str
    batch_id: int


class SkippedTask(Value):
    """The batch was decided before. The task read its rows (`content`) and wrote none.

    `decided` is the content of the whole batch in its decision.
    """

    query_id: str
    batch_id: int
    content: Content
    decided: Content | None


class EmptyTask(Value):
    """The task had no rows and began no transaction."""

    query_id: str
    batch_id: int


class PreparedTask(Value):
    """The rows are in a flushed, open transaction, begun with `pair`.

    `others_named`: Open found decisions of other queries that name transactions, and has completed them.
    """

    abilities: BrokerAbilities
    claim: Pair
    query_id: str
    batch_id: int
    transactional_id: str
    pair: Pair
    content: Content
    others_named: bool = False


TaskResult: TypeAlias = SkippedTask | EmptyTask | PreparedTask


class UnknownOutcome(Value):
    """Decided transactions whose transactional ids have expired: the brokers do not know how they ended."""

    query_id: str
    batch_id: int
    winners: tuple[Winner, ...]


class SettledBatch(Value):
    """The outcomes of a decided batch's transactions, as three lists of transactional ids."""

    decision: Decision
    committed: tuple[str, ...]
    lost: tuple[str, ...]
    unknown: tuple[str, ...] = ()


class BrokerVersions(Value):
    """ApiVersions of all brokers: the highest common version of each API (-1: none), and transaction.version."""

    init_producer_id: int
    end_txn: int
    add_partitions_to_txn: int
    describe_transactions: int
    transaction_version: int


class SameBatch(Enum):
    """The rule by which a batch with a decided number counts as the decided batch."""

    ROWS = "rows"  # the same rows: count and checksum
    COUNT = "count"  # the same number of rows
    OFFSETS = "offsets"  # planned with the same source offsets; needs a readable Spark checkpoint
    NUMBER = "number"  # always


class AbortOutcome(Enum):
    """The result of an abort."""

    NOTHING = "there was nothing to abort"
    ABORTED = "the batch can never be decided; its transactions were aborted"
    COMMITTED = "the batch was decided; its transactions were committed"
    LEFT = "a newer run owns the sink; everything was left to it"


# --- steps ---


class ListTransactions(Value):
    """-> tuple[SinkTransaction, ...]: at least the ongoing transactions of the sink's task ids."""

    sink: str


class Claim(Value):
    """-> Pair: plain InitProducerId(S), repeated until it is answered."""

    sink: str


class ReadDecisions(Value):
    """-> tuple[Decision, ...]: the last decision of every query of the sink, up to the present end offset."""

    sink: str


class EndTxn(Value):
    """One EndTxn: v5, or the highest version below transaction.version 1."""

    transactional_id: str
    pair: Pair
    commit: bool


class EndTransactions(Value):
    """-> tuple[int, ...]: the definite error code of each, in order. They may run in parallel."""

    ends: tuple[EndTxn, ...]


class ReportUnknown(Value):
    """-> None: warn that the outcome of decided transactions is unknown."""

    sink: str
    abilities: BrokerAbilities
    unknown: UnknownOutcome


class VerifyClaim(Value):
    """-> int: the definite error code of EndTxn v5(abort) on S with the claim.

    Below transaction.version 1, plan_abilities.py asks with other requests.
    """

    sink: str
    claim: Pair


class BumpEpoch(Value):
    """-> int: the definite error code of InitProducerId(S, the claim), which raises the epoch."""

    sink: str
    claim: Pair


class HasDecided(Value):
    """-> bool: true if a decision was committed with this claim. Reads up to the present end offset."""

    sink: str
    claim: Pair


class WriteDecision(Value):
    """-> int | None: one transaction on S with the claim, without InitProducerId: the records, then EndTxn(commit).

    The code is 0 when the decision is durable, the error code of the refusal, or None without an answer.
    `complete`: decisions of other queries without their transactions; as many of them as fit.
    `verified`: write only to a broker that verifies the transaction; UnsupportedVersionError on any other.
    """

    claim: Pair
    decision: Decision
    complete: tuple[Decision, ...] = ()
    verified: bool = False


class ForgetQuery(Value):
    """-> int | None: as WriteDecision, with the tombstone of the query's decision."""

    claim: Pair
    sink: str
    query_id: str
    verified: bool = False


class SaveOffsets(Value):
    """-> SourceOffsets | None: make Spark's record of the batch durable, and read it. None if it is out of reach."""

    query_id: str
    batch_id: int


class DrainRows(Value):
    """-> Content: read the task's rows, write none, and return their content."""


class HasRows(Value):
    """-> bool: true if the task has a row."""


class AcquireTaskId(Value):
    """-> str: a task id of the sink: a free id from its pool (task_ids.py), or a new id."""

    opened: OpenedSink


class BeginTask(Value):
    """-> Pair | None: InitProducerId of a taken id, sent once. None if its answer was lost: it may arrive late.

    Only an id whose answer came may be taken again.
    """

    transactional_id: str
    batch: ClaimedBatch
    two_phase: bool


class WriteRows(Value):
    """-> Content: produce all rows in a transaction of the id, and flush. Every row is acknowledged.

    `verified`: as of WriteDecision.
    """

    transactional_id: str
    pair: Pair
    verified: bool = False


class AbortTask(Value):
    """-> KafkaError | None: EndTxn(abort) of the task's own transaction, with little patience, and its error."""

    transactional_id: str
    pair: Pair


class KeepWinners(Value):
    """-> tuple[Pair | None, ...]: InitProducerId(keep, 2PC) with each transaction's own pair, until it is answered.

    Returns the pair that EndTxn must carry from now on. It is the same for every repetition of the request. None: the
    transaction is not open.
    """

    winners: tuple[Winner, ...]


class DescribeWinners(Value):
    """-> tuple[DescribedWinner, ...]: DescribeTransactions of each, and whether it is about to time out."""

    sink: str
    transactional_ids: tuple[str, ...]


class DescribeTasks(Value):
    """-> tuple[SinkTransaction, ...]: those of the transactions that the brokers know."""

    transactional_ids: tuple[str, ...]


class DescribeBroker(Value):
    """-> BrokerVersions."""


class ProbeTwoPhase(Value):
    """-> int: the error code of InitProducerId v6(2PC) on the sink's probe id, with or without keep."""

    sink: str
    keep_prepared: bool


Step: TypeAlias = (
    ListTransactions
    | Claim
    | ReadDecisions
    | EndTransactions
    | ReportUnknown
    | VerifyClaim
    | BumpEpoch
    | HasDecided
    | ForgetQuery
    | SaveOffsets
    | WriteDecision
    | DrainRows
    | HasRows
    | AcquireTaskId
    | BeginTask
    | WriteRows
    | AbortTask
    | KeepWinners
    | DescribeWinners
    | DescribeTasks
    | DescribeBroker
    | ProbeTwoPhase
)

T = TypeVar("T")
Plan: TypeAlias = Generator[Step, Any, T]
