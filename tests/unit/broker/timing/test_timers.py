"""Appointments of the core."""

from __future__ import annotations

from fencepost.broker.timing.timers import Timers


def test_they_happen_in_order_of_time_and_of_entry_and_once() -> None:
    timers, done = Timers(), []
    for due, name in ((20, "c"), (10, "a"), (10, "b"), (30, "d")):
        timers.at(due, lambda now, name=name: done.append((now, name)))  # type: ignore[misc]
    assert timers.next_ms() == 10
    timers.run(25)
    assert done == [(25, "a"), (25, "b"), (25, "c")]
    timers.run(25)
    assert len(done) == 3
    assert timers.next_ms() == 30


def test_a_cancelled_one_never_happens_and_is_not_waited_for() -> None:
    timers = Timers()
    done: list[int] = []
    first = timers.at(10, done.append)
    timers.at(20, done.append)
    first.cancel()
    assert timers.next_ms() == 20
    timers.run(50)
    assert done == [50]
    assert timers.next_ms() is None


def test_what_an_action_adds_is_done_at_the_next_call() -> None:
    timers, done = Timers(), []

    def again(now_ms: int) -> None:
        done.append(now_ms)
        timers.at(now_ms, again)

    timers.at(1, again)
    timers.run(5)
    timers.run(6)
    assert done == [5, 6]
