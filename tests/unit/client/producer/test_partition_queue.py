"""Which batch of a partition goes out next."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from fencepost.client.producer.chunks import Batch
from fencepost.client.producer.partition_queue import PartitionQueue
from fencepost.errors import KafkaError


class OneRecord:
    """Stand-in for a batch, with the attributes that a queue reads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.data = name.encode()
        self.count = 1
        self.ordinal = -1
        self.sequence = -1
        self.attempts = 0
        self.maybe_appended = False


def batch(name: str) -> Any:
    return OneRecord(name)


def queue_of(*batches: Batch) -> PartitionQueue:
    """All of them were sent."""
    queue = PartitionQueue("t", 0)
    queue.introduced = True
    for waiting in batches:
        queue.append(waiting)
        queue.take()
        queue.number(waiting)
    return queue


@pytest.mark.parametrize("only_retries", [False, True])
def test_what_may_be_in_the_log_is_asked_for_before_what_is_not(only_retries: bool) -> None:
    """A batch before it was refused: behind a gap, or by a broker that lost the partition for a moment. It cannot go
    out before it is renumbered, which the batch in doubt holds up: both would wait until their time is over."""
    gone, refused, doubtful, unsent = [batch(name) for name in ("gone", "refused", "doubtful", "unsent")]
    queue = queue_of(gone, refused, doubtful)
    queue.append(unsent)
    doubtful.maybe_appended = True
    queue.put_back(refused)
    queue.put_back(doubtful)
    queue.in_flight.remove(gone)
    if not only_retries:
        queue.given_up(gone)
    assert queue.sendable(0, only_retries=only_retries) is doubtful
    assert queue.take() is doubtful
    assert queue.sendable(0, only_retries=only_retries) is None
    doubtful.maybe_appended = False
    queue.put_back(doubtful)
    assert list(queue.pending) == [refused, doubtful, unsent]
    assert queue.pending_bytes == len("refused" + "doubtful" + "unsent")
    assert queue.sendable(0, only_retries=False) is refused


def test_parts_of_a_batch_that_is_too_large_come_behind_what_was_refused_before_it() -> None:
    """The broker looks at the size before it looks at the sequence: it refuses what follows a gap with 45, and with 10
    what is too large besides. Two batches may be cut, and answers of a lost connection come in any order."""
    gone, refused, large, larger = [batch(name) for name in ("gone", "refused", "large", "larger")]
    large.count = larger.count = 2
    queue = queue_of(gone, refused, large, larger)
    queue.append(unsent := batch("unsent"))
    queue.in_flight.remove(gone)
    queue.given_up(gone)
    halves = [[batch(f"{name} {half}") for half in ("first", "second")] for name in ("large", "larger")]
    for half in (*halves[0], *halves[1]):
        half.attempts = 1
    queue.cut(larger, halves[1])
    queue.put_back(refused)
    queue.cut(large, halves[0])
    order = [refused, *halves[0], *halves[1], unsent]
    assert list(queue.pending) == order
    sent = []
    while queue.sendable(0, only_retries=False) is not None:
        sent.append(taken := queue.take())
        queue.number(taken)
        queue.acknowledged(taken, taken.sequence)
    assert sent == order
    assert [sent_batch.sequence for sent_batch in sent] == list(range(len(order)))


def test_the_first_part_comes_back_before_the_second() -> None:
    """Which waits without a sequence: it was numbered again when the gap was closed."""
    large = batch("large")
    large.count = 2
    queue = queue_of(large)
    first, second = batch("first"), batch("second")
    first.attempts = second.attempts = 1
    queue.cut(large, [first, second])
    assert queue.sendable(0, only_retries=False) is not None
    queue.number(taken := queue.take())
    assert taken is first
    queue.put_back(taken)
    assert list(queue.pending) == [first, second]


def test_what_was_in_doubt_stands_in_its_place_under_a_new_epoch() -> None:
    refused, doubtful = batch("refused"), batch("doubtful")
    queue = queue_of(refused, doubtful)
    doubtful.maybe_appended = True
    queue.put_back(refused)
    queue.put_back(doubtful)
    assert queue.sendable(0, only_retries=True) is doubtful
    queue.restart(same_id=True)
    assert list(queue.pending) == [refused, doubtful]


def test_of_a_topic_that_was_made_anew_no_offset_is_known() -> None:
    """A loss behind a duplicate, which is acknowledged without an offset, does not name one."""
    first, second = batch("first"), batch("second")
    queue = queue_of(first, second)
    queue.belongs_to(UUID(int=1))
    queue.acknowledged(first, 7)
    queue.belongs_to(UUID(int=2))
    queue.acknowledged(second, -1)
    loss = queue.loss(KafkaError("refused", code=45), -1)
    assert loss is not None
    assert loss.last_acked_offset == -1


def test_the_bytes_that_wait_are_counted() -> None:
    first, second, third = [batch(name) for name in ("first", "second", "third")]
    queue = queue_of(first)
    queue.append(second)
    queue.cut(first, [third])
    assert queue.pending_bytes == len("second" + "third")
    assert queue.remove_first() is third
    assert queue.pending_bytes == len("second")
    queue.put_back(queue.take())
    assert queue.pending_bytes == len("second")
