"""What the internal topics said and is damaged: requests that it would decide are refused, because a guess could commit
or abort what was prepared, or let a group read again what it has committed.

A damaged partition of `__transaction_state` puts every transactional id of that partition in doubt, but for those
whose state was recorded again behind the damage; one of `__consumer_offsets` the committed offsets of all its groups.
`fencepost repair` accepts the loss: from then on the newest record that can be read counts. Of `__share_group_state` it
counts at once: the worst that follows is another delivery.
"""

from __future__ import annotations

from fencepost.broker.log.reading import Gap
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.topics.catalogue import CONSUMER_OFFSETS, TRANSACTION_STATE, Partition, TopicCatalogue
from fencepost.broker.topics.opening import tell_damage
from fencepost.protocol.logs.partitioning import coordinator_partition

__all__ = ["Doubts"]


class Doubts:
    """False while nothing is in doubt."""

    def __init__(self, topics: TopicCatalogue, metrics: Metrics) -> None:
        self._topics = topics
        self._metrics = metrics
        self._certain: dict[int, set[str]] = {}  # by damaged partition of __transaction_state
        self._offsets: set[int] = set()  # damaged partitions of __consumer_offsets
        self._ids: set[str] = set()  # transactional ids whose state here may not be what their records say

    def __bool__(self) -> bool:
        return bool(self._certain or self._offsets or self._ids)

    def found(self, partition: Partition, gap: Gap) -> None:
        """Something of an internal topic cannot be read."""
        tell_damage(partition, self._metrics, *gap)
        if partition.topic.name == CONSUMER_OFFSETS:
            self._offsets.add(partition.index)
        elif partition.topic.name == TRANSACTION_STATE:
            self._certain.setdefault(partition.index, set())

    def found_id(self, transactional_id: str) -> None:
        """A decision for the id was written and could not be applied."""
        self._ids.add(transactional_id)

    def keep(self, partition: Partition, certain: set[str]) -> None:
        """The states of these ids were recorded behind the damage."""
        self._certain[partition.index] = certain

    def of_transaction(self, transactional_id: str) -> bool:
        """Whether the state of the id is in doubt."""
        if transactional_id in self._ids:
            return True
        if not self._certain:
            return False
        index = coordinator_partition(transactional_id, len(self._topics.internal(TRANSACTION_STATE).partitions))
        return index in self._certain and transactional_id not in self._certain[index]

    def of_group(self, group_id: str) -> bool:
        """Whether offsets that the group committed are in doubt."""
        if not self._offsets:
            return False
        return coordinator_partition(group_id, len(self._topics.internal(CONSUMER_OFFSETS).partitions)) in self._offsets
