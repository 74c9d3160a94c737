"""What plan.py's functions yield and return: the steps, what answers them, and what goes from process to process."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar

from fencepost.spark.sink.decision import Content, Decision, Pair, Winner

__all__ = [
    "NO_PAIR",
    "REGISTERED",
    "VERIFYING_VERSION",
    "AbortOutcome",
    "AskOwner",
    "AskWinners",
    "BeginTask",
    "BrokerOffer",
    "Claim",
    "Decided",
    "DescribeBroker",
    "DescribeTasks",
    "DescribeWinners",
    "Drain",
    "End",
    "EndTransactions",
    "FindTrace",
    "ForgetQuery",
    "GiveUp",
    "HasDecided",
    "HasRows",
    "KeepWinners",
    "Level",
    "ListTransactions",
    "Listed",
    "Message",
    "Nothing",
    "Opened",
    "Plan",
    "Prepared",
    "ProbeTwoPhase",
    "ReadClock",
    "ReadDecisions",
    "RegisterTask",
    "SameBatch",
    "SaveOffsets",
    "Seen",
    "Settled",
    "Skipped",
    "Step",
    "TakeId",
    "Trace",
    "Use",
    "UseUp",
    "WriteDecision",
    "WriteRows",
]


VERIFYING_VERSION: Final = 4  # of AddPartitionsToTxn, with which a partition asks the coordinator
REGISTERED: Final = "registered"  # in place of a state of Kafka's: it may be open, or have ended, or have not begun
NO_PAIR: Final = Pair(-1, -1)


class Level(Enum):
    """What a broker's transactions can promise about a decided batch (docs/spark.md)."""

    KEEP_PREPARED = "keep-prepared"  # a prepared transaction waits for ever; an attempt that died writing expires
    TWO_PHASE = "two-phase"  # a transaction waits for ever from its beginning on
    RESUME = "resume"  # it waits for transaction.timeout.ms; a decided transaction can be lost, loudly
    RESUME_V1 = "resume-v1"  # as `resume`, before transaction version 2; who owns the sink is not always told
    RESUME_UNVERIFIED = "resume-unverified"  # as `resume-v1`, where partitions take a batch whose transaction is over
    RESUME_UNLISTED = "resume-unlisted"  # as `resume-unverified`, where nobody lists or describes transactions

    @property
    def rank(self) -> int:
        """0 is the weakest; they are listed from the strongest on."""
        return len(Level) - 1 - list(Level).index(self)

    @property
    def may_lose(self) -> bool:
        """Whether a timeout can end what is decided."""
        return self.rank <= Level.RESUME.rank

    @property
    def uses_ids_again(self) -> bool:
        """Whether a task id may have a second use: not where what ends the first use names no pair."""
        return not self.fences

    @property
    def fences(self) -> bool:
        """Whether what is aborted is fenced, so that no partition takes a late batch of it, of whatever release."""
        return self in (Level.RESUME_UNVERIFIED, Level.RESUME_UNLISTED)

    @property
    def lists(self) -> bool:
        """Whether the brokers tell of transactions; else tasks register their ids, and a winner's own pair is asked."""
        return self is not Level.RESUME_UNLISTED

    @property
    def must_verify(self) -> bool:
        """Whether a batch may only go to a broker that asks whether its transaction is open."""
        return self is Level.RESUME_V1


# --- values ---


@dataclass(frozen=True, slots=True)
class Listed:
    """A transaction that ListTransactions and DescribeTransactions showed; `state` is Kafka's name for it.

    REGISTERED: a task's id of which nothing else is known; `pair` is NO_PAIR.
    """

    transactional_id: str
    pair: Pair
    state: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A winner before its decision. `timeout_ms` None: it has none. `is_late`: it may end before it is completed."""

    pair: Pair
    state: str
    age_ms: int | None
    timeout_ms: int | None
    is_late: bool

    def __str__(self) -> str:
        begun = "" if self.age_ms is None else f", begun {self.age_ms} ms ago"
        timeout = "" if self.timeout_ms is None else f", transaction.timeout.ms is {self.timeout_ms}"
        # Asking to keep a transaction that has ended leaves its id empty.
        state = "aborted before" if self.state == "Empty" else self.state
        return f"{state}{begun}{timeout}"


@dataclass(frozen=True, slots=True)
class Decided:
    """The last decided batch of a query; `content` None: decided by a release that did not write it down."""

    query_id: str
    batch_id: int
    content: Content | None


@dataclass(frozen=True, slots=True)
class Opened:
    """What Open found, for the tasks of one batch: `decided` has the last decision of each query.

    `naming`: the queries whose decisions still name transactions. All of these are complete.
    `opened_ms`: by the driver's clock, before anything of the batch began; None where brokers tell what began when.
    """

    sink: str
    level: Level
    claim: Pair
    decided: tuple[Decided, ...]
    naming: tuple[str, ...] = ()
    opened_ms: int | None = None

    def last(self, query_id: str) -> Decided | None:
        """The query's last decided batch."""
        return next((decision for decision in self.decided if decision.query_id == query_id), None)


