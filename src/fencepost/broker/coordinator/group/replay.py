"""The persisted state of the group coordinator, replayed from the records of `__consumer_offsets`.

`GroupStore.replay` and `GroupStore.complete_transaction` are called for every record and every marker, in log order,
both while running and while loading: the same log always gives the same store. Parked requests, session timeouts and
the progress of rebalances are not in the log, and not here: see `classic/group.py`.

Source: `OffsetMetadataManager` and `GroupMetadataManager.replay` of Apache Kafka 4.x. One difference: a transactional
offset remembers its producer's epoch, and a marker of a lower epoch leaves it alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fencepost.broker.coordinator.group.consumer.group import ConsumerGroup
from fencepost.broker.coordinator.group.records import GroupRecord
from fencepost.broker.coordinator.group.share.group import ShareGroup
from fencepost.broker.coordinator.group.streams.group import StreamsGroup
from fencepost.protocol.logs.consumer_group_log import ConsumerGroupKey, ConsumerGroupLogKey, ConsumerGroupLogValue
from fencepost.protocol.logs.offsets_log import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    StoredMember,
)
from fencepost.protocol.logs.partitioning import coordinator_partition
from fencepost.protocol.logs.share_group_log import ShareGroupKey, ShareGroupLogKey, ShareGroupLogValue
from fencepost.protocol.logs.streams_group_log import StreamsGroupKey, StreamsGroupLogKey, StreamsGroupLogValue
from fencepost.topic_partition import TopicPartition
from fencepost.values import Value

__all__ = ["GroupStore", "MismatchedRecord", "StoredGroup", "StoredOffset", "TopicPartition"]


class StoredOffset(NamedTuple):
    """A committed or pending offset.

    `record_offset` is the offset of its record, and the epoch that of a pending one.
    """

    value: OffsetCommitValue
    record_offset: int
    producer_epoch: int = -1
    pended_until_ms: int = -1
    """Time of the marker that committed it, -1 for a plain commit. Its retention begins no earlier."""


class StoredGroup(Value):
    """A group's last record, with its members by id."""

    value: GroupMetadataValue
    members: dict[str, StoredMember]


class MismatchedRecord(ValueError):
    """A record whose key and value are of different types."""


_NEVER_JOINED = StoredGroup(GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None), {})
_Pending = dict[OffsetCommitKey, StoredOffset]


