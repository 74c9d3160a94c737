"""The interface of those who wait for more records of a partition."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["WaitingFetch"]


class WaitingFetch(Protocol):
    """A fetch, of any kind, that waits for more records."""

    def look(self, partition: Any) -> None:
        """Look again: the partition (`topic.Partition`) has changed, or is gone."""
