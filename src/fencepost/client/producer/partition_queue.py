"""One partition's batches in the producer: their order, their sequences and the last acknowledgement."""

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

MOST_IN_FLIGHT: Final = 5  # a broker recognises duplicates among the last five batches of a producer


class PartitionQueue:
    """The batches of one partition.

    `pending` is in the order of sending, `in_flight` in the order of sequences.
    """

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
        "operation",
        "partition",
        "pending",
        "pending_bytes",
        "topic",
        "topic_id",
        "unknown",
    )

    def __init__(self, topic: str, partition: int, *, idempotent: bool = True) -> None:
        self.idempotent = idempotent
        self.introduced = not idempotent  # the broker knows our producer id in this partition
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.operation = f"sending to {self.name}"  # for the log
        self.pending: deque[Batch] = deque()
        self.pending_bytes = 0
        self.in_flight: list[Batch] = []
        self.next_ordinal = 0
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.last_acked_offset = -1
        self.acked_at_unknown_offset = False  # the last batch was acknowledged without an offset, as a duplicate
        self.doubted_ms: int | None = None  # time at which a refusal first looked like a loss
        self.topic_id: UUID | None = None
        self.not_before_ms = 0
        self.gap = False  # a numbered batch was refused finally; later batches take new sequences
        self.unknown = False  # a batch that may have been appended was given up, so the next sequence is unknown

    def sendable(self, now_ms: int, *, only_retries: bool) -> Batch | None:
        """Return the next batch if it may be sent now, or None.

        With `only_retries`, return only a batch that may have been appended.

        After a gap, batches that may have been appended are sent first. Batches that were not appended take new
        sequences, which are known only after the responses to the first.

        The first batch under a producer id is sent alone, because Apache Kafka accepts any sequence from an id that is
        new to a partition. If the broker refused the first batch (the leader is not ready yet) and accepted the second,
        it would never accept the first.
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
        """Move the first batch that may have been appended to the front. Return false if there is none."""
        doubtful = next((batch for batch in self.pending if batch.maybe_appended), None)
        if doubtful is None:
            return False
        if doubtful is not self.pending[0]:
            self.pending.remove(doubtful)
            self.pending.appendleft(doubtful)
        return True

    def _close_gap(self) -> None:
        """Clear the sequences of pending batches. The next sequence follows the last acknowledged one."""
        self.gap = False
        for batch in self.pending:
            batch.sequence = -1
        self.next_sequence = 0 if self.last_acked_sequence < 0 else add_sequence(self.last_acked_sequence, 1)

    def take(self) -> Batch:
        """Move the next batch to `in_flight`."""
        batch = self.remove_first()
        self.in_flight.append(batch)
        return batch

    def remove_first(self) -> Batch:
        """Remove and return the next batch, because it is sent or fails."""
        batch = self.pending.popleft()
        self.pending_bytes -= len(batch.data)
        return batch

    def number(self, batch: Batch) -> None:
        """Assign the next sequence to a batch that has none."""
        if batch.sequence < 0:
            batch.sequence = self.next_sequence
            self.next_sequence = add_sequence(self.next_sequence, batch.count)

    def append(self, batch: Batch) -> None:
        """Add a new batch at the end."""
        batch.ordinal = self.next_ordinal
        self.next_ordinal += batch.count
        self.pending.append(batch)
        self.pending_bytes += len(batch.data)

    def put_back(self, batch: Batch) -> None:
        """Return an in-flight batch that was not acknowledged to its position in `pending`."""
        self.in_flight.remove(batch)
        batch.attempts += 1
        self._insert(batch)

    def cut(self, batch: Batch, parts: Iterable[Batch]) -> None:
        """Replace an in-flight batch, which was refused as too large, by its parts."""
        self.in_flight.remove(batch)
        self.gap = True
        ordinal = batch.ordinal
        for part in parts:
            part.ordinal = ordinal
            ordinal += part.count
            self._insert(part)

    def _insert(self, batch: Batch) -> None:
        """Insert by ordinal, because a batch that waits for a new sequence has none."""
        later = (index for index, waiting in enumerate(self.pending) if waiting.ordinal > batch.ordinal)
        self.pending.insert(next(later, len(self.pending)), batch)
        self.pending_bytes += len(batch.data)

    def acknowledged(self, batch: Batch, base_offset: int) -> None:
        """Record that the broker accepted the batch. `base_offset` is -1 for a duplicate, and with acks=0."""
        self.in_flight.remove(batch)
        self.introduced = True
        if batch.sequence >= 0:
            self.last_acked_sequence = add_sequence(batch.sequence, batch.count - 1)
        self.doubted_ms = None
        self.acked_at_unknown_offset = base_offset < 0
        if base_offset >= 0:
            self.last_acked_offset = base_offset + batch.count - 1

    def given_up(self, batch: Batch) -> None:
        """Record that the batch is not sent again."""
        if batch.sequence >= 0:
            self.gap = True
            self.unknown = self.unknown or batch.maybe_appended

    def log_ended_at(self, end: int, sequence: int) -> None:
        """Use `end`, the end of the log, as upper bound of an unknown offset.

        It was read after `sequence` was acknowledged, and is ignored if another batch has been acknowledged since.
        """
        if self.acked_at_unknown_offset and self.last_acked_sequence == sequence:
            self.acked_at_unknown_offset = False
            self.last_acked_offset = max(self.last_acked_offset, end - 1)

    def waits_for_an_earlier(self, batch: Batch) -> bool:
        """Return true if a lower sequence is unresolved or was refused, so that the refusal shows no loss."""
        if self.gap:
            return True
        unresolved = [other for other in (*self.in_flight, *self.pending) if other is not batch and other.sequence >= 0]
        return any(_before(other.sequence, batch.sequence) for other in unresolved)

    def was_recreated(self, topic_id: UUID | None) -> bool:
        """Return true if the topic was deleted and created again since the last request."""
        return topic_id is not None and self.topic_id not in (None, topic_id)

    def belongs_to(self, topic_id: UUID | None) -> None:
        """Store the topic's id. If the topic was re-created, forget the acknowledgements of the old one.

        Sequences continue, because requests that name the topic may have put our batches into the new topic already.
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

        There is no loss if this producer id and epoch has no acknowledged records. With error 59 there is also none if
        retention removed all of them, and with them the broker's state of the producer.
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
        """Start the sequences at 0 for a new producer id, or for a new epoch of the same id.

        Pending batches lose theirs.
        """
        self.introduced = self.introduced and same_id
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.doubted_ms = None
        self.gap = self.unknown = False
        in_order = sorted(self.pending, key=attrgetter("ordinal"))  # `sendable` may have moved a batch
        self.pending.clear()
        self.pending.extend(in_order)
        for batch in self.pending:
            batch.sequence = -1
            batch.maybe_appended = False


def _before(sequence: int, other: int) -> bool:
    """Return true if `sequence` is before `other`. Sequences wrap at 2**31."""
    return sequence != other and (other - sequence) % 2**31 < 2**30
