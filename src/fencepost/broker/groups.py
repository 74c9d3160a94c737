"""The group coordinator at work: its records appended to `__consumer_offsets`, its replies held until they are
durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fencepost.broker.group.assignors import ASSIGNORS
from fencepost.broker.group.config import GroupConfig, MemberTiming
from fencepost.broker.group.coordinator import GroupCoordinator
from fencepost.broker.group.records import GroupRecord
from fencepost.broker.group.requests import GroupResult, Joined, Synced
from fencepost.broker.internal_records import encode_internal_batch, read_internal_records
from fencepost.broker.log.results import Rejected
from fencepost.broker.partitioning import coordinator_partition
from fencepost.broker.settings import InvalidSetting
from fencepost.broker.topics import CONSUMER_OFFSETS, Partition
from fencepost.broker.transactions import append_records, internal_batches
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.control import parse_marker
from fencepost.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from fencepost.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from fencepost.broker.connection import Call
    from fencepost.broker.core import BrokerCore

__all__ = ["Groups"]

_FIRST_NULLABLE_PROTOCOL = 7


class Groups:
    """Drives a `GroupCoordinator` with the broker's logs. The token of a parked request is its `Call`."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        config = core.config
        self.coordinator = GroupCoordinator(
            GroupConfig(
                offsets_topic_partitions=config.number("offsets.topic.num.partitions"),
                initial_rebalance_delay_ms=config.number("group.initial.rebalance.delay.ms"),
                min_session_timeout_ms=config.number("group.min.session.timeout.ms"),
                max_session_timeout_ms=config.number("group.max.session.timeout.ms"),
                max_size=config.number("group.max.size"),
                migration_policy=config.text("group.consumer.migration.policy"),
                consumer_max_size=config.number("group.consumer.max.size"),
                consumer_assignors=_assignors(config.text("group.consumer.assignors")),
                offset_metadata_max_bytes=config.number("offset.metadata.max.bytes"),
                offsets_retention_ms=config.number("offsets.retention.minutes") * 60_000,
            ),
            lambda: str(core.new_uuid()),
            _Topics(core),
            self._timing,
        )

    def load(self, now_ms: int) -> None:
        """Replay `__consumer_offsets`, markers included. Raises OSError."""
        topic = self._core.topics.get(CONSUMER_OFFSETS)
        if topic is not None:
            self.coordinator.set_offsets_topic_partitions(len(topic.partitions))
        for partition in topic.partitions if topic is not None else ():
            if self._core.files.exists(partition.directory):
                self._replay(partition)
                self._core.transactions.settle(now_ms, partition)
        self.apply(now_ms, self.coordinator.load(now_ms))

    def offsets_partition(self, group_id: str) -> Partition:
        """The partition of `__consumer_offsets` that the group belongs to."""
        partitions = self._core.topics.internal(CONSUMER_OFFSETS).partitions
        return partitions[coordinator_partition(group_id, len(partitions))]

    def apply(self, now_ms: int, result: GroupResult[Any], reply: Callable[[], None] | None = None) -> int:
        """Carry out a decision; replies go out once durable.

        Returns an error code if a log refused records. Raises OSError.
        """
        try:
            code = self._append(now_ms, result.records)
        except OSError:
            # Parked requests have nobody else to tell them; the one that is being handled loses its connection.
            _send(result.refused(ErrorCode.NOT_COORDINATOR), None)
            raise
        if code == ErrorCode.NONE and (reply is not None or result.replies):
            self._core.durability.when_durable(now_ms, lambda _: _send(result.replies, reply))
        return code

    def complete_transaction(self, producer_id: int, producer_epoch: int, commit: bool, index: int) -> None:
        """A marker is durable in that partition of `__consumer_offsets`."""
        self.coordinator.complete_transaction(producer_id, producer_epoch, commit, index)

    def topic_deleted(self, now_ms: int, name: str, count: int) -> None:
        """Forget the offsets that were committed for a topic of that many partitions."""
        self.apply(now_ms, self.coordinator.delete_partitions([(name, index) for index in range(count)]))

    def on_time(self, now_ms: int) -> None:
        """End sessions and rebalances that are due."""
        if self.next_deadline_ms() is not None:
            self.apply(now_ms, self.coordinator.on_time(now_ms))

    def next_deadline_ms(self) -> int | None:
        """When `on_time` has something to do."""
        return self.coordinator.next_deadline_ms()

    def _timing(self, group_id: str) -> MemberTiming:
        settings = self._core.settings.of_group(group_id)
        return MemberTiming(
            settings.number("consumer.session.timeout.ms"), settings.number("consumer.heartbeat.interval.ms")
        )

    def _append(self, now_ms: int, records: Sequence[GroupRecord]) -> int:
        for (group_id, producer_id, epoch), same in groupby(
            records, lambda r: (r.group_id, r.producer_id, r.producer_epoch)
        ):
            batch = list(same)
            encoded = encode_internal_batch(
                [record.encode() for record in batch],
                now_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                transactional=producer_id >= 0,
            )
            appended = append_records(self._core, self.offsets_partition(group_id), encoded, now_ms)
            if isinstance(appended, Rejected):
                return appended.error_code
            for delta, record in enumerate(batch):
                self.coordinator.replay(record, appended.base_offset + delta)
        return ErrorCode.NONE

    def _replay(self, partition: Partition) -> None:
        for header, batch in internal_batches(partition):
            if header.is_control:
                if not header.record_count:
                    continue  # compaction has left nothing of it but its header
                commit = parse_marker(batch).commit
                self.coordinator.complete_transaction(
                    header.producer_id, header.producer_epoch, commit, partition.index
                )
                continue
            owner = (header.producer_id, header.producer_epoch) if header.is_transactional else (-1, -1)
            for offset, key, value in read_internal_records(header, batch):
                record = GroupRecord.decode(key, value, *owner)
                if record is not None:
                    self.coordinator.replay(record, offset)


class _Topics:
    """The topics as the group coordinator sees them."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core

    @property
    def version(self) -> int:
        return self._core.topics.version

    def names(self) -> Iterable[str]:
        return (topic.name for topic in self._core.topics)

    def find(self, name: str) -> tuple[UUID, int] | None:
        topic = self._core.topics.get(name)
        return None if topic is None else (topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: UUID) -> str | None:
        topic = self._core.topics.by_id(topic_id)
        return None if topic is None else topic.name


def _assignors(text: str) -> tuple[str, ...]:
    """The assignors of a list. Raises InvalidSetting for an empty list and for one that does not exist."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names:
        raise InvalidSetting(f"group.consumer.assignors: {text!r}; known are {', '.join(ASSIGNORS)}")
    return names


def _send(replies: Sequence[tuple[Any, Joined | Synced]], reply: Callable[[], None] | None) -> None:
    if reply is not None:
        reply()
    for call, answer in replies:
        call.reply(_joined(call, answer) if isinstance(answer, Joined) else _synced(answer))


def _joined(call: Call, answer: Joined) -> JoinGroupResponse:
    name = answer.protocol_name
    return JoinGroupResponse(
        error_code=answer.error_code,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name="" if name is None and call.version < _FIRST_NULLABLE_PROTOCOL else name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in answer.members
        ],
    )


def _synced(answer: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=answer.error_code,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
