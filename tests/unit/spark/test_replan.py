"""When the plan of a batch may be taken back: only if the sink knows the query, and has nothing of the batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.spark.adoption.checkpoint import Checkpoint, parse
from fencepost.spark.adoption.plans import SinkFacts
from fencepost.spark.adoption.replan import refusal
from fencepost.spark.sink import checkpoint
from fencepost.spark.sink.decision import Beginning, Decision
from tests.unit.spark import adoption_files as files

OWN = Beginning("s", files.QUERY, 0)


def begun(last: int = 5) -> Checkpoint:
    return parse(files.checkpoint(last, begun=True))


def decision(batch_id: int, sink: str = "s") -> Decision:
    return Decision(sink, files.QUERY, batch_id, (), None, None)


def facts(decided: int | None, beginning: Beginning | None = OWN, *, other: int | None = None) -> SinkFacts:
    """Return what is known: the last decisions of the sink and of another one."""
    elsewhere = () if other is None else (decision(other, "t"),)
    return SinkFacts("s", None if decided is None else decision(decided), beginning, elsewhere)


@pytest.mark.parametrize("decided", [None, 0, 4])  # a batch without rows has no decision
def test_what_is_planned_and_not_decided_may_be_taken_back(decided: int | None) -> None:
    assert refusal(begun(), facts(decided), 0) is None


def test_a_query_without_a_finished_batch_needs_only_a_new_checkpoint() -> None:
    """Spark refuses a checkpoint with a file in `offsets` or `state` before batch 0."""
    assert "nothing of it is written. Start the query with a new checkpointLocation" in (
        refusal(begun(0), facts(None), 0) or ""
    )
    assert "has no record of query" in (refusal(begun(0), SinkFacts("s"), 0) or "")
    assert "batch 0 is in the output" in (refusal(begun(0), facts(0), 0) or "")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (SinkFacts("s"), "has no record of query"),
        (facts(5), "batch 5 is in the output"),
        (facts(6), "has decided batch 6, so batch 5 is in the output"),
        (facts(4, other=5), "sink 't' has decided batch 5"),
        (facts(4, OWN.released_after(4)), "given back to another sink"),
        (facts(None, Beginning("s", files.QUERY, 6)), "batch 5 was written by another sink"),
    ],
)
def test_what_may_be_written_or_is_unknown_is_refused(found: SinkFacts, words: str) -> None:
    assert words in (refusal(begun(), found, 0) or "")


def test_open_transactions_are_not_decided_behind_the_back_of_a_running_query() -> None:
    assert "open transactions that are not decided (2)" in (refusal(begun(), facts(4), 2) or "")


def test_earlier_batches_of_another_sink_do_not_matter() -> None:
    assert refusal(begun(), facts(4, other=4), 0) is None
    assert refusal(begun(), facts(4, Beginning("s", files.QUERY, 5)), 0) is None


def test_each_plan_that_was_taken_back_is_kept(tmp_path: Path) -> None:
    """Spark may plan the same number again and again."""
    folder = tmp_path / "offsets"
    folder.mkdir()
    for number in range(3):
        (folder / "7").write_text(f"plan {number}")
        (folder / ".7.crc").write_text("sum")
        replaced = checkpoint.take_back(tmp_path, 7)
        assert replaced.read_text() == f"plan {number}"
        assert not (folder / "7").exists() and not (folder / ".7.crc").exists()
    assert sorted(path.name for path in folder.iterdir()) == [".7.replaced", ".7.replaced-2", ".7.replaced-3"]
    with pytest.raises(FileNotFoundError):
        checkpoint.take_back(tmp_path, 7)
