"""The state of all share groups in all partitions, stored in `__share_group_state`, and the expiry of locks.

`SharePartition` decides the effect of a change. It is appended here as a snapshot, and applied after the append. A
response waits until the snapshot is durable.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from fencepost.broker.coordinator.runtime import CoordinatorRuntime
from fencepost.broker.log.results import Rejected
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.metrics.log_rate_limit import RateLimit
from fencepost.broker.settings.dynamic import DynamicSettings
from fencepost.broker.settings.values import GroupSettings
from fencepost.broker.share.share_partition import Acknowledgement, AcquiredRange, Changes, ShareLimits, SharePartition
from fencepost.broker.share.share_sessions import ShareSession, ShareSessions
from fencepost.broker.share.starting_point import first_offset
from fencepost.broker.share.states import RecordEvent
from fencepost.broker.timing.deadline_signal import DeadlineSignal
from fencepost.broker.timing.deadlines import RETRY_MS, Deadlines
from fencepost.broker.topics.catalogue import TopicCatalogue
from fencepost.broker.topics.topic import Partition
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.share_state_log import (
    ShareSnapshot,
    ShareStateKey,
    decode_share_snapshot,
    decode_share_state_key,
    encode_share_snapshot,
    encode_share_state_key,
)
from fencepost.protocol.records.batch import BatchHeader
from fencepost.protocol.records.walk import pairs_of

__all__ = ["SharePartitions", "limits_of", "reads_committed"]

_COUNTED: Final[Mapping[RecordEvent, str]] = {
    RecordEvent.ACCEPTED: "share_records_accepted",
    RecordEvent.RELEASED: "share_records_returned",
    RecordEvent.REJECTED: "share_records_rejected",
    RecordEvent.EXHAUSTED: "share_records_exhausted",
}

_log = logging.getLogger("fencepost.broker.shares")


def limits_of(settings: GroupSettings) -> ShareLimits:
    """Return the limits in a group's settings."""
    return ShareLimits(
        settings.number("share.delivery.count.limit"),
        settings.number("share.partition.max.record.locks"),
        settings.number("share.record.lock.duration.ms"),
    )


def reads_committed(settings: GroupSettings) -> bool:
    """Return true if the group's isolation level is read_committed."""
    return settings.text("share.isolation.level") == "read_committed"


