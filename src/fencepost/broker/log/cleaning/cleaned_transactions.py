"""Transactions during a compaction: which batches are aborted, and which markers can be removed.

A marker can be removed only if the walk met no batch of its transaction, not even an empty one.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.broker.log.aborted import Aborted
from fencepost.protocol.records.batch import BatchHeader
from fencepost.protocol.records.markers import Marker

__all__ = ["CleanedTransactions"]


class CleanedTransactions:
    """State of transactions during the walk. Call its methods for every batch, in order."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        """Start a walk. `aborted`: all aborted transactions that overlap the compacted offsets."""
        self._coming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborting: dict[int, Aborted] = {}
        self._with_batches: set[int] = set()  # producer ids with a batch in their current transaction

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return true if the batch, which is no marker, belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_batches.add(header.producer_id)
        return header.producer_id in self._aborting

    def marker(self, header: BatchHeader, marker: Marker | None) -> tuple[bool, Aborted | None]:
        """Return true if the marker can be removed, and the entry to keep in the index of aborted transactions.

        `marker` is None if its record was removed before.
        """
        self._begin_up_to(header.last_offset)
        if marker is None:
            return True, None
        has_batches = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        if marker.commit:
            return not has_batches, None
        aborted = self._aborting.pop(header.producer_id, None)
        return not has_batches, aborted if has_batches else None

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            entry = self._coming.pop()
            self._aborting.setdefault(entry.producer_id, entry)
