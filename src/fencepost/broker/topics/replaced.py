"""Topics that replace deleted ones of the same name, and the producers that wrote to the deleted one.

A producer that outlives its topic goes on with its next sequence when the topic is created again. It has lost nothing
that the deleter did not ask for, so the new partitions take any first sequence from it (`ProducerTable.earlier_below`).
Producer ids are given out in ascending order: those below the next one at the time of the creation are earlier ones.
A partition that has lost records asks for sequence 0 again, because nobody can tell the two cases apart there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["DeletedNames", "Replacement"]

_NAMES_MAX = 2000  # the file of topics, which holds them, is written with every change


class Replacement:
    """A topic's replacement of a deleted one. `earlier_below`: producer ids below it may have written to that one, 0
    where there was none. `lossy`: numbers of the partitions that have lost records since."""

    __slots__ = ("earlier_below", "lossy")

    def __init__(self, earlier_below: int = 0, lossy: Iterable[int] = ()) -> None:
        self.earlier_below = earlier_below
        self.lossy = set(lossy)

    @classmethod
    def of_entry(cls, entry: Mapping[str, Any]) -> Replacement:
        """From a topic's entry in the file of topics."""
        return cls(entry.get("earlier_producers_below", 0), entry.get("lossy_partitions", ()))

    def entry(self) -> dict[str, object]:
        """For a topic's entry in the file of topics."""
        if not self.earlier_below:
            return {}
        return {"earlier_producers_below": self.earlier_below, "lossy_partitions": sorted(self.lossy)}

    def below(self, partition: int) -> int:
        """The bound of earlier producer ids for a partition."""
        return 0 if partition in self.lossy else self.earlier_below

    def lose(self, partition: int) -> bool:
        """Note that a partition has lost records. Whether that changes anything."""
        if not self.below(partition):
            return False
        self.lossy.add(partition)
        return True


class DeletedNames:
    """Names of deleted topics that no topic has now. Of too many the longest deleted is forgotten."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = dict.fromkeys(names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def changed(self, *, added: Iterable[str] = (), removed: Iterable[str] = ()) -> DeletedNames:
        """The names after a change."""
        names = dict(self._names)
        for name in (*removed, *added):
            names.pop(name, None)
        names.update(dict.fromkeys(added))
        return DeletedNames(list(names)[-_NAMES_MAX:])
