"""Callbacks of the application for rebalances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.client.types import TopicPartition


class RebalanceListener:
    """Callbacks for rebalances. Override those that you need.

    With Consumer they run in the polling thread during poll. With AsyncConsumer they may be coroutine functions.
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        """Called before partitions are given up; the last moment to commit."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        """Called after partitions were assigned."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Any:
        """Called for partitions that other members already own; commits would fail."""


def listener_method(listener: RebalanceListener | None, kind: str) -> Callable[[list[TopicPartition]], Any] | None:
    found: Callable[[list[TopicPartition]], Any] | None = getattr(listener, f"on_partitions_{kind}", None)
    return found