@dataclass(frozen=True, slots=True)
class Use:
    """What a task id was used for."""

    sink: str
    claim: Pair
    query_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """The batch was decided before; the rows were thrown away. `decided`: the whole batch's content, as decided."""

    query_id: str
    batch_id: int
    content: Content
    decided: Content | None


@dataclass(frozen=True, slots=True)
class Nothing:
    """There were no rows; nothing was opened."""

    query_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class Trace:
    """By what a task's transaction can be asked for where nobody describes it: a partition that it has (K110).

    `opened_ms`: as of Opened; nothing of the batch is older.
    """

    topic: str
    partition: int
    timeout_ms: int
    opened_ms: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The rows are in a flushed, open transaction, begun with `pair`.

    `others_named`: Open found other queries' decisions that name transactions, and has completed these.
    `trace`: where Level.lists is not.
    """

    level: Level
    claim: Pair
    query_id: str
    batch_id: int
    transactional_id: str
    pair: Pair
    content: Content
    others_named: bool = False
    trace: Trace | None = None


Message: TypeAlias = Skipped | Nothing | Prepared


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a decided batch's transactions, by their transactional ids."""

    decision: Decision
    committed: tuple[str, ...]
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerOffer:
    """ApiVersions: the highest version of each API that all brokers have (-1: none), and transaction.version."""

    init_producer_id_max: int
    end_txn_max: int
    transaction_version: int
    add_partitions_max: int = -1
    describe_transactions_max: int = 0

    @property
    def bumps_epochs(self) -> bool:
        """Whether every end of a transaction raises the epoch, if it is asked for (EndTxn v5)."""
        return self.end_txn_max >= 5 and self.transaction_version >= 1

    @property
    def verifies(self) -> bool:
        """Whether a batch that comes after its transaction is refused. Brokers that do have AddPartitionsToTxn v4."""
        return self.add_partitions_max >= VERIFYING_VERSION

    @property
    def shows_transactions(self) -> bool:
        """Whether ListTransactions and DescribeTransactions are there (KIP-664)."""
        return self.describe_transactions_max >= 0


class SameBatch(Enum):
    """When a batch that comes with a decided number is taken for the batch that was decided."""

    ROWS = "rows"  # its rows are the same: count and checksum
    COUNT = "count"  # it has as many rows
    OFFSETS = "offsets"  # it was planned with the same source offsets; Spark's checkpoint has to be readable
    NUMBER = "number"  # always


class AbortOutcome(Enum):
    """What an abort found."""

    NOTHING = "there was nothing to abort"
    ABORTED = "the batch can never be decided; its transactions were aborted"
    COMMITTED = "the batch was decided; its transactions were committed"
    LEFT = "a newer run owns the sink; everything was left to it"


# --- steps ---


@dataclass(frozen=True, slots=True)
class ListTransactions:
    """-> tuple[Listed, ...]: at least the ongoing transactions of the sink's task ids.

    `registered`: by RegisterTask instead of by the brokers.
    """

    sink: str
    registered: bool = False


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
    """One EndTxn: v5, or the highest where the epoch does not rise.

    An abort with `fence` (Level.fences): plain InitProducerId, which leaves a marker of the next epoch in every
    partition that was enlisted, so that nothing late gets in; 0 then.
    """

    transactional_id: str
    pair: Pair
    commit: bool
    fence: bool = False


@dataclass(frozen=True, slots=True)
class EndTransactions:
    """-> tuple[int, ...]: the definite wire code of each, in order; they may be carried out in parallel."""

    ends: tuple[End, ...]


@dataclass(frozen=True, slots=True)
class AskOwner:
    """-> int: the definite wire code of EndTxn v5(abort) on S with the claim; plan_owner.py where there is none.

    `fence`: asked as Level.fences needs it.
    """

    sink: str
    claim: Pair
    fence: bool = False


