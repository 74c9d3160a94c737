"""Each check finds its anomaly in a history of a few lines, and nothing in a history without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.check.checks import CHECKS, check_all
from fencepost.check.history import History, Outcome, Read, Transaction, Write


def transaction(number: int, values: str, outcome: Outcome, offsets: dict[str, int] | None = None) -> Transaction:
    """A transaction of producer p that wrote one-letter values, each to partition 0."""
    return Transaction("p", number, [Write("t", 0, value) for value in values], offsets or {}, outcome)


def reads(values: str, reader: str = "r", start: int = 0) -> list[Read]:
    return [Read(reader, "t", 0, start + offset, value) for offset, value in enumerate(values)]


def clean() -> History:
    """a b committed, c aborted, d unknown and visible, e f unknown and invisible."""
    return History(
        [
            transaction(1, "ab", Outcome.COMMITTED, {"g": 7}),
            transaction(2, "c", Outcome.ABORTED, {"g": 9}),
            transaction(3, "d", Outcome.UNKNOWN, {"g": 11}),
            transaction(4, "ef", Outcome.UNKNOWN, {"g": 13}),
        ],
        [*reads("ab"), Read("r", "t", 0, 5, "d")],
        {"g": 11},
    )


def a_read_of_an_aborted_value(history: History) -> None:
    history.reads.append(Read("r", "t", 0, 9, "c"))


def a_missing_committed_value(history: History) -> None:
    del history.reads[0]


def a_half_visible_transaction(history: History) -> None:
    history.reads.append(Read("r", "t", 0, 9, "e"))


def a_value_twice(history: History) -> None:
    history.reads.append(Read("r", "t", 0, 9, "d"))


def a_later_record_first(history: History) -> None:
    history.reads[0], history.reads[1] = Read("r", "t", 0, 0, "b"), Read("r", "t", 0, 1, "a")


def another_value_at_an_offset(history: History) -> None:
    history.reads.append(Read("other", "t", 0, 5, "a"))


def a_position_that_was_aborted(history: History) -> None:
    history.committed_offsets["g"] = 9


def a_position_that_went_back(history: History) -> None:
    history.committed_offsets["g"] = -1


PLANTED = [
    ("aborted_read", a_read_of_an_aborted_value),
    ("lost_write", a_missing_committed_value),
    ("torn", a_half_visible_transaction),
    ("duplicate", a_value_twice),
    ("reordered", a_later_record_first),
    ("divergence", another_value_at_an_offset),
    ("lost_offset", a_position_that_was_aborted),
    ("lost_offset", a_position_that_went_back),
]


def test_a_clean_history_passes() -> None:
    assert check_all(clean()) == []


@pytest.mark.parametrize(("check", "plant"), PLANTED)
def test_a_planted_anomaly_is_found(check: str, plant: Callable[[History], None]) -> None:
    history = clean()
    plant(history)
    assert check in {anomaly.check for anomaly in check_all(history)}


def test_every_check_has_a_planted_anomaly() -> None:
    assert {name for name, _ in PLANTED} == {check.__name__ for check in CHECKS}


def test_a_history_without_reads_is_no_proof() -> None:
    with pytest.raises(ValueError, match="no reads"):
        check_all(History([transaction(1, "a", Outcome.COMMITTED)]))
