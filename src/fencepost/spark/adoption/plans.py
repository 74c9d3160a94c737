"""From what was found to the records that the decision topic needs. Pure: facts in, records or a refusal out.

To take a query over, the sink has to know two things: the last batch that is in the output (a decision), and the first
batch that it may be given (the query's beginning). A kill may come between the two records, so the decision is first:
alone it already keeps the sink from writing a batch that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from fencepost.spark.adoption.checkpoint import Checkpoint
from fencepost.spark.adoption.refusals import AdoptionRefusedError, UndecidedBatchError
from fencepost.spark.adoption.verdict import BatchVerdict
from fencepost.spark.sink.decision import Beginning, Content, Decision, SourceOffsets

__all__ = ["Begun", "Move", "SinkFacts", "adoption", "begins_unknown", "needs_judging", "release"]

AGAIN: Final = "start the query here; it writes batch {} again, exactly once"


class Begun(Enum):
    """A person's word about a batch that was begun."""

    AGAIN = "again"
    DONE = "done"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """The sink that is to take the query over, as the decision topic knows it.

    `last`: its last decision of the query. `beginning`: the query's beginning there. `elsewhere`: the query's last
    decisions in sinks of other names.
    """

    name: str
    last: Decision | None = None
    beginning: Beginning | None = None
    elsewhere: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """The records to write, the decision before the beginning, and what they mean for a person.

    Without either the move was made before. `fills`: the rows of the begun batch that are missing in the output have
    to be written before.
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
    """Return whether a batch was begun that the sink knows nothing of, so that the output has to be looked at."""
    if not checkpoint.is_begun:
        return False
    decided = -1 if sink.last is None else sink.last.batch_id
    return decided < _last(checkpoint) and not _is_judged(checkpoint, sink, topics)


def _is_judged(checkpoint: Checkpoint, sink: SinkFacts, topics: Sequence[str]) -> bool:
    """Return whether the query was taken over before, to begin with the batch that was begun.

    Not if the batch was then looked for in other topics.
    """
    known = sink.beginning
    last = _last(checkpoint)
    if known is None or known.is_released or known.first_batch != last:
        return False
    if known.searched is not None and not set(topics) <= known.searched:
        return False
    return last == 0 or (sink.last is not None and sink.last.batch_id == last - 1)


def begins_unknown(checkpoint: Checkpoint) -> bool:
    """Return whether no batch is finished.

    Spark's own source reads the start of the first batch from `sources`; this source does not.
    """
    return checkpoint.last is None or (checkpoint.is_begun and checkpoint.last == 0)


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
) -> Move:
    """The records with which the sink takes the query over.

    Args:
        checkpoint: The query's checkpoint.
        sink: The sink, as the decision topic knows it.
        judged: The verdict about a batch that was begun; None where nobody has to judge.
        begun: A person's word about it, which counts where the verdict is UNDECIDED or PARTLY.
        content: The content of that batch, where it is known.
        about: Texts that tell a person which query it is.
        topics: The output, in which a batch that was begun was looked for.

    Raises AdoptionRefusedError, and UndecidedBatchError where a person has to choose.
    """
    _check_sink(checkpoint, sink)
    last = _last(checkpoint)
    decided = -1 if sink.last is None else sink.last.batch_id
    if decided == last:  # by this sink, or by an adoption before
        first = last if checkpoint.is_begun else last + 1
        words = f"batch {last} is decided by this sink: start the query here"
        return Move(None, _beginning(sink, checkpoint, first, about), words)
    if not checkpoint.is_begun:
        decision = _decision(checkpoint, sink, last, None, None)
        words = f"batch {last} is finished; the query goes on here with batch {last + 1}"
        return Move(decision, _beginning(sink, checkpoint, last + 1, about), words)
    if _is_judged(checkpoint, sink, topics):
        return Move(None, None, AGAIN.format(last))
    if judged is None:
        raise UndecidedBatchError(f"batch {last} was begun, and the output was not looked at: give --topic")
    verdict, why = judged
    done = _choice(last, verdict, why, begun)
    beginning = _beginning(sink, checkpoint, last, about)
    if done:
        offsets = SourceOffsets(checkpoint.offsets, checkpoint.before)
        decision = _decision(checkpoint, sink, last, content, offsets if content is not None else None)
        fills = verdict is BatchVerdict.PARTLY and begun is Begun.MISSING
        how = "is written up to its end, and then counts as written" if fills else "counts as written"
        words = f"batch {last} {how} ({why}); the query repeats it here, and nothing of it is written again"
        return Move(decision, beginning, words, fills)
    words = f"batch {last} counts as not written ({why}); {AGAIN.format(last)}"
    before = _decision(checkpoint, sink, last - 1, None, None) if decided < last - 1 else None
    searched = Beginning(sink.name, checkpoint.query_id, last, tuple(about)).not_found_in(topics)
    return Move(before, searched, words)


def _choice(last: int, verdict: BatchVerdict, why: str, begun: Begun | None) -> bool:
    """Return whether the batch counts as written. A person's word against proof is refused."""
    if verdict in (BatchVerdict.UNDECIDED, BatchVerdict.PARTLY):
        if begun is None or (begun is Begun.MISSING and verdict is BatchVerdict.UNDECIDED):
            raise UndecidedBatchError(f"batch {last} was begun and not finished: {why}")
        return begun is not Begun.AGAIN
    proved = Begun.DONE if verdict is BatchVerdict.WHOLE else Begun.AGAIN
    if begun not in (None, proved, Begun.MISSING):
        loss = "it would be there twice" if verdict is BatchVerdict.WHOLE else "it would be lost"
        raise AdoptionRefusedError(f"--begun {begun.value}: of batch {last}, {why}; {loss}. Leave --begun out")
    return proved is Begun.DONE


