"""Derive the records that the decision topic needs. Pure: the functions take facts and return records or refuse.

To take a query over, the sink needs two facts: the last batch that is in the output (a decision), and the first batch
that it accepts (the query's beginning). The process can be killed between the two records. The decision is therefore
first, because it alone keeps the sink from writing a batch twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from fencepost.spark.adoption.checkpoint import Checkpoint
from fencepost.spark.adoption.refusals import AdoptionRefusedError, UndecidedBatchError
from fencepost.spark.adoption.verdict import BatchVerdict
from fencepost.spark.sink.decision import Beginning, Content, Decision, SourceOffsets, source_lines
from fencepost.spark.sink.decision_store import KnownQuery

__all__ = ["Begun", "MoveRecords", "SinkFacts", "adoption", "begins_unknown", "differs", "needs_judging", "release"]
__all__ += ["sink_facts"]

AGAIN: Final = "start the query here; it writes batch {} again, exactly once"


class Begun(Enum):
    """A person's choice about a begun batch.

    Attributes:
        AGAIN: The sink writes the batch again.
        DONE: The batch counts as written.
        MISSING: The missing rows are written, then the batch counts as written.
    """

    AGAIN = "again"
    DONE = "done"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """The records of the decision topic about the sink and the query.

    Attributes:
        name: The sink's name.
        last: The sink's last decision of the query.
        beginning: The query's beginning in this sink.
        elsewhere: The query's last decisions in sinks of other names.
    """

    name: str
    last: Decision | None = None
    beginning: Beginning | None = None
    elsewhere: tuple[Decision, ...] = ()


def sink_facts(name: str, query_id: str, known: Sequence[KnownQuery], decisions: Sequence[Decision]) -> SinkFacts:
    """Return what the sink's records say about the query."""
    beginning = next((query.beginning for query in known if query.query_id == query_id), None)
    last = next((decision for decision in decisions if decision.query_id == query_id), None)
    return SinkFacts(name, last, beginning)


@dataclass(frozen=True, slots=True)
class MoveRecords:
    """The records to write: first the decision, then the beginning. Without both, the move was made before.

    Attributes:
        decision: The decision to write.
        beginning: The beginning to write.
        words: The meaning of the move, for a person.
        fills: True if the missing rows of the begun batch must be written before the records.
    """

    decision: Decision | None
    beginning: Beginning | None
    words: str
    fills: bool = False

    @property
    def is_done(self) -> bool:
        """Return whether nothing is left to write."""
        return self.decision is None and self.beginning is None


def needs_judging(checkpoint: Checkpoint, sink: SinkFacts, topics: Sequence[str]) -> bool:
    """Return True if a batch was begun without a decision in this sink, so that its output must be compared."""
    if not checkpoint.is_begun:
        return False
    decided = -1 if sink.last is None else sink.last.batch_id
    return decided < _last(checkpoint) and not _is_judged(checkpoint, sink, topics)


def _is_judged(checkpoint: Checkpoint, sink: SinkFacts, topics: Sequence[str]) -> bool:
    """Return True if an earlier adoption has decided that the sink writes the begun batch again.

    Such an adoption does not count if it searched for the batch in other topics.
    """
    known = sink.beginning
    last = _last(checkpoint)
    if known is None or known.is_released or known.first_batch != last:
        return False
    if known.searched is not None and not set(topics) <= known.searched:
        return False
    return last == 0 or (sink.last is not None and sink.last.batch_id == last - 1)


def begins_unknown(checkpoint: Checkpoint) -> bool:
    """Return True if no batch is committed.

    Then only `sources` has the first offsets. Spark's own source reads them from there; this source does not.
    """
    return checkpoint.last is None or (checkpoint.is_begun and checkpoint.last == 0)


def differs(checkpoint: Checkpoint, sink: SinkFacts) -> bool:
    """Return True if the checkpoint's last batch ends at other source offsets than this sink has decided it with.

    The query continues at the checkpoint's offsets. They differ if a person has changed them, or if Spark has planned
    the batch again and it had the same rows.
    """
    decided = sink.last
    if decided is None or decided.batch_id != checkpoint.last or decided.offsets is None:
        return False
    return source_lines(checkpoint.offsets) != source_lines(decided.offsets.batch)


def _last(checkpoint: Checkpoint) -> int:
    if checkpoint.last is None:
        raise AdoptionRefusedError("the query has planned no batch yet: there is nothing to take over; start it here")
    return checkpoint.last


def _check_sink(checkpoint: Checkpoint, sink: SinkFacts) -> None:
    last = _last(checkpoint)
    if sink.last is not None and sink.last.batch_id > last:
        raise AdoptionRefusedError(
            f"sink {sink.name!r} has decided batch {sink.last.batch_id} of this query, and the newest batch of the "
            f"checkpoint is {last}: it was restored from a copy, or lost files (`fencepost spark repair`)"
        )
    for other in sink.elsewhere:
        if other.batch_id >= last:
            raise AdoptionRefusedError(
                f"sink {other.sink!r} has decided batch {other.batch_id} of this query, and this is sink "
                f"{sink.name!r}: give the name under which the query has written, --sink-id {other.sink}"
            )


