"""Guard against corrupt internal topics: it refuses requests that depend on damaged records.

A guess could commit or abort a prepared transaction, or let a group read records again.

A damaged partition of `__transaction_state` puts every transactional id of that partition in doubt, except for ids with
a record after the damage. A damaged partition of `__consumer_offsets` puts the committed offsets of all its groups in
doubt. `fencepost repair` accepts the loss: from then on the newest readable record counts. In `__share_group_state` the
newest readable record counts at once, because the worst consequence is a repeated delivery.
"""

from __future__ import annotations

from fencepost.broker.log.reading import Gap
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.topics.catalogue import TopicCatalogue
from fencepost.broker.topics.internal import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost.broker.topics.opening import log_damage
from fencepost.broker.topics.topic import Partition
from fencepost.protocol.logs.partitioning import coordinator_partition

__all__ = ["CorruptionGuard"]


class CorruptionGuard:
    """Partitions and transactional ids in doubt."""

    def __init__(self, topics: TopicCatalogue, metrics: Metrics) -> None:
        self._topics = topics
        self._metrics = metrics
        self.exist = False
        """True once a partition or an id is in doubt."""
        # ids recorded after the damage, by damaged partition of __transaction_state
        self._certain: dict[int, set[str]] = {}
        self._offsets: set[int] = set()  # damaged partitions of __consumer_offsets
        self._ids: set[str] = set()  # transactional ids whose state in memory may differ from their records

    def found(self, partition: Partition, gap: Gap) -> None:
        """Note a range of an internal topic that cannot be read."""
        log_damage(partition, self._metrics, *gap)
        if partition.topic.name == CONSUMER_OFFSETS:
            self._offsets.add(partition.index)
            self.exist = True
        elif partition.topic.name == TRANSACTION_STATE:
            self._certain.setdefault(partition.index, set())
            self.exist = True

    def found_id(self, transactional_id: str) -> None:
        """Note an id for which a record was written but not applied."""
        self._ids.add(transactional_id)
        self.exist = True

    def keep(self, partition: Partition, certain: set[str]) -> None:
        """Note the ids that have a record after the damage. Their state is certain."""
        self._certain[partition.index] = certain
        self.exist = True

    def of_transaction(self, transactional_id: str) -> bool:
        """Return true if the state of the id is in doubt."""
        if transactional_id in self._ids:
            return True
        if not self._certain:
            return False
        index = coordinator_partition(transactional_id, len(self._topics.internal(TRANSACTION_STATE).partitions))
        return index in self._certain and transactional_id not in self._certain[index]

    def of_group(self, group_id: str) -> bool:
        """Return true if committed offsets of the group are in doubt."""
        if not self._offsets:
            return False
        return coordinator_partition(group_id, len(self._topics.internal(CONSUMER_OFFSETS).partitions)) in self._offsets
