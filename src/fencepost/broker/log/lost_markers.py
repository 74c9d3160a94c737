"""Markers that lie in damage: how a scan knows what became of their transactions.

An abort marker is also an entry of its segment's index of aborted transactions, which is written right after it. So of
a transaction that was open in front of the damage, and whose producer has begun another behind it, the index tells: it
was aborted if there is an entry for it in the damage, else committed. Without that, records of an aborted transaction
would be read as part of the next one. Where the producer has begun no other, the transaction stays open, and readers of
committed records wait for it.
"""

from __future__ import annotations

from fencepost.broker.log.aborted import Aborted
from fencepost.broker.log.producers.table import ProducerTable
from fencepost.broker.log.segment import Segment
from fencepost.protocol.records.batch import BatchHeader

__all__ = ["LostMarkers"]


class LostMarkers:
    """Of one scan. Tell it of damage, and of each batch before it is replayed."""

    def __init__(self) -> None:
        self._in_doubt: set[int] = set()  # producer ids with a transaction that was open when damage came

    def found_damage(self, producers: ProducerTable, segment: Segment, first_offset: int, next_offset: int) -> None:
        """These offsets of the segment cannot be read. Raises OSError."""
        for entry in segment.aborted_on_disk():
            if first_offset <= entry.last_offset < next_offset:
                segment.aborted.add(entry)
                producers.end(entry.producer_id)
        self._in_doubt = set(producers.open_transactions)

    def next_batch(self, producers: ProducerTable, header: BatchHeader) -> None:
        """End the transaction whose marker was in the damage, if the batch begins the next one: from transaction
        version 2 on that has a higher epoch."""
        if header.producer_id in self._in_doubt and not header.is_control:
            state = producers.get(header.producer_id)
            if state is not None and header.producer_epoch > state.epoch:
                self._in_doubt.discard(header.producer_id)
                producers.end(header.producer_id)

    def aborted(self, segment: Segment, entry: Aborted) -> Aborted:
        """The entry of a marker that was read: as it was written, when its transaction may have begun in front of the
        damage. Raises OSError."""
        if entry.producer_id not in self._in_doubt:
            return entry
        self._in_doubt.discard(entry.producer_id)
        written = (each for each in segment.aborted_on_disk() if each.last_offset == entry.last_offset)
        return next(written, entry)