def adoption(
    checkpoint: Checkpoint,
    sink: SinkFacts,
    judged: tuple[BatchVerdict, str] | None,
    begun: Begun | None,
    content: Content | None,
    about: Sequence[tuple[str, str]],
    topics: Sequence[str],
) -> MoveRecords:
    """Return the records with which the sink takes the query over.

    Args:
        checkpoint: The query's checkpoint.
        sink: The records of the decision topic about the sink and the query.
        judged: The verdict about a begun batch and its reason; None if no verdict is needed.
        begun: A person's choice about that batch. It counts if the verdict is UNDECIDED or PARTLY.
        content: The content of that batch, if known.
        about: Names and texts that identify the query for a person.
        topics: The output topics, in which the begun batch was searched for.

    Raises:
        AdoptionRefusedError: The query cannot be moved.
        UndecidedBatchError: A person must choose.
    """
    _check_sink(checkpoint, sink)
    last = _last(checkpoint)
    decided = -1 if sink.last is None else sink.last.batch_id
    if decided == last:  # by this sink, or by an adoption before
        first = last if checkpoint.is_begun else last + 1
        words = f"batch {last} is decided by this sink: start the query here"
        return MoveRecords(None, _beginning(sink, checkpoint, first, about), words)
    if not checkpoint.is_begun:
        decision = _decision(checkpoint, sink, last, None, None)
        words = f"batch {last} is finished; the query continues here with batch {last + 1}"
        return MoveRecords(decision, _beginning(sink, checkpoint, last + 1, about), words)
    if _is_judged(checkpoint, sink, topics):
        return MoveRecords(None, None, AGAIN.format(last))
    if judged is None:
        raise UndecidedBatchError(f"batch {last} was begun, and the output was not looked at: give --topic")
    verdict, reason = judged
    done = _choice(last, verdict, reason, begun)
    beginning = _beginning(sink, checkpoint, last, about)
    if done:
        offsets = SourceOffsets(checkpoint.offsets, checkpoint.before)
        decision = _decision(checkpoint, sink, last, content, offsets if content is not None else None)
        fills = verdict is BatchVerdict.PARTLY and begun is Begun.MISSING
        how = "is written up to its end, and then counts as written" if fills else "counts as written"
        words = f"batch {last} {how} ({reason}); the query repeats it here, and nothing of it is written again"
        return MoveRecords(decision, beginning, words, fills)
    words = f"batch {last} counts as not written ({reason}); {AGAIN.format(last)}"
    before = _decision(checkpoint, sink, last - 1, None, None) if decided < last - 1 else None
    searched = Beginning(sink.name, checkpoint.query_id, last, tuple(about)).not_found_in(topics)
    return MoveRecords(before, searched, words)


def _choice(last: int, verdict: BatchVerdict, reason: str, begun: Begun | None) -> bool:
    """Return True if the batch counts as written. Refuses a person's choice that contradicts the verdict."""
    if verdict in (BatchVerdict.UNDECIDED, BatchVerdict.PARTLY):
        if begun is None or (begun is Begun.MISSING and verdict is BatchVerdict.UNDECIDED):
            raise UndecidedBatchError(f"batch {last} was begun and not finished: {reason}")
        return begun is not Begun.AGAIN
    proved = Begun.DONE if verdict is BatchVerdict.WHOLE else Begun.AGAIN
    if begun not in (None, proved, Begun.MISSING):
        loss = "it would be there twice" if verdict is BatchVerdict.WHOLE else "it would be lost"
        raise AdoptionRefusedError(f"--begun {begun.value}: of batch {last}, {reason}; {loss}. Leave --begun out")
    return proved is Begun.DONE


def _decision(
    checkpoint: Checkpoint, sink: SinkFacts, batch_id: int, content: Content | None, offsets: SourceOffsets | None
) -> Decision | None:
    """Return the decision for a batch; None if its number is negative, because there is no batch before the first."""
    if batch_id < 0:
        return None
    return Decision(sink.name, checkpoint.query_id, batch_id, (), content, offsets)


def _beginning(
    sink: SinkFacts, checkpoint: Checkpoint, first: int, about: Sequence[tuple[str, str]]
) -> Beginning | None:
    """Return the beginning to write; None if the existing one still counts.

    A query that this sink has written up to the checkpoint's last batch keeps its own beginning.
    """
    known = sink.beginning
    if known is not None and not known.is_released:
        is_its_own = sink.last is not None and sink.last.batch_id == checkpoint.last and known.first_batch <= first
        if known.first_batch == first or is_its_own:
            return None
    return Beginning(sink.name, checkpoint.query_id, first, tuple(about))


def release(checkpoint: Checkpoint, sink: SinkFacts) -> MoveRecords:
    """Return the record with which the sink gives the query back to Spark's own connector.

    The caller that writes the record opens the sink first. Then every decided batch is complete, and an undecided batch
    can no longer be decided by an older run. Raises AdoptionRefusedError.
    """
    last = _last(checkpoint)
    known = sink.beginning
    if sink.last is None and known is None:
        raise AdoptionRefusedError(f"sink {sink.name!r} does not know query {checkpoint.query_id}: nothing to release")
    if known is not None and known.is_released:
        return MoveRecords(None, None, "the query was released before: start it with format('kafka')")
    _check_sink(checkpoint, replace(sink, elsewhere=()))
    decided = -1 if sink.last is None else sink.last.batch_id
    if checkpoint.is_begun and decided == last:
        raise AdoptionRefusedError(
            f"batch {last} is in the output, and Spark has not noted that it is finished: Spark's own sink would write "
            "it again. Run the query here once more with trigger(availableNow=True), and release it then"
        )
    words = f"the query continues elsewhere with batch {last + 1}"
    if checkpoint.is_begun:
        words = f"nothing of batch {last}, which was begun, is in the output: Spark's own connector writes it again"
    mark = Beginning(sink.name, checkpoint.query_id, 0) if known is None else known
    return MoveRecords(None, mark.released_after(checkpoint.committed), words)