def _decision(
    checkpoint: Checkpoint, sink: SinkFacts, batch_id: int, content: Content | None, offsets: SourceOffsets | None
) -> Decision | None:
    """None below the first batch, and where the sink has decided as much."""
    if batch_id < 0:
        return None
    return Decision(sink.name, checkpoint.query_id, batch_id, (), content, offsets)


def _beginning(
    sink: SinkFacts, checkpoint: Checkpoint, first: int, about: Sequence[tuple[str, str]]
) -> Beginning | None:
    """None where the sink has one that still counts: a query that it has written all along keeps its own."""
    known = sink.beginning
    if known is not None and not known.is_released:
        is_its_own = sink.last is not None and sink.last.batch_id == checkpoint.last and known.first_batch <= first
        if known.first_batch == first or is_its_own:
            return None
    return Beginning(sink.name, checkpoint.query_id, first, tuple(about))


def release(checkpoint: Checkpoint, sink: SinkFacts) -> Move:
    """The record with which the sink gives the query back to Spark's own connector.

    The sink was opened before: what it has decided is complete, and what it has not decided never will be. Raises
    AdoptionRefusedError.
    """
    last = _last(checkpoint)
    known = sink.beginning
    if sink.last is None and known is None:
        raise AdoptionRefusedError(f"sink {sink.name!r} does not know query {checkpoint.query_id}: nothing to release")
    if known is not None and known.is_released:
        return Move(None, None, "the query was released before: start it with format('kafka')")
    _check_sink(checkpoint, replace(sink, elsewhere=()))
    decided = -1 if sink.last is None else sink.last.batch_id
    if checkpoint.is_begun and decided == last:
        raise AdoptionRefusedError(
            f"batch {last} is in the output, and Spark has not noted that it is finished: Spark's own sink would write "
            "it again. Run the query here once more with trigger(availableNow=True), and release it then"
        )
    words = f"the query goes on elsewhere with batch {last + 1}"
    if checkpoint.is_begun:
        words = f"nothing of batch {last}, which was begun, is in the output: Spark's own connector writes it again"
    mark = Beginning(sink.name, checkpoint.query_id, 0) if known is None else known
    return Move(None, mark.released_after(checkpoint.committed), words)
