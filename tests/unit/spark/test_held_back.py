"""When a partition that stands still is told of, and when not."""

from __future__ import annotations

from fencepost.client.types import TopicPartition
from fencepost.errors import KafkaTimeoutError
from fencepost.spark.sink.decision import Pair
from fencepost.spark.source.held_back import FirstOpenTransaction, StalledPartition, StallWatch, describe_first_open

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_it_is_told_after_a_minute_and_every_minute_and_when_it_is_over() -> None:
    watch = StallWatch()
    high = {A: 9, B: 9}
    logged_at = [
        at
        for at in range(0, 200, 10)
        if [stall.partition for stall in watch.update(at, {A: 5, B: 5 + at // 50}, high)[0]] == [A]
    ]
    assert logged_at == [60, 120, 180]
    due, moved = watch.update(200, {A: 6, B: 9}, high)
    assert (due, moved) == ([], [A])
    assert watch.update(210, {A: 6, B: 9}, high) == ([], [])
    assert watch.update(290, {A: 6, B: 9}, {A: 12, B: 9}) == ([StalledPartition(A, 6, 6, 90)], [])


def test_how_long_is_an_option() -> None:
    watch = StallWatch(5000)
    logged_at = [at for at in range(0, 80, 4) if watch.update(at, {A: 5}, {A: 9})[0]]
    assert logged_at == [8, 68]  # and again each minute


def test_what_has_nothing_behind_it_or_goes_on_does_not_stand_still() -> None:
    watch = StallWatch()
    for at in range(0, 1000, 40):
        assert watch.update(at, {A: 5, B: at}, {A: 5, B: at + 3}) == ([], [])
    # Since when somebody waits, and not since when nothing was written.
    assert watch.update(1000, {A: 5}, {A: 6}) == ([], [])
    assert watch.update(1059, {A: 5}, {A: 7}) == ([], [])
    assert watch.update(1060, {A: 5}, {A: 7}) == ([StalledPartition(A, 5, 2, 60)], [])
    assert watch.update(1070, {}, {}) == ([], [A])


def test_who_is_waited_for_is_said_as_far_as_it_is_known() -> None:
    pair = Pair(5, 1)
    assert (
        describe_first_open(FirstOpenTransaction(pair, "x", 90_000, 900_000))
        == "transaction 'x' (producer 5:1, open for 1 min 30 s, timeout 15 min)"
    )
    assert "no timeout: its owner is to decide it" in describe_first_open(FirstOpenTransaction(pair, "x", None, None))
    assert "producer 5:1, which no coordinator reports" in describe_first_open(
        FirstOpenTransaction(pair, None, None, None)
    )
    assert describe_first_open(KafkaTimeoutError("late")) == "an open transaction; the brokers do not say which: late"
    assert "ended meanwhile" in describe_first_open(None)
