"""Commit or abort one open transaction by hand: objections, consequences, and the EndTxn itself."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from fencepost.cli.transaction_view import Session, age_of, state_of
from fencepost.client.admin.transactions import TransactionDescription
from fencepost.client.diagnosis.holding import is_open, is_two_phase, partition_words
from fencepost.client.net.list_offsets import EARLIEST
from fencepost.client.net.transaction_calls import END_TXN_WITH_BUMP, must_enlist
from fencepost.client.prepared import PreparedTransaction
from fencepost.counted import duration_words
from fencepost.protocol.codes import describe as describe_code
from fencepost.protocol.logs.topic_names import CONSUMER_OFFSETS
from fencepost.spark.sink.decision import Pair

__all__ = [
    "MOST_NAMED",
    "Consent",
    "Objection",
    "PlannedEnding",
    "age_words",
    "end_open",
    "ending_of",
    "lost_parts",
]

MOST_NAMED: Final = 5


class Consent(Enum):
    """Option by which a person confirms that a transaction is to be ended despite an objection."""

    EVEN_IF_DECIDED = "even-if-decided"
    EVEN_IF_UNDECIDED = "even-if-undecided"
    EVEN_IF_PREPARED = "even-if-prepared"


class Objection(NamedTuple):
    """A reason not to end a transaction, and the consent that overrides it; None: nothing overrides it.

    The advice is for users of the command line.
    """

    reason: str
    consent: Consent | None
    advice: str = ""


class PlannedEnding(NamedTuple):
    """A described transaction, and how it is to be ended. The most serious objection is first."""

    transaction: TransactionDescription
    commit: bool
    objections: tuple[Objection, ...]
    shares_epoch: bool = False
    """True before KIP-890: the producer's next transaction has the same epoch, and could be ended instead."""

    def standing(self, given: Sequence[Consent]) -> Objection | None:
        """Return the first objection without consent."""
        return next((each for each in self.objections if each.consent not in given), None)

    @property
    def pair(self) -> Pair:
        """Producer id and epoch for EndTxn."""
        return Pair(self.transaction.producer_id, self.transaction.producer_epoch)

    @property
    def consequence(self) -> str:
        """The effect on read_committed readers, in words."""
        where = partition_words(self.transaction.partitions, MOST_NAMED) or "no partition"
        if self.commit:
            return f"What it wrote to {where} becomes visible to readers of committed records, and stays."
        return f"What it wrote to {where} is lost: no reader of committed records will ever see it."

    @property
    def question(self) -> str:
        """The question to confirm before ending it."""
        found = self.transaction
        age = age_words(found)
        where = f"{age and f'{age} old, '}on {partition_words(found.partitions, MOST_NAMED) or 'no partition'}"
        first = " Stop its producer first: this cluster cannot tell its next transaction from this one."
        what = f"{'Commit' if self.commit else 'Abort'} {found.transactional_id} ({where})? {self.consequence}"
        return what + (first if self.shares_epoch else "")


def age_words(transaction: TransactionDescription) -> str:
    """Return the time since the transaction began; "" if it is not open."""
    age = age_of(transaction)
    return "" if age is None else duration_words(age * 1000)


def ending_of(session: Session, transactional_id: str, *, commit: bool) -> PlannedEnding:
    """Describe the transaction, and collect the objections to ending it so. Raises KafkaError."""
    (description,) = session.describe([transactional_id])
    decided = session.decided_by(transactional_id) is not None
    meaning = session.meaning(description)
    objections = []
    if is_open(description) and decided and not commit:
        reason = f"{transactional_id} has been decided, and must be committed ({meaning})"
        objections.append(Objection(reason, Consent.EVEN_IF_DECIDED, "use resolve"))
    if is_open(description) and meaning and not decided and commit:
        reason = f"{transactional_id} is not decided ({meaning}): its rows will be written again"
        objections.append(Objection(reason, Consent.EVEN_IF_UNDECIDED, "use resolve"))
    if not is_open(description):
        objections.append(Objection(f"{transactional_id} is not open: {state_of(description)}", None))
    if is_two_phase(description) and not decided:
        reason = (
            f"{transactional_id} is a two-phase transaction, prepared or about to be ({age_words(description)} old, on "
            f"{partition_words(description.partitions, MOST_NAMED)}): whoever keeps its state is to decide it, and "
            "may have done so"
        )
        advice = "ask its owner; if no owner exists any more, add --even-if-prepared"
        objections.append(Objection(reason, Consent.EVEN_IF_PREPARED, advice))
    return PlannedEnding(description, commit, tuple(objections), must_enlist(session.link.admin.cluster))


def lost_parts(session: Session, transactional_id: str, prepared: PreparedTransaction) -> list[str]:
    """Return, in words, the parts of an open transaction that a commit can no longer make visible.

    Raises KafkaError.
    """
    (found,) = session.describe([transactional_id])
    if found.prepared != prepared:
        return []
    run, admin = session.link.io.run, session.link.admin
    topics = run(admin.describe_topics(sorted({at.topic for at in found.partitions})))
    there = [at for at in found.partitions if at.topic in topics and at.partition in topics[at.topic].partitions]
    gone = [
        f"{at.topic}-{at.partition} does not exist any more, and the transaction's records there are lost"
        for at in found.partitions
        if at not in there
    ]
    logs = [at for at in there if at.topic != CONSUMER_OFFSETS]
    producers = run(admin.describe_producers(logs)) if logs else {}
    starts = run(admin.list_offsets(dict.fromkeys(logs, EARLIEST))) if logs else {}
    for at in logs:
        began = [each.transaction_start_offset for each in producers[at] if each.producer_id == prepared.producer_id]
        start, name = starts[at].offset, f"{at.topic}-{at.partition}"
        if not began or began[0] < 0:
            gone.append(
                f"{name} has nothing of the transaction: the topic was created again, or its records were deleted"
            )
        elif start > began[0]:
            gone.append(f"{name} begins at {start}, so the transaction's records from {began[0]} on are deleted there")
    return gone


def end_open(session: Session, ending: PlannedEnding) -> str | None:
    """Send EndTxn with the described producer id and epoch.

    Returns:
        The reason why the transaction is still open, or None.

    Raises:
        KafkaError: With `outcome_unknown` the transaction may have been ended.
    """
    description = ending.transaction
    ended = session.link.io.run(
        session.link.admin.end_transaction(
            description.transactional_id,
            ending.pair.producer_id,
            ending.pair.epoch,
            ending.commit,
            version=None if ending.shares_epoch else END_TXN_WITH_BUMP,
        )
    )
    if ended.error_code == 0:
        return None
    word = "committed" if ending.commit else "aborted"
    return f"{description.transactional_id} was not {word}: {describe_code(ended.error_code)}"
