"""The records of a move, at every step of it: killed and repeated it ends in the same state.

The world is a query that Spark's own sink has written, its output, and a decision topic. What the sink then makes of
each batch is what the sink's own rules make of the records.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from fencepost.spark.adoption.checkpoint import Checkpoint, parse
from fencepost.spark.adoption.plans import Begun, MoveRecords, SinkFacts, adoption, needs_judging, release
from fencepost.spark.adoption.refusals import AdoptionRefusedError, UndecidedBatchError
from fencepost.spark.adoption.verdict import BatchVerdict
from fencepost.spark.sink.decision import Beginning, Content, Decision, decode_value, encode_value
from fencepost.spark.sink.decision_store import KnownQuery
from fencepost.spark.sink.unfinished import moved_away, unknown_query
from tests.unit.spark.adoption_files import QUERY, checkpoint

SINK = "sink"
CONTENT = Content(5, 77)
VERDICTS = {verdict: (verdict, "as the test says") for verdict in BatchVerdict}
ABOUT = (("topic", "out"),)
TOPICS = ("out",)


@dataclass
class Topic:
    """The decision topic: what is there of the query."""

    sink: SinkFacts = field(default_factory=lambda: SinkFacts(SINK))

    def write(self, move: MoveRecords, records: int = 2) -> None:
        """The first so many of the records; a kill comes then."""
        if move.decision is not None and records > 0:
            assert decode_value(encode_value(move.decision)) == move.decision
            self.sink = replace(self.sink, last=move.decision)
            records -= 1
        if move.beginning is not None and records > 0:
            self.sink = replace(self.sink, beginning=move.beginning)

    def comes(self, batch_id: int) -> str:
        """The batch is "written", "skipped" or "refused": as by SinkLink.check_begun, then by the task."""
        query = Beginning(SINK, QUERY, batch_id)
        last, beginning = self.sink.last, self.sink.beginning
        if last is None and beginning is None:
            return "written" if unknown_query(query, "topic", None, is_new=True) is None else "refused"
        known = KnownQuery(QUERY, beginning, None if last is None else last.batch_id)
        if moved_away(query, known, None) is not None:
            return "refused"
        if last is not None and batch_id <= last.batch_id:
            return "skipped" if batch_id == last.batch_id else "refused"
        return "written"


def adopted(
    found: Checkpoint,
    topic: Topic,
    verdict: BatchVerdict | None = None,
    begun: Begun | None = None,
    content: bool = True,
) -> MoveRecords:
    judged = VERDICTS[verdict] if verdict is not None and needs_judging(found, topic.sink, TOPICS) else None
    return adoption(found, topic.sink, judged, begun, CONTENT if content else None, ABOUT, TOPICS)


@pytest.mark.parametrize("last", [0, 1, 7])
def test_a_query_that_was_stopped_in_order_goes_on_with_the_next_batch(last: int) -> None:
    found, topic = parse(checkpoint(last)), Topic()
    move = adopted(found, topic)
    assert move.decision == Decision(SINK, QUERY, last, ())
    assert move.beginning == Beginning(SINK, QUERY, last + 1, ABOUT)
    topic.write(move)
    assert [topic.comes(batch_id) for batch_id in (last - 1, last, last + 1)] == ["refused", "refused", "written"]
    assert adopted(found, topic).is_done


@pytest.mark.parametrize("last", [0, 1, 7])
@pytest.mark.parametrize(
    ("verdict", "begun", "outcome"),
    [
        (BatchVerdict.NOTHING, None, "written"),
        (BatchVerdict.WHOLE, None, "skipped"),
        (BatchVerdict.UNDECIDED, Begun.AGAIN, "written"),
        (BatchVerdict.UNDECIDED, Begun.DONE, "skipped"),
        (BatchVerdict.PARTLY, Begun.AGAIN, "written"),
        (BatchVerdict.PARTLY, Begun.DONE, "skipped"),
        (BatchVerdict.PARTLY, Begun.MISSING, "skipped"),
        (BatchVerdict.WHOLE, Begun.MISSING, "skipped"),
        (BatchVerdict.NOTHING, Begun.MISSING, "written"),
    ],
)
def test_a_batch_that_was_begun_is_written_once(
    last: int, verdict: BatchVerdict, begun: Begun | None, outcome: str
) -> None:
    found, topic = parse(checkpoint(last, begun=True)), Topic()
    assert needs_judging(found, topic.sink, TOPICS)
    move = adopted(found, topic, verdict, begun)
    assert move.fills == (verdict is BatchVerdict.PARTLY and begun is Begun.MISSING)
    topic.write(move)
    assert [topic.comes(last), topic.comes(last + 1)] == [outcome, "written"]
    if last:
        assert topic.comes(last - 1) == "refused"
    if outcome == "skipped":
        assert topic.sink.last is not None and topic.sink.last.content == CONTENT
    assert adopted(found, topic).is_done
    assert not needs_judging(found, topic.sink, TOPICS)


def test_nothing_is_planned_without_proof_or_a_word() -> None:
    found = parse(checkpoint(2, begun=True))
    for verdict, begun in (
        (BatchVerdict.UNDECIDED, None),
        (BatchVerdict.PARTLY, None),
        (BatchVerdict.UNDECIDED, Begun.MISSING),
    ):
        with pytest.raises(UndecidedBatchError, match="batch 2 was begun and not finished"):
            adopted(found, Topic(), verdict, begun)
    with pytest.raises(UndecidedBatchError, match="not looked at"):
        adoption(found, SinkFacts(SINK), None, None, None, ABOUT, TOPICS)


@pytest.mark.parametrize(
    ("verdict", "begun", "words"),
    [(BatchVerdict.WHOLE, Begun.AGAIN, "would be there twice"), (BatchVerdict.NOTHING, Begun.DONE, "would be lost")],
)
def test_a_word_against_proof_is_refused(verdict: BatchVerdict, begun: Begun, words: str) -> None:
    with pytest.raises(AdoptionRefusedError, match=words):
        adopted(parse(checkpoint(2, begun=True)), Topic(), verdict, begun)


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("verdict", [BatchVerdict.NOTHING, BatchVerdict.WHOLE])
@pytest.mark.parametrize("last", [0, 1, 5])
def test_killed_between_the_records_nothing_is_doubled_and_the_next_run_ends_the_same(
    last: int, verdict: BatchVerdict, is_begun: bool
) -> None:
    found, whole = parse(checkpoint(last, begun=is_begun)), Topic()
    whole.write(adopted(found, whole, verdict))
    for before_the_kill in (0, 1, 2):
        topic = Topic()
        topic.write(adopted(found, topic, verdict), before_the_kill)
        is_there = not is_begun or verdict is BatchVerdict.WHOLE
        if before_the_kill or last:  # batch 0 of an unknown query is new to the sink, as it always was
            assert topic.comes(last) in (("skipped", "refused") if is_there else ("written", "refused"))
        topic.write(adopted(found, topic, verdict))
        assert topic.sink == whole.sink
        topic.write(adopted(found, topic, verdict))
        assert topic.sink == whole.sink


def test_a_query_that_the_sink_has_written_all_along_is_left_alone() -> None:
    own = Beginning(SINK, QUERY, 0, ABOUT)
    for is_begun in (False, True):
        topic = Topic(SinkFacts(SINK, Decision(SINK, QUERY, 4, ()), own))
        assert adopted(parse(checkpoint(4, begun=is_begun)), topic).is_done


def test_a_checkpoint_older_than_the_sink_is_refused() -> None:
    topic = Topic(SinkFacts(SINK, Decision(SINK, QUERY, 9, ())))
    for act in (adopted, lambda found, topic: release(found, topic.sink)):
        with pytest.raises(AdoptionRefusedError, match="restored from a copy"):
            act(parse(checkpoint(4)), topic)


def test_a_query_that_has_written_under_another_name_is_refused() -> None:
    topic = Topic(SinkFacts(SINK, elsewhere=(Decision("old", QUERY, 4, ()),)))
    with pytest.raises(AdoptionRefusedError, match="--sink-id old"):
        adopted(parse(checkpoint(4)), topic)


def test_a_query_that_has_planned_no_batch_is_refused() -> None:
    files = {"metadata": checkpoint(0)["metadata"]}
    with pytest.raises(AdoptionRefusedError, match="planned no batch yet"):
        adopted(parse(files), Topic())


# --- the way back ---


def test_a_released_query_is_refused_until_it_is_adopted_again() -> None:
    topic = Topic(SinkFacts(SINK, Decision(SINK, QUERY, 4, ()), Beginning(SINK, QUERY, 2, ABOUT)))
    move = release(parse(checkpoint(4)), topic.sink)
    assert move.beginning is not None and move.beginning.is_released
    topic.write(move)
    assert [topic.comes(batch_id) for batch_id in (4, 5, 9)] == ["refused"] * 3
    assert release(parse(checkpoint(4)), topic.sink).is_done
    assert release(parse(checkpoint(8)), topic.sink).is_done
    for last, is_begun, verdict, comes in (
        (4, False, None, [(4, "refused"), (5, "written")]),
        (8, False, None, [(8, "refused"), (9, "written")]),
        (8, True, BatchVerdict.NOTHING, [(7, "refused"), (8, "written")]),
        (8, True, BatchVerdict.WHOLE, [(7, "refused"), (8, "skipped"), (9, "written")]),
    ):
        found = parse(checkpoint(last, begun=is_begun))
        for before_the_kill in (0, 1, 2):
            back = Topic(topic.sink)
            back.write(adopted(found, back, verdict), before_the_kill)
            if before_the_kill < 2 and back.sink.beginning == topic.sink.beginning:
                assert [back.comes(batch_id) for batch_id in (last, last + 1)] == ["refused", "refused"]
            back.write(adopted(found, back, verdict))
            assert [(batch_id, back.comes(batch_id)) for batch_id, _ in comes] == comes


def test_a_batch_that_is_in_the_output_and_not_noted_is_not_released() -> None:
    sink = SinkFacts(SINK, Decision(SINK, QUERY, 4, ()), Beginning(SINK, QUERY, 0))
    with pytest.raises(AdoptionRefusedError, match="batch 4 is in the output, and Spark has not noted"):
        release(parse(checkpoint(4, begun=True)), sink)
    assert release(parse(checkpoint(5, begun=True)), sink).beginning is not None


def test_what_the_sink_does_not_know_is_not_released() -> None:
    with pytest.raises(AdoptionRefusedError, match="nothing to release"):
        release(parse(checkpoint(4)), SinkFacts(SINK))
