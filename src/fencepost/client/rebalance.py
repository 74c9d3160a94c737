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
        """Handle partitions that are about to be given up. This is the last moment to commit."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        """Handle partitions that were assigned."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Any:
        """Handle partitions that other members already own. A commit would fail."""


def listener_method(listener: RebalanceListener | None, kind: str) -> Callable[[list[TopicPartition]], Any] | None:
    found: Callable[[list[TopicPartition]], Any] | None = getattr(listener, f"on_partitions_{kind}", None)
    return found
