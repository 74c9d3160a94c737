"""Which batch of a partition goes out next."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.client.producer.chunks import Batch
from fencepost.client.producer.partition_queue import PartitionQueue


class OneRecord:
    """What a queue looks at of a batch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 1
        self.sequence = -1
        self.attempts = 0
        self.maybe_appended = False


def batch(name: str) -> Any:
    return OneRecord(name)


def queue_of(*batches: Batch) -> PartitionQueue:
    """All of them were sent."""
    queue = PartitionQueue("t", 0)
    queue.introduced = True
    queue.pending.extend(batches)
    for waiting in batches:
        queue.take()
        queue.number(waiting)
    return queue


@pytest.mark.parametrize("only_retries", [False, True])
def test_what_may_be_in_the_log_is_asked_for_before_what_is_not(only_retries: bool) -> None:
    """A batch before it was refused: behind a gap, or by a broker that lost the partition for a moment. It cannot go
    out before it is renumbered, which the batch in doubt holds up: both would wait until their time is over."""
    gone, refused, doubtful, unsent = [batch(name) for name in ("gone", "refused", "doubtful", "unsent")]
    queue = queue_of(gone, refused, doubtful)
    queue.pending.append(unsent)
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
    assert queue.sendable(0, only_retries=False) is refused
