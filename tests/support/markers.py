"""Waiting for the markers of decided transactions: Apache Kafka answers EndTxn before it writes them."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import Admin, TopicPartition
from tests.support.waiting import until

__all__ = ["wait_for_markers"]


def wait_for_markers(admin: Admin, partitions: Sequence[TopicPartition]) -> None:
    """Return when no decided transaction is open in these partitions. Raises AssertionError after a minute."""
    until(lambda: not _owed(admin, partitions))


def _owed(admin: Admin, partitions: Sequence[TopicPartition]) -> bool:
    known = [each for producers in admin.describe_producers(partitions).values() for each in producers]
    opened = [each.producer_id for each in known if each.transaction_start_offset >= 0]
    return bool(opened and admin.list_transactions(states=["PrepareCommit", "PrepareAbort"], producer_ids=opened))
