"""One deadline per key, moved cheaply."""

from __future__ import annotations

from fencepost.broker.coordinator.group.base.deadlines import Deadline, DeadlineKind
from fencepost.broker.timing.deadlines import Deadlines

A = Deadline("classic", DeadlineKind.SESSION, "g", "a")
B = Deadline("classic", DeadlineKind.SESSION, "g", "b")


def test_earliest_first() -> None:
    deadlines = Deadlines[Deadline]()
    deadlines.set(A, 20)
    deadlines.set(B, 10)
    assert deadlines.next_ms() == 10
    assert list(deadlines.pop_due(9)) == []
    assert list(deadlines.pop_due(20)) == [B, A]
    assert deadlines.next_ms() is None


def test_a_moved_deadline_counts_once_at_its_last_time() -> None:
    deadlines = Deadlines[Deadline]()
    for at_ms in (10, 30, 5, 40):
        deadlines.set(A, at_ms)
    assert deadlines.next_ms() == 40
    assert list(deadlines.pop_due(39)) == []
    assert list(deadlines.pop_due(40)) == [A]
    assert list(deadlines.pop_due(1000)) == []


def test_a_cancelled_deadline_does_not_come_and_can_be_set_again() -> None:
    deadlines = Deadlines[Deadline]()
    deadlines.set(A, 10)
    deadlines.cancel(A)
    deadlines.cancel(B)
    assert deadlines.next_ms() is None
    deadlines.set(A, 15)
    assert list(deadlines.pop_due(15)) == [A]


def test_heartbeats_do_not_make_the_heap_grow() -> None:
    deadlines = Deadlines[Deadline]()
    for now_ms in range(0, 100_000, 10):
        deadlines.set(A, now_ms + 30_000)
        assert list(deadlines.pop_due(now_ms)) == []
    assert len(deadlines._heap) == 1


def test_deadlines_set_while_popping_count_if_due() -> None:
    deadlines = Deadlines[Deadline]()
    deadlines.set(A, 10)
    seen = []
    for key in deadlines.pop_due(20):
        seen.append(key)
        if key == A:
            deadlines.set(B, 15)
    assert seen == [A, B]
