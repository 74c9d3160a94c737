"""The application's side of a rebalance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.client.types import TopicPartition
from fencepost.errors import GroupFencedError


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


def refuse_after_revocation(before: int, now: int) -> None:
    """Raise GroupFencedError when partitions were taken away between two looks at `consumer.revocations`.

    A transaction may poll more than once. What it read from a partition that is gone would be committed without that
    partition's position, and its new owner would read it again.
    """
    if before != now:
        raise GroupFencedError("the group took partitions away during the transaction; they will be read again")
