"""The sink's check finds each anomaly in a history of a few lines, and nothing in a history without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fencepost_lab.check.history import RecordRead
from fencepost_lab.check.sink_history import BatchRecord, DecisionRead, SinkHistory
from fencepost_lab.check.sink_once import sink_once


def clean() -> SinkHistory:
    """Two committed batches, the second without rows; a third that was decided, a fourth that was not."""
    return SinkHistory(
        batches=[
            BatchRecord("q", 0, ("a", "b", "c"), committed=True),
            BatchRecord("q", 1, (), committed=True),
            BatchRecord("q", 2, ("d", "e"), committed=False),
            BatchRecord("q", 3, ("f",), committed=False),
        ],
        reads=[RecordRead("r", "t", 0, offset, value) for offset, value in enumerate("abcde")],
        decisions=[
            DecisionRead("watcher", "q", 0, (("x", 1, 0), ("y", 2, 0))),
            DecisionRead("watcher", "q", 2, (("z", 3, 1),)),
            DecisionRead("end", "q", 0, (("y", 2, 0), ("x", 1, 0))),
        ],
    )


def twice(history: SinkHistory) -> None:
    history.reads.append(RecordRead("r", "t", 1, 0, "b"))


def missing(history: SinkHistory) -> None:
    del history.reads[1]


def foreign(history: SinkHistory) -> None:
    history.reads.append(RecordRead("r", "t", 0, 9, "x"))


def torn(history: SinkHistory) -> None:
    del history.reads[4]


def in_doubt(history: SinkHistory) -> None:
    history.in_doubt.append("fencepost-sink/s/00")


def decided_otherwise(history: SinkHistory) -> None:
    history.decisions.append(DecisionRead("end", "q", 2, (("w", 3, 1),)))


def gone_back(history: SinkHistory) -> None:
    history.decisions.append(DecisionRead("watcher", "q", 0, (("x", 1, 0), ("y", 2, 0))))


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (twice, "sink_duplicate"),
        (missing, "sink_missing"),
        (foreign, "sink_foreign"),
        (torn, "sink_torn"),
        (in_doubt, "sink_in_doubt"),
        (decided_otherwise, "sink_decision"),
        (gone_back, "sink_decision"),
    ],
)
def test_a_planted_anomaly_is_found_and_no_other(plant: Callable[[SinkHistory], None], found: str) -> None:
    history = clean()
    assert sink_once(history) == []
    plant(history)
    assert [anomaly.check for anomaly in sink_once(history)] == [found]


def test_a_part_of_a_batch_may_be_missing_only_where_its_loss_was_told_and_it_is_not_committed() -> None:
    history = clean()
    torn(history)
    history.lost.add("another")
    assert [anomaly.check for anomaly in sink_once(history)] == ["sink_torn"]
    history.lost.add("q")
    assert sink_once(history) == []
    history.batches[2] = replace(history.batches[2], committed=True)
    assert [anomaly.check for anomaly in sink_once(history)] == ["sink_missing"]


def test_a_history_without_batches_proves_nothing() -> None:
    with pytest.raises(ValueError, match="no batches"):
        sink_once(SinkHistory())
