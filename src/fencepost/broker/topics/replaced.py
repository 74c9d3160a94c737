"""Topics that replace deleted topics of the same name, and producers that wrote to the deleted ones.

A producer that outlives its topic continues with its next sequence when the topic is created again. It has lost only
what was deleted deliberately, so the new partitions accept any first sequence from it (`ProducerTable.earlier_below`).
Producer ids are allocated in ascending order, so producers with ids below the next one at creation are earlier ones. A
partition that has lost records requires sequence 0 again, because it cannot distinguish the two cases.

Of several batches in flight the first can find no topic, and the second the new one. So the first sequence that was
rejected without a topic is the first that the new partition accepts (`ProducerTable.awaited`). Batches before it are
out of order, as after any other gap. This state does not survive a restart, which ends the requests in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from fencepost.broker.log.producers.table import ProducerTable
from fencepost.protocol.records.batch import BatchHeader

__all__ = ["DeletedNames", "Refused", "Replacement"]

_NAMES_MAX = 2000  # the file of topics contains them and is written with every change
_REFUSED_MAX = 10_000

Refused = dict[int, dict[int, tuple[int, int]]]
"""(epoch, sequence) of the first rejected batch, by partition and producer id."""


class Replacement:
    """State of a topic that replaces a deleted one.

    Attributes:
        earlier_below: Producer ids below it may have written to the deleted topic; 0 if there was none.
        lossy: Numbers of partitions that have lost records since.
        refused: First batches that were rejected before the topic was created.
    """

    __slots__ = ("earlier_below", "lossy", "refused")

    def __init__(self, earlier_below: int = 0, lossy: Iterable[int] = (), refused: Refused | None = None) -> None:
        self.earlier_below = earlier_below
        self.lossy = set(lossy)
        self.refused: Refused = refused or {}

    @classmethod
    def of_entry(cls, entry: Mapping[str, Any]) -> Replacement:
        """Create it from a topic's entry in the file of topics."""
        return cls(entry.get("earlier_producers_below", 0), entry.get("lossy_partitions", ()))

    def entry(self) -> dict[str, object]:
        """Return the data for a topic's entry in the file of topics."""
        if not self.earlier_below:
            return {}
        return {"earlier_producers_below": self.earlier_below, "lossy_partitions": sorted(self.lossy)}

    def below(self, partition: int) -> int:
        """Return the limit of earlier producer ids for a partition."""
        return 0 if partition in self.lossy else self.earlier_below

    def apply_to_log(self, partition: int, producers: ProducerTable) -> None:
        """Pass the state to a partition's log when it is opened."""
        producers.earlier_below = self.below(partition)
        producers.awaited = self.refused.pop(partition, {})

    def record_loss(self, partition: int) -> bool:
        """Record that a partition has lost records; return true if that changes anything."""
        if not self.below(partition):
            return False
        self.lossy.add(partition)
        return True


class DeletedNames:
    """Names of deleted topics that no topic has now. Above a limit the oldest is forgotten."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = dict.fromkeys(names)
        self._by_id: dict[UUID, str] = {}
        self._refused: dict[str, Refused] = {}
        self._refused_count = 0

    def replacement(self, name: str, next_producer_id: int) -> Replacement:
        """Return the state for a topic of this name that is created now."""
        if name not in self._names:
            return Replacement()
        return Replacement(next_producer_id, refused=self._refused.get(name))

    def known_as(self, name: str, topic_id: UUID) -> None:
        """Record the deleted topic's id, which clients may still use."""
        self._by_id[topic_id] = name

    def refuse(self, name: str | None, topic_id: UUID | None, partition: int, header: BatchHeader) -> None:
        """Record a producer's batch that found no topic."""
        name = self._by_id.get(topic_id) if topic_id is not None else name
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        is_idempotent = producer_id >= 0 and sequence >= 0
        if not is_idempotent or name is None or name not in self._names or self._refused_count >= _REFUSED_MAX:
            return
        first = self._refused.setdefault(name, {}).setdefault(partition, {})
        if producer_id not in first or first[producer_id][0] != epoch:
            first[producer_id] = epoch, sequence
            self._refused_count += 1

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def changed(self, *, added: Iterable[str] = (), removed: Iterable[str] = ()) -> DeletedNames:
        """Return the names after a change."""
        names = dict(self._names)
        for name in (*removed, *added):
            names.pop(name, None)
        names.update(dict.fromkeys(added))
        after = DeletedNames(list(names)[-_NAMES_MAX:])
        after._by_id = {topic_id: name for topic_id, name in self._by_id.items() if name in after}
        after._refused = {name: refused for name, refused in self._refused.items() if name in after}
        after._refused_count = sum(len(first) for refused in after._refused.values() for first in refused.values())
        return after
