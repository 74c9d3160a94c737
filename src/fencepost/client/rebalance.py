"""The application's side of a rebalance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.client.types import TopicPartition


class RebalanceListener:
    """What a rebalance tells the application; override what is of interest.

    With Consumer they run in the polling thread, inside poll; with AsyncConsumer they may be coroutine functions.
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        """These are about to be given up: the last moment to commit."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        """These are ours now."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Any:
        """These are somebody else's already; commits would fail."""


def listener_method(listener: RebalanceListener | None, kind: str) -> Callable[[list[TopicPartition]], Any] | None:
    found: Callable[[list[TopicPartition]], Any] | None = getattr(listener, f"on_partitions_{kind}", None)
    return found
