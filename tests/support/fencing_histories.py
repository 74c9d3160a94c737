"""Short histories of producers that are told that they are fenced, for the test of the checks."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.history_builder import UNKNOWN, HistoryBuilder

__all__ = ["FENCING"]

FencingHistory = Callable[[HistoryBuilder], None]


def a_producer_that_nobody_fenced(story: HistoryBuilder) -> None:
    story.init("q", timeout_ms=1_000)
    story.init("p", timeout_ms=1_000)
    story.begin("t1")
    story.commit("t1", "fail", fenced=True)
    story.init("q", "another id", timeout_ms=1_000)
    story.init("q", timeout_ms=1_000)
    story.read("")


def a_producer_that_another_fenced(story: HistoryBuilder) -> None:
    story.init("p", timeout_ms=1_000)
    story.begin("t1")
    story.init("q", timeout_ms=1_000)
    story.commit("t1", "fail", fenced=True)
    story.read("")


def a_producer_whose_fence_was_not_answered_before(story: HistoryBuilder) -> None:
    story.init("q", timeout_ms=1_000, how=UNKNOWN)
    story.init("p", timeout_ms=1_000)
    story.begin("t1")
    story.commit("t1", "fail", fenced=True)
    story.read("")


def a_producer_that_may_have_asked_twice(story: HistoryBuilder) -> None:
    story.init("p", timeout_ms=1_000, repeated=True)
    story.begin("t1")
    story.commit("t1", "fail", fenced=True)
    story.read("")


def a_producer_whose_transaction_another_ended(story: HistoryBuilder) -> None:
    story.init("p", timeout_ms=1_000)
    story.begin("t1")
    story.abort("t1", process="q")
    story.commit("t1", "fail", fenced=True)
    story.read("")


def a_transaction_that_ended_long_before(story: HistoryBuilder) -> None:
    story.init("p", timeout_ms=5)
    story.begin("t1")
    story.abort("t1")
    story.begin("t2")
    story.commit("t2", "fail", fenced=True)
    story.read("")


def a_transaction_whose_time_was_over(story: HistoryBuilder) -> None:
    story.init("p", timeout_ms=5)
    story.begin("t1")
    story.send("a", "t1", how=UNKNOWN)
    story.send("b", "t1", how=UNKNOWN)
    story.send("c", "t1", how=UNKNOWN)
    story.commit("t1", "fail", fenced=True)
    story.read("")


def a_timeout_that_is_not_known(story: HistoryBuilder) -> None:
    story.init("p")
    story.begin("t1")
    story.commit("t1", "fail", fenced=True)
    story.read("")


FENCING: list[tuple[str, FencingHistory, FencingHistory]] = [
    ("fenced_by_nobody", a_producer_that_nobody_fenced, a_producer_that_another_fenced),
    ("fenced_by_nobody", a_producer_that_nobody_fenced, a_producer_whose_fence_was_not_answered_before),
    ("fenced_by_nobody", a_producer_that_nobody_fenced, a_producer_that_may_have_asked_twice),
    ("fenced_by_nobody", a_producer_that_nobody_fenced, a_producer_whose_transaction_another_ended),
    ("fenced_by_nobody", a_transaction_that_ended_long_before, a_transaction_whose_time_was_over),
    ("fenced_by_nobody", a_transaction_that_ended_long_before, a_timeout_that_is_not_known),
]
"""The check that complains, a history in which it does, and one in which it does not."""
