"""The partitions of a consumer: callbacks of rebalances, start offsets and pauses."""

from __future__ import annotations

import concurrent.futures
import re
import time
import weakref
from asyncio import run_coroutine_threadsafe
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from fencepost.client.blocking.consumer import Consumer as OurConsumer
from fencepost.client.types import OffsetAt, OffsetSpec, RebalanceListener
from fencepost.client.types import TopicPartition as OurTopicPartition
from fencepost.compat.confluent_kafka.base.errors import local_error
from fencepost.compat.confluent_kafka.base.values import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TopicPartition,
    topic_partition_of,
)
from fencepost.compat.confluent_kafka.clients import refusal

__all__ = ["Assignments"]

_DEFAULT: Final = (OFFSET_STORED, OFFSET_INVALID)  # the committed position
_TAIL: Final = -2000  # librdkafka: this minus a number of records means so many records before the end


class _Start(NamedTuple):
    """A start position: `back` records before the offset of `spec`."""

    spec: OffsetSpec
    back: int = 0


_LOGICAL: Final = {OFFSET_BEGINNING: _Start(OffsetSpec.EARLIEST), OFFSET_END: _Start(OffsetSpec.LATEST)}

Callback = Callable[[Any, list[TopicPartition]], Any]
Starts = dict[OurTopicPartition, _Start]


class _Search(NamedTuple):
    """A search for start positions: those that it looks for, the offsets that have arrived, and its end."""

    wanted: Starts
    found: dict[OurTopicPartition, OffsetAt]
    end: concurrent.futures.Future[None]


def _start_of(offset: int) -> _Start | None:
    """Return the position for a logical offset; None for other offsets."""
    return _Start(OffsetSpec.LATEST, _TAIL - offset) if offset < _TAIL else _LOGICAL.get(offset)


class _Listener(RebalanceListener):
    """A listener that passes rebalances to `Assignments`. Its weak reference does not keep the consumer alive."""

    def __init__(self, assignments: Assignments) -> None:
        self._assignments = weakref.ref(assignments)

    def on_partitions_assigned(self, partitions: list[OurTopicPartition]) -> None:
        if (found := self._assignments()) is not None:
            found.call_back("on_assign", partitions)

    def on_partitions_revoked(self, partitions: list[OurTopicPartition]) -> None:
        if (found := self._assignments()) is not None:
            found.call_back("on_revoke", partitions)

    def on_partitions_lost(self, partitions: list[OurTopicPartition]) -> None:
        if (found := self._assignments()) is not None:
            found.call_back("on_lost", partitions)


