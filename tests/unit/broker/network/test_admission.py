"""Admission of connections: acceptance, displacement, and the end of silent ones."""

from __future__ import annotations

import pytest

from fencepost.broker.metrics.log_rate_limit import RateLimit, RateLimits
from fencepost.broker.network.admission import Admission, connections_for

HERE, THERE = "10.0.0.1", "10.0.0.2"


def test_silent_connections_give_way_in_the_order_they_came() -> None:
    admission = Admission(3, 10, 1000)
    for connection_id in (1, 2, 3):
        assert admission.enter(0, connection_id, HERE) == (None, None)
    admission.used(1, 1, is_request=True)
    assert admission.enter(2, 4, THERE) == (None, 2)
    assert admission.enter(2, 5, THERE) == (None, 3)
    admission.used(3, 4, is_request=True)
    admission.used(3, 5, is_request=True)
    assert len(admission) == 3
    refusal, displaced = admission.enter(4, 6, THERE)
    assert refusal is not None and "max.connections" in refusal and displaced is None
    admission.leave(1)
    assert admission.enter(5, 6, THERE) == (None, None)


def test_who_was_not_heard_of_for_a_minute_gives_way_too() -> None:
    admission = Admission(2, 10, 600_000)
    for connection_id in (1, 2):
        admission.enter(0, connection_id, HERE)
        admission.used(connection_id, connection_id, is_request=True)
    admission.used(30_000, 1, is_request=False)
    assert admission.enter(60_001, 3, THERE).refusal is not None
    assert admission.enter(60_002, 3, THERE) == (None, 2)
    assert admission.enter(60_002, 4, THERE) == (None, 3)


def test_an_answer_is_no_question() -> None:
    admission = Admission(1, 10, 1000)
    admission.enter(0, 1, HERE)
    admission.used(1, 1, is_request=False)
    assert admission.enter(2, 2, HERE) == (None, 1)


def test_no_address_has_more_than_its_share() -> None:
    admission = Admission(10, 2, 1000)
    assert [admission.enter(0, each, HERE).refusal is None for each in (1, 2, 3)] == [True, True, False]
    assert admission.enter(0, 4, THERE).refusal is None
    admission.leave(1)
    admission.leave(1)
    assert admission.enter(0, 5, HERE).refusal is None
    assert admission.enter(0, 6, HERE).refusal is not None


def test_what_is_not_used_is_closed() -> None:
    admission = Admission(10, 10, 1000)
    assert admission.next_ms() is None
    for connection_id in (1, 2, 3):
        admission.enter(connection_id, connection_id, HERE)
    assert admission.next_ms() == 1001
    assert admission.idle(1000) == []
    admission.used(500, 1, is_request=True)
    assert admission.idle(1003) == [2, 3]
    assert (len(admission), admission.next_ms()) == (1, 1500)
    admission.used(1600, 2, is_request=True)  # it is gone: nothing comes of it
    assert admission.idle(1500) == [1]
    assert len(admission) == 0


@pytest.mark.parametrize(
    ("descriptors", "files", "connections"), [(1024, 256, 704), (256, 64, 128), (64, 16, 32), (20, 16, 1)]
)
def test_connections_leave_descriptors_for_the_rest(descriptors: int, files: int, connections: int) -> None:
    assert connections_for(descriptors, files) == connections


def test_the_pace_of_log_lines() -> None:
    pace = RateLimit(100)
    assert [pace.hit(now_ms) for now_ms in (0, 1, 99, 100, 101, 500)] == [1, 0, 0, 3, 0, 2]


def test_so_many_subjects_have_a_pace_of_their_own() -> None:
    paces = RateLimits()
    assert [paces.hit(0, str(number % 1_000)) for number in range(2_000)] == [1] * 1_000 + [0] * 1_000
    assert [paces.hit(0, "one more"), paces.hit(0, "1"), paces.hit(0, "0")] == [1, 0, 1]
