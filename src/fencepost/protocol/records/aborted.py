"""Filter for the batches of aborted transactions, as a read_committed consumer applies it (KIP-98).

A fetch response lists the aborted transactions of its range as (producer id, first offset). The range of an aborted
transaction ends at the producer's next ABORT marker. The rules are those of Kafka's consumer, batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.protocol.records.batch import BatchHeader
from fencepost.protocol.records.markers import ABORT, control_type

__all__ = ["AbortedFilter"]


class AbortedFilter:
    """Decides for each batch in turn if it belongs to an aborted transaction."""

    __slots__ = ("_aborted_now", "_coming", "_next")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(aborted, key=lambda each: each[1])
        self._next = 0
        self._aborted_now: set[int] = set()

    def __call__(self, header: BatchHeader, batch: memoryview) -> bool:
        if header.producer_id < 0:
            return False
        while self._next < len(self._coming) and self._coming[self._next][1] <= header.last_offset:
            self._aborted_now.add(self._coming[self._next][0])
            self._next += 1
        if header.is_control:
            if control_type(batch) == ABORT:
                self._aborted_now.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._aborted_now
