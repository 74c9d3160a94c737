"""Committed offsets: commit, fetch, delete, expire.

These functions read the store and return records to write.

Source: `OffsetMetadataManager` of Apache Kafka 4.x, KIP-447 (transactional commits, stable fetches), KIP-211 (expiry).
There are two differences. They prevent a client from reading an offset that a pending transaction is about to replace:

* A fetch below v7 does not know UNSTABLE_OFFSET_COMMIT (88). It gets COORDINATOR_LOAD_IN_PROGRESS (14), which every
  client retries.
* A stable fetch of all partitions also lists partitions that have only a pending offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fencepost.broker.coordinator.group.base.kind import AnyGroup
from fencepost.broker.coordinator.group.base.records import GroupRecord
from fencepost.broker.coordinator.group.base.requests import (
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    PartitionError,
    PartitionOffset,
)
from fencepost.broker.coordinator.group.offset_store import OffsetStore, StoredOffset
from fencepost.broker.timing.clock import ClockJumps
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.offsets_log import OffsetCommitKey, OffsetCommitValue
from fencepost.topic_partition import TopicPartition

__all__ = ["commit", "delete_all", "delete_for", "delete_some", "expire", "fetch"]

_FIRST_FETCH_THAT_KNOWS_88 = 7  # KIP-447: require_stable
_FIRST_FETCH_WITH_AN_ERROR_OF_ITS_OWN = 2
_LAST_TIMESTAMP_MS = 2**63 - 1


def commit(
    most_bytes: int,
    now_ms: int,
    group_id: str,
    offsets: Iterable[PartitionOffset],
    refused: Mapping[tuple[str, int], ErrorCode],
    *,
    retention_ms: int,
    owner: tuple[int, int],
) -> tuple[list[GroupRecord], list[PartitionError]]:
    """Return the records of a commit and the result per partition.

    `most_bytes` limits the metadata. `refused` has the errors of partitions that must not be committed. With an `owner`
    (producer id, epoch), -1 without one, the records are transactional.
    """
    records = []
    answers = []
    for wanted in offsets:
        metadata = wanted.metadata or ""
        error = refused.get((wanted.topic, wanted.partition), ErrorCode.NONE)
        if not error and len(metadata) > most_bytes:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        answers.append(PartitionError(wanted.topic, wanted.partition, error))
        if error:
            continue
        value = OffsetCommitValue(
            offset=wanted.offset,
            leader_epoch=wanted.leader_epoch,
            metadata=metadata,
            commit_timestamp_ms=now_ms,
            expire_timestamp_ms=-1 if retention_ms == -1 else min(now_ms + retention_ms, _LAST_TIMESTAMP_MS),
            topic_id=wanted.topic_id,
        )
        key = OffsetCommitKey(group_id, wanted.topic, wanted.partition)
        records.append(GroupRecord(key, value, *owner))
    return records, answers


def fetch(store: OffsetStore, request: FetchOffsets) -> FetchedOffsets:
    """Return the committed offsets of a fetch. The offset is -1 for a missing group or offset."""
    group_id = request.group_id
    committed = store.committed.get(group_id, {})
    knows_unstable = request.api_version >= _FIRST_FETCH_THAT_KNOWS_88
    wanted = _wanted(store, request, committed)
    if not knows_unstable and any(store.has_pending(group_id, partition) for partition in wanted):
        return _not_yet(request, wanted)
    require_stable = request.require_stable and knows_unstable
    offsets = []
    for partition in wanted:
        stored = committed.get(partition)
        if require_stable and store.has_pending(group_id, partition):
            offsets.append(FetchedOffset(*partition, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT))
        elif stored is None:
            offsets.append(FetchedOffset(*partition))
        else:
            value = stored.value
            offsets.append(FetchedOffset(*partition, value.offset, value.leader_epoch, value.metadata))
    return FetchedOffsets(group_id, offsets=offsets)


def delete_some(
    store: OffsetStore, group: AnyGroup, partitions: Sequence[tuple[str, int]]
) -> tuple[list[GroupRecord], list[PartitionError]]:
    """Return the tombstones of an OffsetDelete and the result per partition. Subscribed topics are refused."""
    records = []
    answers = []
    for topic, index in partitions:
        if group.subscribes_to(topic):
            answers.append(PartitionError(topic, index, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
            continue
        answers.append(PartitionError(topic, index, ErrorCode.NONE))
        partition = TopicPartition(topic, index)
        if partition in store.committed.get(group.group_id, {}) or store.has_pending(group.group_id, partition):
            records.append(_tombstone(group.group_id, partition))
    return records, answers


def delete_all(store: OffsetStore, group_id: str) -> list[GroupRecord]:
    """Return the tombstones of all offsets of a group, including pending ones."""
    partitions = dict.fromkeys(store.committed.get(group_id, ()))
    partitions.update(dict.fromkeys(store.pending_partitions(group_id)))
    return [_tombstone(group_id, partition) for partition in partitions]


def delete_for(store: OffsetStore, group_id: str, gone: set[TopicPartition]) -> list[GroupRecord]:
    """Return the tombstones of a group's committed and pending offsets of deleted partitions."""
    present = gone.intersection(store.committed.get(group_id, ())) | gone.intersection(
        store.pending_partitions(group_id)
    )
    return [_tombstone(group_id, partition) for partition in sorted(present)]