class Assignments:
    """The partitions of a consumer, with pauses and start positions."""

    def __init__(
        self, consumer: Any, client: OurConsumer, forget: Callable[[Iterable[OurTopicPartition]], None]
    ) -> None:
        """Start without partitions.

        Args:
            consumer: The consumer that the callbacks get.
            client: Fencepost's consumer.
            forget: Called with partitions that are no longer read, or whose reading continues at another offset.
        """
        self._consumer = weakref.ref(consumer)
        self._client = client
        self._forget = forget
        self._listener = _Listener(self)
        self._callbacks: dict[str, Callback | None] = {}
        self._subscribed = False
        self._in_callback = ""
        self._offered: set[OurTopicPartition] = set()
        self._paused: set[OurTopicPartition] = set()
        self._starts: Starts = {}  # start positions that are not resolved yet; their partitions are paused
        self._looking: _Search | None = None

    # --- subscription ---

    def subscribe(
        self,
        topics: list[str] | re.Pattern[str],
        on_assign: Callback | None,
        on_revoke: Callback | None,
        on_lost: Callback | None,
    ) -> None:
        """Replace the subscription and the callbacks."""
        if not self._subscribed:
            self.replace([])
        self._callbacks = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost or on_revoke}
        self._client.subscribe(topics, self._listener)
        self._subscribed = bool(topics)

    def unsubscribe(self) -> None:
        """Leave the group and forget all partitions."""
        try:
            self._client.unsubscribe()
        finally:  # on_revoke may have raised
            self._subscribed = False
            self._end_all()

    def call_back(self, kind: str, partitions: list[OurTopicPartition]) -> None:
        """Call the callback for a rebalance."""
        callback, consumer = self._callbacks.get(kind), self._consumer()
        self._in_callback, self._offered = kind, set(partitions)
        try:
            if callback is not None and consumer is not None:
                callback(consumer, [TopicPartition(*partition) for partition in partitions])
        finally:
            self._in_callback, self._offered = "", set()
            if consumer is not None:
                consumer._hand.sync()  # the automatic commit that follows has the offsets that the callback stored
            if kind != "on_assign":
                self._gone(partitions)

    # --- assignment ---

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Replace the assigned partitions. Raises UsageError for a subscribed consumer outside of a callback."""
        if self._in_callback == "on_assign":
            self._check_offered("assign", partitions)
            self._begin(partitions)
        elif self._in_callback:
            if partitions:
                raise refusal(f"Consumer.assign in {self._in_callback}", "the group takes the partitions away")
        elif self._subscribed:
            raise refusal(
                "Consumer.assign of a subscribed consumer", "call unsubscribe() first, or assign in on_assign"
            )
        else:
            self.replace(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assigned ones."""
        if self._in_callback == "on_assign":
            self._check_offered("incremental_assign", partitions)
        elif self._subscribed:
            raise local_error("_STATE", "incremental_assign() of a subscribed consumer is possible in on_assign only")
        else:
            self._check_offsets(partitions)
            topic_partitions = [topic_partition_of(each) for each in partitions]
            again = sorted(set(topic_partitions) & set(self._client.assignment()))
            if again:
                raise local_error("_CONFLICT", f"incremental_assign(): assigned already: {again}")
            self._client.incremental_assign(topic_partitions)
        self._begin(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assigned ones."""
        topic_partitions = [topic_partition_of(each) for each in partitions]
        if self._in_callback in ("on_revoke", "on_lost"):
            return  # Fencepost releases the partitions after the callback
        if self._subscribed or self._in_callback:
            raise local_error("_STATE", "incremental_unassign() of a subscribed consumer is possible in on_revoke only")
        missing = set(topic_partitions) - set(self._client.assignment())
        if missing:
            raise local_error("_INVALID_ARG", f"incremental_unassign(): not assigned: {sorted(missing)}")
        self._commit_stored()
        self._client.incremental_unassign(topic_partitions)
        self._gone(topic_partitions)

    def replace(self, partitions: list[TopicPartition]) -> None:
        """Assign exactly these partitions, without a subscription. All of them start anew."""
        self._check_offsets(partitions)
        if self._client.assignment():
            self._commit_stored()
            self._client.assign([])
            self._end_all()
        self._client.assign([topic_partition_of(each) for each in partitions])
        self._begin(partitions)

    def _commit_stored(self) -> None:
        """Commit stored offsets before partitions are released, if enable.auto.commit is set."""
        core = self._client._core
        if core.config.enable_auto_commit:
            self._client._io.call(lambda: core._commits.quietly(core._to_commit(), core._deadline(None)))

    def _check_offered(self, call: str, partitions: list[TopicPartition]) -> None:
        if {topic_partition_of(each) for each in partitions} != self._offered:
            raise refusal(
                f"Consumer.{call} in on_assign with other partitions than the callback got",
                "call pause() for the others",
            )

    def _check_offsets(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            if not (each.offset >= 0 or each.offset in _DEFAULT or _start_of(each.offset)):
                raise local_error("_INVALID_ARG", f"assign(): offset {each.offset} of {each.topic}-{each.partition}")

    def _begin(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            if each.offset >= 0 or _start_of(each.offset):
                self._go_to(each)

    def _end_all(self) -> None:
        self._paused.clear()
        self._starts.clear()
        self._forget(list({*self._consumer_places()}))

    def _consumer_places(self) -> Iterable[OurTopicPartition]:
        consumer = self._consumer()
        return () if consumer is None else [*consumer._positions, *consumer._uncommitted]

    def _gone(self, partitions: Iterable[OurTopicPartition]) -> None:
        gone = set(partitions)
        self._paused -= gone
        for partition in gone:
            self._starts.pop(partition, None)
        self._forget(gone)

    # --- positions ---

    def seek(self, partition: TopicPartition) -> None:
        """Continue at an offset. Raises KafkaException."""
        self.check_assigned("Failed to seek", partition)
        if partition.offset < 0 and not _start_of(partition.offset):
            raise local_error("_INVALID_ARG", f"Failed to seek to offset {partition.offset}")
        self._go_to(partition)

    def check_assigned(self, what: str, partition: TopicPartition) -> None:
        """Raise KafkaException if the partition is not assigned."""
        assigned = self._client.assignment()
        if topic_partition_of(partition) in assigned:
            return
        code = (
            "_STATE"
            if partition.topic in {topic_partition.topic for topic_partition in assigned}
            else "_UNKNOWN_PARTITION"
        )
        raise local_error(code, f"{what}: {partition.topic}-{partition.partition} is not assigned")

    def _go_to(self, partition: TopicPartition) -> None:
        topic_partition = topic_partition_of(partition)
        self._forget([topic_partition])
        if partition.offset >= 0:
            epoch = -1 if partition.leader_epoch is None else partition.leader_epoch
            self._client.seek(topic_partition, partition.offset, epoch)
            if self._starts.pop(topic_partition, None) is not None:
                self._let_go(topic_partition)
            return
        self._put_back(topic_partition)
        self._client.pause([topic_partition])
        start = _start_of(partition.offset)
        if start is not None:
            self._starts[topic_partition] = start
        self._looking = None

    def _put_back(self, partition: OurTopicPartition) -> None:
        """Return the partition's records that the application has not received to Fencepost's consumer."""
        if partition in self._client._core._reading._handed.first_left():
            at = self._client.positions()[partition]
            self._client.seek(partition, at.offset, at.leader_epoch)

    def _let_go(self, partition: OurTopicPartition) -> None:
        if partition not in self._paused:
            self._client.resume([partition])

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Pause those of the partitions that are assigned."""
        assigned = set(self._client.assignment())
        for partition in map(topic_partition_of, partitions):
            if partition in assigned:
                self._paused.add(partition)
                self._put_back(partition)
                self._client.pause([partition])

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume those of the partitions that are assigned."""
        assigned = set(self._client.assignment())
        topic_partitions = {topic_partition_of(each) for each in partitions} & assigned
        self._paused -= topic_partitions
        self._client.resume(sorted(topic_partitions - self._starts.keys()))

    def reads(self, wait_ms: int) -> bool:
        """Resolve pending start positions, then return True. Without partitions, wait `wait_ms` and return False."""
        if not self._subscribed and not self._client.assignment():
            time.sleep(wait_ms / 1000)
            return False
        if self._starts:
            self._find_starts(wait_ms)
        return True

    def _find_starts(self, wait_ms: int) -> None:
        core = self._client._core
        if self._looking is None:
            arrived: dict[OurTopicPartition, OffsetAt] = {}
            specs = {partition: start.spec for partition, start in self._starts.items()}
            call = core.offsets_as_they_come(specs, arrived.update)
            self._looking = _Search(dict(self._starts), arrived, run_coroutine_threadsafe(call, self._client._io.loop))
        wanted, found, end = self._looking
        concurrent.futures.wait([end], timeout=wait_ms / 1000)
        has_ended = end.done()  # first: then all offsets have arrived
        for partition, at in list(found.items()):
            if self._starts.get(partition) == wanted[partition] and partition in self._client.assignment():
                back = self._starts.pop(partition).back
                self._client.seek(partition, max(at.offset - back, 0), -1 if back else at.leader_epoch)
                self._let_go(partition)
        if has_ended:
            self._looking = None
            end.result()
