"""One partition's batches in the producer: their order, sequences, and what was acknowledged last."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from operator import attrgetter
from typing import Final
from uuid import UUID

from fencepost.client.producer.chunks import Batch
from fencepost.errors import DataLossError, KafkaError
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.records.batch import add_sequence

MOST_IN_FLIGHT: Final = 5  # a broker remembers so many batches of a producer (duplicates beyond are not recognised)


class PartitionQueue:
    """`pending` in order of sending, `in_flight` in order of their sequences."""

    __slots__ = (
        "acked_at_unknown_offset",
        "doubted_ms",
        "gap",
        "idempotent",
        "in_flight",
        "introduced",
        "last_acked_offset",
        "last_acked_sequence",
        "name",
        "next_ordinal",
        "next_sequence",
        "not_before_ms",
        "partition",
        "pending",
        "pending_bytes",
        "topic",
        "topic_id",
        "unknown",
        "what",
    )

    def __init__(self, topic: str, partition: int, *, idempotent: bool = True) -> None:
        self.idempotent = idempotent
        self.introduced = not idempotent  # the broker knows our producer id in this partition
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.what = f"sending to {self.name}"  # for the log
        self.pending: deque[Batch] = deque()
        self.pending_bytes = 0
        self.in_flight: list[Batch] = []
        self.next_ordinal = 0
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.last_acked_offset = -1
        self.acked_at_unknown_offset = False  # behind last_acked_offset, as a duplicate: the broker did not say where
        self.doubted_ms: int | None = None  # when a refusal first looked like a loss; newer metadata may explain it
        self.topic_id: UUID | None = None
        self.not_before_ms = 0
        self.gap = False  # a numbered batch was refused for good: those behind it take new numbers
        self.unknown = False  # a batch was given up that may have been appended: the next sequence cannot be told

    def sendable(self, now_ms: int, *, only_retries: bool) -> Batch | None:
        """The next batch, if it may go out now. With `only_retries`: only if it may have been appended already.

        Behind a gap as well: what was not appended takes new numbers first, and cannot before it is known what was.

        The first batch of a producer id goes alone: Apache Kafka takes any sequence from an id that a partition does
        not know. Were the first batch refused (the leader is not ready yet) and the second taken, the first could never
        follow.
        """
        most = MOST_IN_FLIGHT if self.introduced else 1
        if not self.pending or now_ms < self.not_before_ms or len(self.in_flight) >= most:
            return None
        if self.gap and self.in_flight:
            return None
        doubtful = self._doubtful_first() if self.gap or only_retries else False
        if self.gap and not doubtful:
            self._close_gap()
        if only_retries and not doubtful:
            return None
        batch = self.pending[0]
        return None if batch.attempts and self.in_flight else batch

    def _doubtful_first(self) -> bool:
        """Move the first batch that may have been appended to the front; False if there is none."""
        doubtful = next((batch for batch in self.pending if batch.maybe_appended), None)
        if doubtful is None:
            return False
        if doubtful is not self.pending[0]:
            self.pending.remove(doubtful)
            self.pending.appendleft(doubtful)
        return True

    def _close_gap(self) -> None:
        """Number again what was not appended."""
        self.gap = False
        for batch in self.pending:
            batch.sequence = -1
        self.next_sequence = 0 if self.last_acked_sequence < 0 else add_sequence(self.last_acked_sequence, 1)

    def take(self) -> Batch:
        """Move the next batch in flight."""
        batch = self.remove_first()
        self.in_flight.append(batch)
        return batch

    def remove_first(self) -> Batch:
        """Take the next batch out: it is sent, or fails."""
        batch = self.pending.popleft()
        self.pending_bytes -= len(batch.data)
        return batch

    def number(self, batch: Batch) -> None:
        """Give a batch its sequence, once."""
        if batch.sequence < 0:
            batch.sequence = self.next_sequence
            self.next_sequence = add_sequence(self.next_sequence, batch.count)

    def append(self, batch: Batch) -> None:
        """To be sent behind all others."""
        batch.ordinal = self.next_ordinal
        self.next_ordinal += batch.count
        self.pending.append(batch)
        self.pending_bytes += len(batch.data)

    def put_back(self, batch: Batch) -> None:
        """Back from the wire without success, into its place."""
        self.in_flight.remove(batch)
        batch.attempts += 1
        self._insert(batch)

    def cut(self, batch: Batch, parts: Iterable[Batch]) -> None:
        """Refused as too large: its parts wait in its place."""
        self.in_flight.remove(batch)
        self.gap = True
        ordinal = batch.ordinal
        for part in parts:
            part.ordinal = ordinal
            ordinal += part.count
            self._insert(part)

    def _insert(self, batch: Batch) -> None:
        """Sequences do not tell its place: who waits to be numbered again has none."""
        later = (place for place, waiting in enumerate(self.pending) if waiting.ordinal > batch.ordinal)
        self.pending.insert(next(later, len(self.pending)), batch)
        self.pending_bytes += len(batch.data)

    def acknowledged(self, batch: Batch, base_offset: int) -> None:
        """The broker has it (base_offset -1: as a duplicate, or it does not say)."""
        self.in_flight.remove(batch)
        self.introduced = True
        if batch.sequence >= 0:
            self.last_acked_sequence = add_sequence(batch.sequence, batch.count - 1)
        self.doubted_ms = None
        self.acked_at_unknown_offset = base_offset < 0
        if base_offset >= 0:
            self.last_acked_offset = base_offset + batch.count - 1

    def given_up(self, batch: Batch) -> None:
        """It will not be sent (again)."""
        if batch.sequence >= 0:
            self.gap = True
            self.unknown = self.unknown or batch.maybe_appended

    def log_ended_at(self, end: int, sequence: int) -> None:
        """Heard after `sequence` was acknowledged: if that was the last, what was without an offset is below `end`."""
        if self.acked_at_unknown_offset and self.last_acked_sequence == sequence:
            self.acked_at_unknown_offset = False
            self.last_acked_offset = max(self.last_acked_offset, end - 1)

    def waits_for_an_earlier(self, batch: Batch) -> bool:
        """Return true if a lower sequence has no final response or was refused, so that a gap is no loss."""
        if self.gap:
            return True
        unresolved = [other for other in (*self.in_flight, *self.pending) if other is not batch and other.sequence >= 0]
        return any(_before(other.sequence, batch.sequence) for other in unresolved)

    def was_made_anew(self, topic_id: UUID | None) -> bool:
        """Return true if the topic was created anew since the last request."""
        return topic_id is not None and self.topic_id not in (None, topic_id)

    def belongs_to(self, topic_id: UUID | None) -> None:
        """Take note of the topic's id. If it is another topic now, nothing that was acknowledged can be missing there.

        Sequences do not begin again: where topics are named, not numbered, the new topic may have some of ours already.
        """
        if topic_id is None or topic_id == self.topic_id:
            return
        if self.topic_id is not None:
            self.last_acked_offset = self.last_acked_sequence = -1
            self.acked_at_unknown_offset = False
            self.introduced = not self.idempotent
            self.doubted_ms = None
        self.topic_id = topic_id

    def loss(self, refusal: KafkaError, log_start_offset: int) -> DataLossError | None:
        """Return the error if a refused sequence (45, 59) shows a loss of acknowledged records, or None.

        None are missing if this producer id and epoch has no acknowledged records, or if retention removed all of them
        and with them the broker's state of the producer (59).
        """
        if self.last_acked_sequence < 0:
            return None
        retained = log_start_offset > self.last_acked_offset and not self.acked_at_unknown_offset
        if refusal.code == E.UNKNOWN_PRODUCER_ID and retained:
            return None
        return DataLossError(
            f"{refusal}: acknowledged records are gone (last acknowledged offset {self.last_acked_offset}, "
            f"log start offset {log_start_offset})",
            code=refusal.code,
            topic=self.topic,
            partition=self.partition,
            last_acked_offset=self.last_acked_offset,
            log_start_offset=log_start_offset,
        )

    def doubts(self, metadata_ms: int) -> bool:
        """Return true if newer metadata is needed before the next request, because a response looked like a loss."""
        return self.doubted_ms is not None and metadata_ms <= self.doubted_ms

    def restart(self, *, same_id: bool) -> None:
        """A new producer id, or a new epoch of the same: sequences from 0, also for what waits."""
        self.introduced = self.introduced and same_id
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.doubted_ms = None
        self.gap = self.unknown = False
        in_order = sorted(self.pending, key=attrgetter("ordinal"))  # a batch that was in doubt may be first
        self.pending.clear()
        self.pending.extend(in_order)
        for batch in self.pending:
            batch.sequence = -1
            batch.maybe_appended = False


def _before(sequence: int, other: int) -> bool:
    """Return true if `sequence` is before `other`, with the wrap at 2**31."""
    return sequence != other and (other - sequence) % 2**31 < 2**30
