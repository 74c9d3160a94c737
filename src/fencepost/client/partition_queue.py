"""One partition's batches in the producer: their order, sequences, and what was acknowledged last."""

from __future__ import annotations

from collections import deque
from typing import Final

from fencepost.client.accumulator import Batch
from fencepost.protocol.batch import add_sequence

MOST_IN_FLIGHT: Final = 5  # a broker remembers so many batches of a producer (duplicates beyond are not recognised)


class PartitionQueue:
    """`pending` in order of sending, `in_flight` in order of their sequences."""

    __slots__ = (
        "gap",
        "in_flight",
        "introduced",
        "last_acked_offset",
        "last_acked_sequence",
        "next_sequence",
        "not_before_ms",
        "partition",
        "pending",
        "topic",
    )

    def __init__(self, topic: str, partition: int, *, idempotent: bool = True) -> None:
        self.introduced = not idempotent  # the broker knows our producer id in this partition
        self.topic = topic
        self.partition = partition
        self.pending: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.last_acked_offset = -1
        self.not_before_ms = 0
        self.gap = False  # a numbered batch was refused for good: those behind it take new numbers

    def sendable(self, now_ms: int, *, only_retries: bool) -> Batch | None:
        """The next batch, if it may go out now. With `only_retries`: only if it may have been appended already.

        The first batch of a producer id goes alone: Apache Kafka takes any sequence from an id that a partition does
        not know. Were the first one refused (the leader is not ready yet) and the second taken, the first could never
        follow.
        """
        most = MOST_IN_FLIGHT if self.introduced else 1
        if not self.pending or now_ms < self.not_before_ms or len(self.in_flight) >= most:
            return None
        if self.gap:
            if self.in_flight:
                return None
            self._close_gap()
        batch = self.pending[0]
        if batch.attempts and self.in_flight:
            return None
        if only_retries and not batch.maybe_appended:
            return None
        return batch

    def _close_gap(self) -> None:
        """Number again what was not appended, unless something may have been: that is asked again as it is first."""
        if any(one.maybe_appended for one in self.pending):
            return
        self.gap = False
        for one in self.pending:
            one.sequence = -1
        self.next_sequence = 0 if self.last_acked_sequence < 0 else add_sequence(self.last_acked_sequence, 1)

    def take(self) -> Batch:
        """Move the next batch in flight."""
        batch = self.pending.popleft()
        self.in_flight.append(batch)
        return batch

    def number(self, batch: Batch) -> None:
        """Give a batch its sequence, once."""
        if batch.sequence < 0:
            batch.sequence = self.next_sequence
            self.next_sequence = add_sequence(self.next_sequence, batch.count)

    def put_back(self, batch: Batch) -> None:
        """Back from the wire without success, into its place by sequence."""
        self.in_flight.remove(batch)
        batch.attempts += 1
        for position, one in enumerate(self.pending):
            if not (one.attempts and _before(one.sequence, batch.sequence)):
                self.pending.insert(position, batch)
                return
        self.pending.append(batch)

    def acknowledged(self, batch: Batch, base_offset: int) -> None:
        """The broker has it (base_offset -1: as a duplicate, or it does not say)."""
        self.in_flight.remove(batch)
        self.introduced = True
        if batch.sequence >= 0:
            self.last_acked_sequence = add_sequence(batch.sequence, batch.count - 1)
        if base_offset >= 0:
            self.last_acked_offset = base_offset + batch.count - 1

    def waits_for_an_earlier(self, batch: Batch) -> bool:
        """Whether a batch with a lower sequence has no final answer, or was refused, so that a gap is no loss."""
        if self.gap:
            return True
        unresolved = [one for one in (*self.in_flight, *self.pending) if one is not batch and one.sequence >= 0]
        return any(_before(one.sequence, batch.sequence) for one in unresolved)

    def restart(self, *, same_id: bool) -> None:
        """A new producer id, or a new epoch of the same: sequences from 0, also for what waits."""
        self.introduced = self.introduced and same_id
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.gap = False
        for one in self.pending:
            one.sequence = -1
            one.maybe_appended = False


def _before(one: int, other: int) -> bool:
    """Whether sequence `one` comes before `other`, over the wrap at 2**31."""
    return one != other and (other - one) % 2**31 < 2**30
