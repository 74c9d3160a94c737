"""Committed and pending offsets, replayed from the records of `__consumer_offsets`.

`OffsetStore.replay` and `OffsetStore.complete_transaction` are called for every record of an offset and every marker,
in log order, both while running and while loading: the same log always gives the same store.

Source: `OffsetMetadataManager` of Apache Kafka 4.x. One difference: a transactional offset remembers its producer's
epoch, and a marker of a lower epoch leaves it alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from fencepost.broker.coordinator.group.base.records import GroupRecord, MismatchedRecord
from fencepost.protocol.logs.offsets_log import OffsetCommitKey, OffsetCommitValue
from fencepost.protocol.logs.partitioning import coordinator_partition
from fencepost.topic_partition import TopicPartition

__all__ = ["OffsetStore", "StoredOffset"]


class StoredOffset(NamedTuple):
    """A committed or pending offset.

    `record_offset` is the offset of its record, and the epoch that of a pending one.
    """

    value: OffsetCommitValue
    record_offset: int
    producer_epoch: int = -1
    pended_until_ms: int = -1
    """Time of the marker that committed it, -1 for a plain commit. Its retention begins no earlier."""


_Pending = dict[OffsetCommitKey, StoredOffset]


class OffsetStore:
    """Committed offsets and pending offsets.

    `offsets_topic_partitions`: partition count of `__consumer_offsets`.
    """

    __slots__ = ("_offsets_topic_partitions", "_pending", "_pending_by_group", "committed")

    def __init__(self, offsets_topic_partitions: int) -> None:
        self._offsets_topic_partitions = offsets_topic_partitions
        self.committed: dict[str, dict[TopicPartition, StoredOffset]] = {}
        # A marker is written to each partition of __consumer_offsets that a transaction touched, and ends only the
        # transaction's offsets in that partition.
        self._pending: dict[tuple[int, int], _Pending] = {}
        self._pending_by_group: dict[str, dict[TopicPartition, set[int]]] = {}

    def group_ids(self) -> Collection[str]:
        """Return the ids of the groups that have committed or pending offsets."""
        return self.committed.keys() | self._pending_by_group.keys()

    def set_offsets_topic_partitions(self, count: int) -> None:
        """Set the real number of partitions of `__consumer_offsets`. Raises ValueError once offsets are pending."""
        if self._pending and count != self._offsets_topic_partitions:
            raise ValueError("the partition count of __consumer_offsets cannot change while offsets are pending")
        self._offsets_topic_partitions = count

    def replay(self, key: OffsetCommitKey, record: GroupRecord, offset: int) -> None:
        """Apply one record with that key, stored at `offset` of its group's partition. Raises MismatchedRecord."""
        value = record.value
        if isinstance(value, OffsetCommitValue):
            self._replay_offset(key, value, record, offset)
        elif value is None:
            self._forget_offset(key)
        else:
            raise MismatchedRecord(f"{key} with a {type(value).__name__}")

    def complete_transaction(
        self, producer_id: int, producer_epoch: int, commit: bool, offsets_partition: int, marker_ms: int = -1
    ) -> int:
        """Apply a marker in partition `offsets_partition`.

        Return the number of pending offsets that it ended.

        The retention of a committed offset starts at its marker, because a prepared transaction may be older than the
        retention. Of a committed and a pending offset the one with the later record wins, as in compaction.
        """
        pending = self._pending.get((offsets_partition, producer_id))
        if pending is None:
            return 0
        ended = {key: stored for key, stored in pending.items() if stored.producer_epoch <= producer_epoch}
        for key, stored in ended.items():
            self._drop_pending(offsets_partition, producer_id, key)
            if commit:
                offsets = self.committed.setdefault(key.group_id, {})
                partition = TopicPartition(key.topic, key.partition)
                present = offsets.get(partition)
                if present is None or stored.record_offset > present.record_offset:
                    offsets[partition] = StoredOffset(stored.value, stored.record_offset, pended_until_ms=marker_ms)
        return len(ended)

    def has_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Return true if an open transaction holds an offset of that partition."""
        return partition in self._pending_by_group.get(group_id, ())

    def pending_producers(self, group_id: str) -> set[int]:
        """Return the producer ids whose open transactions hold offsets of the group."""
        return {producer_id for owners in self._pending_by_group.get(group_id, {}).values() for producer_id in owners}

    def pending_partitions(self, group_id: str) -> Iterator[TopicPartition]:
        """Yield the partitions for which open transactions hold offsets."""
        return iter(self._pending_by_group.get(group_id, ()))

    def snapshot(self) -> tuple[object, object]:
        """Return committed and pending offsets as comparable values."""
        committed = {group_id: dict(offsets) for group_id, offsets in self.committed.items() if offsets}
        return committed, {owner: dict(pending) for owner, pending in self._pending.items()}

    def _replay_offset(self, key: OffsetCommitKey, value: OffsetCommitValue, record: GroupRecord, offset: int) -> None:
        partition = TopicPartition(key.topic, key.partition)
        if record.producer_id < 0:
            self.committed.setdefault(key.group_id, {})[partition] = StoredOffset(value, offset)
            return
        owner = (coordinator_partition(key.group_id, self._offsets_topic_partitions), record.producer_id)
        self._pending.setdefault(owner, {})[key] = StoredOffset(value, offset, record.producer_epoch)
        by_partition = self._pending_by_group.setdefault(key.group_id, {})
        by_partition.setdefault(partition, set()).add(record.producer_id)

    def _forget_offset(self, key: OffsetCommitKey) -> None:
        partition = TopicPartition(key.topic, key.partition)
        offsets = self.committed.get(key.group_id)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self.committed[key.group_id]
        # A deleted offset must not return when a transaction that was open at that time commits.
        owners = self._pending_by_group.get(key.group_id, {}).get(partition, ())
        offsets_partition = coordinator_partition(key.group_id, self._offsets_topic_partitions)
        for producer_id in tuple(owners):
            self._drop_pending(offsets_partition, producer_id, key)

    def _drop_pending(self, offsets_partition: int, producer_id: int, key: OffsetCommitKey) -> None:
        pending = self._pending[offsets_partition, producer_id]
        del pending[key]
        if not pending:
            del self._pending[offsets_partition, producer_id]
        by_partition = self._pending_by_group[key.group_id]
        partition = TopicPartition(key.topic, key.partition)
        by_partition[partition].discard(producer_id)
        if not by_partition[partition]:
            del by_partition[partition]
        if not by_partition:
            del self._pending_by_group[key.group_id]
