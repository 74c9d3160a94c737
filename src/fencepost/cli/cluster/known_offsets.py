"""Offsets of partitions, as far as their leaders answer."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.client.blocking import Admin
from fencepost.client.types import Isolation, OffsetAt, OffsetSpec, TopicPartition
from fencepost.errors import ItemsFailedError, KafkaError

__all__ = ["KnownOffsets"]


class KnownOffsets:
    """Requests for the offsets of some partitions.

    Attributes:
        failed: The partitions whose offsets are not known, with the reason. They are not asked again.
    """

    def __init__(self, admin: Admin, partitions: Iterable[TopicPartition]) -> None:
        self.failed: dict[TopicPartition, KafkaError] = {}
        self._admin = admin
        self._partitions = list(partitions)

    def at(
        self, position: int | OffsetSpec, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> dict[TopicPartition, OffsetAt]:
        """Return the offsets at a position, of the partitions that have not failed."""
        asked = dict.fromkeys((each for each in self._partitions if each not in self.failed), position)
        if not asked:
            return {}
        try:
            return self._admin.list_offsets(asked, isolation=isolation)
        except ItemsFailedError as error:
            self.failed |= error.errors
            return error.results
        except KafkaError as error:
            self.failed |= dict.fromkeys(asked, error)
            return {}

    def offsets_at(
        self, position: int | OffsetSpec, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        """Return only the offset of each partition; -1: no record is at or after the timestamp."""
        return {partition: at.offset for partition, at in self.at(position, isolation).items()}