class SharePartitions:
    """States by group, topic id and partition number."""

    def __init__(
        self,
        runtime: CoordinatorRuntime,
        topics: TopicCatalogue,
        settings: DynamicSettings,
        wake: Callable[[Partition], None],
        metrics: Metrics,
        *,
        most_sessions: int,
        deadline_signal: DeadlineSignal,
    ) -> None:
        """Create it. `wake` is called for a partition of which a group may get more records than before."""
        self._wake = wake
        self.sessions = ShareSessions(most_sessions)
        self._runtime = runtime
        self._topics = topics
        self._settings = settings
        self._metrics = metrics
        self._given_up = RateLimit()
        self._partitions: dict[ShareStateKey, SharePartition] = {}
        self._expiries = Deadlines[ShareStateKey](deadline_signal)

    def load(self) -> None:
        """Read the stored states. Raises OSError."""
        last: dict[ShareStateKey, ShareSnapshot] = {}
        for partition in self._runtime.stored():
            self._runtime.load(partition, partition.log.log_start_offset, partial(_replay, last))
        self._partitions = {key: SharePartition(snapshot) for key, snapshot in last.items()}

    def find(self, key: ShareStateKey) -> SharePartition | None:
        """Return the state if the group has begun to read the partition, else None."""
        return self._partitions.get(key)

    def begin(self, now_ms: int, group_id: str, partition: Partition) -> SharePartition:
        """Return the state; a new group starts at the offset that its settings select.

        Raises OSError or CorruptSegment.
        """
        key = ShareStateKey(group_id, partition.topic.topic_id, partition.index)
        known = self._partitions.get(key)
        if known is None:
            settings = self._settings.of_group(group_id)
            start = settings.text("share.auto.offset.reset")
            offset = first_offset(start, partition.log, now_ms, committed=reads_committed(settings))
            snapshot = ShareSnapshot(0, offset, written_ms=now_ms)
            self._write(now_ms, key, snapshot)
            known = self._partitions[key] = SharePartition(snapshot)
        known.move_start(partition.log.log_start_offset)
        return known

    def acknowledge(
        self, now_ms: int, key: ShareStateKey, member_id: str, acknowledgements: Sequence[Acknowledgement]
    ) -> ErrorCode:
        """Apply a member's acknowledgements, or return the error. After an OSError nothing has changed."""
        known = self._partitions.get(key)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        limits = self._limits(key)
        changes = known.decide_acknowledge(member_id, acknowledgements, limits)
        if isinstance(changes, ErrorCode):
            return changes
        self._apply(now_ms, key, known, changes, limits)
        return ErrorCode.NONE

    def end_session(self, now_ms: int, session: ShareSession) -> None:
        """End a member's session, and release its records, now or when the disk accepts that."""
        self.sessions.end(session)
        for topic_id, index in session.touched:
            key = ShareStateKey(session.group_id, topic_id, index)
            self._runtime.until_done(partial(self._release, key, session.member_id), now_ms)

    def disconnected(self, now_ms: int, connection_id: int) -> None:
        """End the sessions of a closed connection."""
        for session in self.sessions.of_connection(connection_id):
            self.end_session(now_ms, session)

    def on_time(self, now_ms: int) -> None:
        """Release records whose locks have expired."""
        self._runtime.on_time(now_ms, self._expiries.pop_due, self._expire)

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next `on_time`, or None."""
        return self._runtime.next_deadline_ms(self._expiries.next_ms())

    def time_jumped(self, by_ms: int) -> None:
        """Move all locks later after a jump of time."""
        for known in self._partitions.values():
            known.postpone(by_ms)
        self._expiries.put_off(by_ms)

    def all(self) -> Iterator[tuple[ShareStateKey, SharePartition]]:
        """Iterate over the states of all groups."""
        return iter(self._partitions.items())

    def of_group(self, group_id: str) -> Iterator[tuple[ShareStateKey, SharePartition]]:
        """Iterate over the group's states."""
        return ((key, known) for key, known in list(self._partitions.items()) if key.group_id == group_id)

    def set_offset(self, now_ms: int, key: ShareStateKey, offset: int) -> None:
        """Set the group's start offset and forget its record states. Raises OSError."""
        known = self._partitions.get(key)
        snapshot = ShareSnapshot(0 if known is None else known.state_epoch + 1, offset, written_ms=now_ms)
        self._write(now_ms, key, snapshot)
        self._partitions[key] = SharePartition(snapshot)
        self._expiries.cancel(key)

    def forget(self, now_ms: int, keys: Iterable[ShareStateKey]) -> None:
        """Delete these states. Raises OSError."""
        for key in keys:
            if key in self._partitions:
                self._write(now_ms, key, None)
                del self._partitions[key]
                self._expiries.cancel(key)

    def topic_deleted(self, now_ms: int, partitions: Iterable[Partition]) -> None:
        """Delete the states of deleted partitions. Raises OSError."""
        gone = {(partition.topic.topic_id, partition.index) for partition in partitions}
        self.forget(now_ms, [key for key in self._partitions if (key.topic_id, key.partition) in gone])

    def _limits(self, key: ShareStateKey) -> ShareLimits:
        return limits_of(self._settings.of_group(key.group_id))

    def _release(self, key: ShareStateKey, member_id: str, now_ms: int) -> None:
        known = self._partitions.get(key)
        if known is not None:
            limits = self._limits(key)
            self._apply(now_ms, key, known, known.decide_release(member_id, limits), limits)

    def _expire(self, now_ms: int, key: ShareStateKey) -> None:
        known = self._partitions.get(key)
        if known is not None:
            self._expiries.set(key, now_ms + RETRY_MS)  # in case the disk rejects the changes
            limits = self._limits(key)
            changes = known.decide_expiry(now_ms, limits)
            self._apply(now_ms, key, known, changes, limits)
            self._metrics.count("share_locks_expired", len(changes))
            known.forget_locks(now_ms)
            self._watch(key)

    def _apply(
        self, now_ms: int, key: ShareStateKey, known: SharePartition, changes: Changes, limits: ShareLimits
    ) -> None:
        if changes:
            self._write(now_ms, key, known.snapshot(changes, now_ms))
            known.apply(changes, now_ms + limits.lock_ms)
            self._count(now_ms, key, changes)
        self._watch(key)
        topic = self._topics.by_id(key.topic_id)
        partition = None if topic is None else topic.partition(key.partition)
        if partition is not None:
            self._wake(partition)

    def _count(self, now_ms: int, key: ShareStateKey, changes: Changes) -> None:
        for event, count in Counter(changes.values()).items():
            if event in _COUNTED:
                self._metrics.count(_COUNTED[event], count)
        given_up = [offset for offset, event in changes.items() if event is RecordEvent.EXHAUSTED]
        if given_up and (times := self._given_up.hit(now_ms)):
            topic = self._topics.by_id(key.topic_id)
            _log.warning(
                "share group %r gives up offset %s of %s-%s: it was delivered share.delivery.count.limit times, and no "
                "member accepted it; %d such answers since the last such message",
                *(key.group_id, given_up[0], key.topic_id if topic is None else topic.name, key.partition, times),
            )

    def handed_out(self, key: ShareStateKey, acquired: Sequence[AcquiredRange]) -> None:
        """Record a delivery."""
        count = sum(each.last_offset - each.first_offset + 1 for each in acquired)
        self._metrics.count("share_records_delivered", count)
        self._watch(key)

    def gauges(self) -> dict[str, int]:
        """Return the current gauges."""
        return {
            "share_partitions": len(self._partitions),
            "share_sessions": len(self.sessions),
            "share_records_locked": sum(each.acquired for each in self._partitions.values()),
        }

    def _watch(self, key: ShareStateKey) -> None:
        """Schedule the next expiry of a lock in the partition."""
        self._expiries.set(key, self._partitions[key].next_expiry_ms())

    def _write(self, now_ms: int, key: ShareStateKey, snapshot: ShareSnapshot | None) -> None:
        value = None if snapshot is None else encode_share_snapshot(snapshot)
        name = f"{key.group_id}:{key.topic_id}:{key.partition}"
        partition = self._runtime.partition_of(name)
        appended = self._runtime.append(now_ms, partition, [(encode_share_state_key(key), value)])
        if isinstance(appended, Rejected):
            raise OSError(f"the state of {name} cannot be written: {appended.message}")


def _replay(last: dict[ShareStateKey, ShareSnapshot], header: BatchHeader, batch: memoryview) -> None:
    """Keep the newest snapshot of each key."""
    if header.is_control:
        return
    for _, key_bytes, value in pairs_of(header, batch):
        key = decode_share_state_key(key_bytes)
        if key is None:
            continue
        if value is None:
            last.pop(key, None)
        else:
            last[key] = decode_share_snapshot(value)