def expire(
    store: OffsetStore, group: AnyGroup, now_ms: int, retention_ms: int, clock_jumps: ClockJumps
) -> tuple[list[GroupRecord], bool]:
    """Return the tombstones of the group's expired offsets, and true if no offset remains. Pending ones remain."""
    committed = store.committed.get(group.group_id, {})
    records = [
        _tombstone(group.group_id, partition)
        for partition, stored in committed.items()
        if _expired(group, partition, stored, now_ms, retention_ms, clock_jumps)
        and not store.has_pending(group.group_id, partition)
    ]
    return records, len(records) == len(committed) and not any(True for _ in store.pending_partitions(group.group_id))


def _expired(
    group: AnyGroup,
    partition: TopicPartition,
    stored: StoredOffset,
    now_ms: int,
    retention_ms: int,
    clock_jumps: ClockJumps,
) -> bool:
    """Return true if the offset has expired (KIP-211). Offsets of subscribed topics do not expire.

    Time that a jump of the clock has skipped does not count.
    """
    committed_ms = stored.value.commit_timestamp_ms
    since_ms = group.retention_start_ms(committed_ms)
    if since_ms is None or group.subscribes_to(partition.topic):
        return False
    if stored.value.expire_timestamp_ms >= 0:
        return now_ms >= stored.value.expire_timestamp_ms + clock_jumps.skipped(committed_ms)
    since_ms = max(since_ms, stored.pended_until_ms)
    return now_ms >= since_ms + retention_ms + clock_jumps.skipped(since_ms)


def _wanted(
    store: OffsetStore, request: FetchOffsets, committed: dict[TopicPartition, StoredOffset]
) -> list[TopicPartition]:
    if request.partitions is not None:
        return [TopicPartition(topic, index) for topic, index in request.partitions]
    partitions = dict.fromkeys(committed)
    if request.require_stable or request.api_version < _FIRST_FETCH_THAT_KNOWS_88:
        partitions.update(dict.fromkeys(store.pending_partitions(request.group_id)))
    return list(partitions)


def _not_yet(request: FetchOffsets, wanted: Iterable[TopicPartition]) -> FetchedOffsets:
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if request.api_version >= _FIRST_FETCH_WITH_AN_ERROR_OF_ITS_OWN:
        return FetchedOffsets(request.group_id, error)
    return FetchedOffsets(request.group_id, error, list(_failed(wanted, error)))


def _failed(partitions: Iterable[TopicPartition], error: ErrorCode) -> Iterator[FetchedOffset]:
    return (FetchedOffset(*partition, error_code=error) for partition in partitions)


def _tombstone(group_id: str, partition: TopicPartition) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group_id, partition.topic, partition.partition), None)