@dataclass(frozen=True, slots=True)
class UseUp:
    """-> int: the definite wire code of InitProducerId(S, the claim), which raises the epoch."""

    sink: str
    claim: Pair


@dataclass(frozen=True, slots=True)
class HasDecided:
    """-> bool: was a decision committed with this claim? Read up to the end offset taken now."""

    sink: str
    claim: Pair


@dataclass(frozen=True, slots=True)
class WriteDecision:
    """-> int | None: one transaction on S with the claim, no new InitProducerId: the records, then EndTxn v5(commit).

    `complete`: decisions of other queries, which from then on name no transactions; as many of them as fit.
    0 when it is durable; the wire code of what refused it; None when no answer could be had.
    `verified`: only by a broker that verifies (Level.must_verify); UnsupportedVersionError where it does not.
    """

    claim: Pair
    decision: Decision
    complete: tuple[Decision, ...] = ()
    verified: bool = False


@dataclass(frozen=True, slots=True)
class ForgetQuery:
    """-> int | None: as WriteDecision, the tombstone of the query's decision."""

    claim: Pair
    sink: str
    query_id: str
    verified: bool = False


@dataclass(frozen=True, slots=True)
class SaveOffsets:
    """-> SourceOffsets | None: make Spark's record of what the batch is durable, and read it; None: out of reach."""

    query_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class Drain:
    """-> Content: throw the task's rows away; what they were."""


@dataclass(frozen=True, slots=True)
class HasRows:
    """-> bool: is there a first row?"""


@dataclass(frozen=True, slots=True)
class TakeId:
    """-> str: a task id of the sink: from its pool if it is free (task_ids.py), or a new id."""

    opened: Opened


@dataclass(frozen=True, slots=True)
class BeginTask:
    """-> Pair | None: InitProducerId of a taken id, sent once. None when its answer was lost: it may arrive late.

    Only an id whose answer came may be taken again.
    """

    transactional_id: str
    use: Use
    two_phase: bool


@dataclass(frozen=True, slots=True)
class RegisterTask:
    """-> None: who lists from now on finds the id, until its transaction is decided or fenced."""

    sink: str
    transactional_id: str


@dataclass(frozen=True, slots=True)
class WriteRows:
    """-> Content: produce all rows in a transaction of the id, and flush: every row is acknowledged.

    `verified`: as of WriteDecision.
    """

    transactional_id: str
    pair: Pair
    verified: bool = False


@dataclass(frozen=True, slots=True)
class FindTrace:
    """-> Trace: of the rows that WriteRows has written."""

    opened: Opened
    transactional_id: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """-> KafkaError | None: EndTxn v5(abort) of the task's own transaction, with little patience: what hindered it.

    `fence`: as of End.
    """

    transactional_id: str
    pair: Pair
    fence: bool = False


@dataclass(frozen=True, slots=True)
class KeepWinners:
    """-> tuple[Pair | None, ...]: InitProducerId(keep, 2PC) with each transaction's own pair, until it is answered.

    The pair EndTxn must carry from now on, the same however often it is asked for; None: the transaction is not open.
    """

    winners: tuple[Winner, ...]


@dataclass(frozen=True, slots=True)
class DescribeWinners:
    """-> tuple[Seen, ...]: what DescribeTransactions says of each, and which are about to be timed out."""

    sink: str
    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskWinners:
    """-> tuple[Seen, ...]: as DescribeWinners, by what AddPartitionsToTxn of the trace's partition is answered (K110).

    Sent once to each: what is not answered may come late, so it is not known to be open.
    """

    prepared: tuple[Prepared, ...]


@dataclass(frozen=True, slots=True)
class ReadClock:
    """-> int: this host's clock, in milliseconds."""


@dataclass(frozen=True, slots=True)
class DescribeTasks:
    """-> tuple[Listed, ...]: those of the transactions that the brokers know."""

    transactional_ids: tuple[str, ...]


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
    | UseUp
    | HasDecided
    | ForgetQuery
    | SaveOffsets
    | WriteDecision
    | Drain
    | HasRows
    | TakeId
    | BeginTask
    | RegisterTask
    | WriteRows
    | FindTrace
    | GiveUp
    | KeepWinners
    | DescribeWinners
    | AskWinners
    | ReadClock
    | DescribeTasks
    | DescribeBroker
    | ProbeTwoPhase
)

T = TypeVar("T")
Plan: TypeAlias = Generator[Step, Any, T]
