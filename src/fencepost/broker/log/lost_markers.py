"""Outcomes of transactions whose markers lie in damaged parts of a log.

A transaction was open before the damage, and its marker may be lost in it. There are two cases:

* The producer began another transaction after the damage. Then this one has ended. Every abort also has an entry in the
  segment's index of aborted transactions, which is written right after the marker. If the index has an entry within the
  damage, the transaction was aborted; otherwise it was committed. Without this rule, readers would take the records of
  an aborted transaction for a part of the next one.
* The producer began no other transaction. Then this one stays open, and readers of committed records wait for it.
"""

from __future__ import annotations

from fencepost.broker.log.aborted import Aborted
from fencepost.broker.log.producers.table import ProducerTable
from fencepost.broker.log.segment import Segment
from fencepost.protocol.records.batch import BatchHeader

__all__ = ["LostMarkers"]


class LostMarkers:
    """State of one scan. The scan calls it for damage, and for each batch before its replay."""

    def __init__(self) -> None:
        self._in_doubt: set[int] = set()  # producer ids whose transaction was open before the damage

    def found_damage(self, producers: ProducerTable, segment: Segment, first_offset: int, next_offset: int) -> None:
        """Handle offsets of a segment that cannot be read. Raises OSError."""
        for entry in segment.aborted_on_disk():
            if first_offset <= entry.last_offset < next_offset:
                segment.aborted.add(entry)
                producers.end(entry.producer_id)
        self._in_doubt = set(producers.open_transactions)

    def next_batch(self, producers: ProducerTable, header: BatchHeader) -> None:
        """End the transaction whose marker was lost, if the batch begins the next one.

        From transaction version 2 on, the next one has a higher epoch.
        """
        if header.producer_id in self._in_doubt and not header.is_control:
            state = producers.get(header.producer_id)
            if state is not None and header.producer_epoch > state.epoch:
                self._in_doubt.discard(header.producer_id)
                producers.end(header.producer_id)

    def aborted(self, segment: Segment, entry: Aborted) -> Aborted:
        """Return the entry of a marker that was read, as written if its transaction may have begun before the damage.

        Raises OSError.
        """
        if entry.producer_id not in self._in_doubt:
            return entry
        self._in_doubt.discard(entry.producer_id)
        written = (each for each in segment.aborted_on_disk() if each.last_offset == entry.last_offset)
        return next(written, entry)
