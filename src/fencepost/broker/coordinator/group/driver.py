"""Driver of the group coordinator: it appends records to `__consumer_offsets` and delays replies until durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any
from uuid import UUID

from fencepost.broker.coordinator.group.base.records import GroupRecord
from fencepost.broker.coordinator.group.base.requests import GroupResult, Joined, Synced
from fencepost.broker.coordinator.group.base.settings import Numbers
from fencepost.broker.coordinator.group.coordinator import GroupCoordinator
from fencepost.broker.coordinator.group.log import decode_record, encode_record
from fencepost.broker.coordinator.runtime import CoordinatorRuntime
from fencepost.broker.log.results import Rejected
from fencepost.broker.settings.dynamic import DynamicSettings
from fencepost.broker.settings.values import BrokerConfig
from fencepost.broker.timing.deadline_signal import DeadlineSignal
from fencepost.broker.topics.catalogue import TopicCatalogue
from fencepost.broker.topics.internal import CONSUMER_OFFSETS
from fencepost.broker.topics.topic import Partition
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.records.batch import BatchHeader
from fencepost.protocol.records.markers import parse_marker
from fencepost.protocol.records.walk import pairs_of

__all__ = ["Groups"]


class Groups:
    """Drives a `GroupCoordinator` with the broker's logs. A parked request's token is a function that answers it."""

    def __init__(
        self,
        runtime: CoordinatorRuntime,
        config: BrokerConfig,
        topics: TopicCatalogue,
        settings: DynamicSettings,
        *,
        new_uuid: Callable[[], UUID],
        deadline_signal: DeadlineSignal,
    ) -> None:
        self._runtime = runtime
        self._topics = topics
        self._refusals = runtime.refusals("refused_groups")
        self.coordinator = GroupCoordinator(
            _Settings(config, settings), lambda: str(new_uuid()), _Topics(topics), self._refused, deadline_signal
        )

    def load(self, now_ms: int, settle: Callable[[int, Partition], None]) -> None:
        """Replay `__consumer_offsets` including markers.

        Raises OSError.

        `settle(now_ms, partition)` ends the transactions that a power loss left open in the partition.
        """
        topic = self._topics.get(CONSUMER_OFFSETS)
        if topic is not None:
            self.coordinator.set_offsets_topic_partitions(len(topic.partitions))
        for partition in self._runtime.stored():
            self._runtime.load(partition, partition.log.log_start_offset, partial(self._replay, partition.index))
            settle(now_ms, partition)
        self._runtime.until_done(partial(self._apply_loaded, self.coordinator.load(now_ms)), now_ms)

    def _apply_loaded(self, result: GroupResult[Any], now_ms: int) -> None:
        self.apply(now_ms, result)

    def offsets_partition(self, group_id: str) -> Partition:
        """Return the group's partition of `__consumer_offsets`."""
        return self._runtime.partition_of(group_id)

    def apply(
        self, now_ms: int, result: GroupResult[Any], reply: Callable[[], None] | None = None, *, fenced: bool = False
    ) -> int:
        """Append the decision's records.

        Replies are sent once these are durable.

        `fenced`: the decision concerns many groups. A group whose records cannot be written because of a defect is
        reported and skipped.

        Returns an error code if a log refused records. Raises OSError.
        """
        try:
            code = self._append(now_ms, result.records, fenced=fenced)
        except OSError:
            # Nothing else would answer the parked requests. The request being handled loses its connection.
            _send(result.refused(ErrorCode.NOT_COORDINATOR), None)
            raise
        if code == ErrorCode.NONE and (reply is not None or result.replies):
            self._runtime.when_durable(now_ms, lambda _: _send(result.replies, reply))
        return code

    def complete_transaction(
        self, producer_id: int, producer_epoch: int, commit: bool, index: int, marker_ms: int
    ) -> None:
        """Apply a marker that is durable in that partition of `__consumer_offsets`. `marker_ms` is its time."""
        self.coordinator.complete_transaction(producer_id, producer_epoch, commit, index, marker_ms)

    def topic_deleted(self, now_ms: int, name: str, count: int) -> None:
        """Delete the committed offsets of a deleted topic with that many partitions."""
        self.apply(now_ms, self.coordinator.delete_partitions([(name, index) for index in range(count)]))

    def on_time(self, now_ms: int) -> None:
        """End sessions and rebalances that are due."""
        self._runtime.on_time(now_ms, self._due, partial(self.apply, fenced=True))

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next work for `on_time`, or None."""
        return self._runtime.next_deadline_ms(self.coordinator.next_deadline_ms())

    def _due(self, now_ms: int) -> Sequence[GroupResult[None]]:
        if self.coordinator.next_deadline_ms() is None:
            return ()
        return (self.coordinator.on_time(now_ms, failed=self._not_decided),)

    def _not_decided(self, group_id: str, error: Exception) -> None:
        self._runtime.failure_guard.failed(f"due work of group {group_id!r}", error, "It is tried again in a second")

    def _refused(self, now_ms: int, group_id: str) -> None:
        self._refusals.note(now_ms, f"group {group_id!r}: there are {self.coordinator.count} already (max.groups)")

    def _append(self, now_ms: int, records: Sequence[GroupRecord], *, fenced: bool) -> int:
        for (group_id, producer_id, epoch), same in groupby(
            records, lambda r: (r.group_id, r.producer_id, r.producer_epoch)
        ):
            batch = list(same)
            try:
                code = self._append_batch(now_ms, group_id, batch, producer_id, epoch)
            except OSError:
                raise
            except Exception as error:
                if not fenced:
                    raise
                self._runtime.failure_guard.failed(f"a decision for group {group_id!r}", error, "It may be incomplete")
                continue
            if code:
                return code
        return ErrorCode.NONE

    def _append_batch(
        self, now_ms: int, group_id: str, batch: Sequence[GroupRecord], producer_id: int, epoch: int
    ) -> int:
        encoded = [encode_record(record) for record in batch]
        partition = self._runtime.partition_of(group_id)
        appended = self._runtime.append(now_ms, partition, encoded, producer_id=producer_id, producer_epoch=epoch)
        if isinstance(appended, Rejected):
            return appended.error_code
        for delta, record in enumerate(batch):
            self.coordinator.replay(record, appended.base_offset + delta)
        return ErrorCode.NONE

    def _replay(self, index: int, header: BatchHeader, batch: memoryview) -> None:
        """Replay one batch of that partition."""
        if header.is_control:
            if header.record_count:  # false after compaction, if only the header is left
                commit = parse_marker(batch).commit
                owner = (header.producer_id, header.producer_epoch)
                self.coordinator.complete_transaction(*owner, commit, index, header.max_timestamp)
            return
        owner = (header.producer_id, header.producer_epoch) if header.is_transactional else (-1, -1)
        for offset, key, value in pairs_of(header, batch):
            record = decode_record(key, value, *owner)
            if record is not None:
                self.coordinator.replay(record, offset)


class _Settings:
    """The settings as seen by the group coordinator."""

    def __init__(self, config: BrokerConfig, settings: DynamicSettings) -> None:
        self.number = config.number
        self.text = config.text
        self._of_group = settings.of_group

    def of_group(self, group_id: str) -> Numbers:
        return self._of_group(group_id)


class _Topics:
    """The topics as seen by the group coordinator."""

    def __init__(self, topics: TopicCatalogue) -> None:
        self._topics = topics

    @property
    def version(self) -> int:
        return self._topics.version

    def names(self) -> Iterable[str]:
        return (topic.name for topic in self._topics)

    def find(self, name: str) -> tuple[UUID, int] | None:
        topic = self._topics.get(name)
        return None if topic is None else (topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: UUID) -> str | None:
        topic = self._topics.by_id(topic_id)
        return None if topic is None else topic.name


def _send(replies: Sequence[tuple[Any, Joined | Synced]], reply: Callable[[], None] | None) -> None:
    if reply is not None:
        reply()
    for answer, parked in replies:
        answer(parked)