class GroupStore:
    """Groups, committed offsets and pending offsets.

    `offsets_topic_partitions`: partition count of `__consumer_offsets`.
    """

    __slots__ = (
        "_offsets_topic_partitions",
        "_pending",
        "_pending_by_group",
        "committed",
        "consumer_groups",
        "groups",
        "share_groups",
        "streams_groups",
    )

    def __init__(self, offsets_topic_partitions: int) -> None:
        self._offsets_topic_partitions = offsets_topic_partitions
        self.groups: dict[str, StoredGroup] = {}  # classic groups, and groups that have only offsets
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.share_groups: dict[str, ShareGroup] = {}
        self.streams_groups: dict[str, StreamsGroup] = {}
        self.committed: dict[str, dict[TopicPartition, StoredOffset]] = {}
        # A marker is written to each partition of __consumer_offsets that a transaction touched, and ends only the
        # transaction's offsets in that partition.
        self._pending: dict[tuple[int, int], _Pending] = {}
        self._pending_by_group: dict[str, dict[TopicPartition, set[int]]] = {}

    def __contains__(self, group_id: str) -> bool:
        return (
            group_id in self.groups
            or group_id in self.consumer_groups
            or group_id in self.share_groups
            or group_id in self.streams_groups
        )

    def __len__(self) -> int:
        return len(self.groups) + len(self.consumer_groups) + len(self.share_groups) + len(self.streams_groups)

    def set_offsets_topic_partitions(self, count: int) -> None:
        """Set the real number of partitions of `__consumer_offsets`. Raises ValueError once offsets are pending."""
        if self._pending and count != self._offsets_topic_partitions:
            raise ValueError("the partition count of __consumer_offsets cannot change while offsets are pending")
        self._offsets_topic_partitions = count

    def replay(self, record: GroupRecord, offset: int) -> None:
        """Apply one record stored at `offset` of its group's partition. Raises MismatchedRecord."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):  # most records
            if isinstance(value, OffsetCommitValue):
                self._replay_offset(key, value, record, offset)
            elif value is None:
                self._forget_offset(key)
            else:
                raise MismatchedRecord(f"{key} with a {type(value).__name__}")
        elif isinstance(key, GroupMetadataKey):
            self._replay_group(key, value)
        elif isinstance(key, ShareGroupLogKey):
            self._replay_share_group(key, value)
        elif isinstance(key, StreamsGroupLogKey):
            self._replay_streams_group(key, value)
        else:
            self._replay_consumer_group(key, value)

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

    def snapshot(self) -> object:
        """Return the complete state as a comparable value."""
        groups: dict[str, object] = {group_id: stored.value for group_id, stored in self.groups.items()}
        groups.update({group_id: group.snapshot() for group_id, group in self.consumer_groups.items()})
        groups.update({group_id: group.snapshot() for group_id, group in self.share_groups.items()})
        groups.update({group_id: group.snapshot() for group_id, group in self.streams_groups.items()})
        committed = {group_id: dict(offsets) for group_id, offsets in self.committed.items() if offsets}
        return groups, committed, {owner: dict(pending) for owner, pending in self._pending.items()}

    def _replay_group(self, key: GroupMetadataKey, value: object) -> None:
        if value is None:
            self.groups.pop(key.group_id, None)
        elif isinstance(value, GroupMetadataValue):
            self.groups[key.group_id] = StoredGroup(value, {member.member_id: member for member in value.members})
        else:
            raise MismatchedRecord(f"{key} with a {type(value).__name__}")

    def _replay_consumer_group(self, key: ConsumerGroupLogKey, value: object) -> None:
        group = self.consumer_groups.get(key.group_id)
        if value is None and (group is None or isinstance(key, ConsumerGroupKey)):
            self.consumer_groups.pop(key.group_id, None)
            return
        if group is None:
            # Offsets without a group record count as a classic group. A real classic group was ended by its own
            # tombstone.
            self.groups.pop(key.group_id, None)
            group = self.consumer_groups[key.group_id] = ConsumerGroup(key.group_id)
        if not isinstance(value, ConsumerGroupLogValue | None) or not group.replay(key, value):
            raise MismatchedRecord(f"{key} with {value}")

    def _replay_share_group(self, key: ShareGroupLogKey, value: object) -> None:
        if value is None and isinstance(key, ShareGroupKey):
            self.share_groups.pop(key.group_id, None)
            return
        group = self.share_groups.setdefault(key.group_id, ShareGroup(key.group_id))
        if not isinstance(value, ShareGroupLogValue | None) or not group.replay(key, value):
            raise MismatchedRecord(f"{key} with {value}")

    def _replay_streams_group(self, key: StreamsGroupLogKey, value: object) -> None:
        group = self.streams_groups.get(key.group_id)
        if value is None and (group is None or isinstance(key, StreamsGroupKey)):
            self.streams_groups.pop(key.group_id, None)
            return
        if group is None:
            # Offsets without a group record count as a classic group. A real classic group was ended by its own
            # tombstone.
            self.groups.pop(key.group_id, None)
            group = self.streams_groups[key.group_id] = StreamsGroup(key.group_id)
        if not isinstance(value, StreamsGroupLogValue | None) or not group.replay(key, value):
            raise MismatchedRecord(f"{key} with {value}")

    def _replay_offset(self, key: OffsetCommitKey, value: OffsetCommitValue, record: GroupRecord, offset: int) -> None:
        # Offsets alone make a group, because a consumer with manual assignment never joins.
        if key.group_id not in self.consumer_groups and key.group_id not in self.streams_groups:
            self.groups.setdefault(key.group_id, _NEVER_JOINED)
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
