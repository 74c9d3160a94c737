"""Consumer with the interface of confluent-kafka, over Fencepost's Consumer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from fencepost.client.blocking.consumer import Consumer as OurConsumer
from fencepost.client.records import Record
from fencepost.client.types import GroupMetadata, OffsetAndMetadata
from fencepost.client.types import TopicPartition as OurTopicPartition
from fencepost.compat.confluent_kafka.assignments import Assignments
from fencepost.compat.confluent_kafka.base.error_codes import NUMBERS
from fencepost.compat.confluent_kafka.base.errors import KafkaError, KafkaException, calling, error_of, local_error
from fencepost.compat.confluent_kafka.base.fetched_messages import FetchedMessages, Offer
from fencepost.compat.confluent_kafka.base.settings import given, milliseconds
from fencepost.compat.confluent_kafka.base.values import (
    OFFSET_INVALID,
    Message,
    TopicPartition,
    checked_partition,
    checked_partitions,
    committed_partition,
    distinct_partitions,
    position_to_commit,
    topic_partition_of,
)
from fencepost.compat.confluent_kafka.clients import Events, MetadataClient
from fencepost.config import ConsumerConfig
from fencepost.errors import KafkaError as OurError

_CLOSED: Final = "Consumer closed"
_TICK_MS: Final = 100  # a wait is interrupted at this interval to look for events
_MOST_MESSAGES: Final = 1_000_000

Positions = Mapping[OurTopicPartition, OffsetAndMetadata]


class Consumer(MetadataClient):
    """A consumer of a group, for one thread at a time. Its callbacks run inside that thread's calls."""

    _closed_text = _CLOSED

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create a consumer from a dict of settings with librdkafka's names and defaults."""
        self._given = given(ConsumerConfig, args, kwargs)
        self._callbacks: list[Callable[[], object]] = []
        self._successes = _Successes(self._callbacks, self._given.on_commit)
        if self._given.on_commit is not None:
            self._given.config["interceptors"] = (self._successes,)
        self._events = Events(self._given, "consumer")
        with calling(_CLOSED):
            self._client = OurConsumer(**self._given.config)
        self._client._warns_unclosed = False
        self._events.begin(self._client)
        self._hand = FetchedMessages(self._client, partition_eof=self._given.partition_eof)
        self._positions: dict[OurTopicPartition, OffsetAndMetadata] = {}  # after the last returned record
        self._uncommitted: dict[OurTopicPartition, OffsetAndMetadata] = {}  # stored, and not committed by commit()
        self._assignments = Assignments(self, self._client, self._forget)

    def _forget(self, partitions: Iterable[OurTopicPartition]) -> None:
        """Drop the messages in hand and the positions of partitions that are no longer read, or from another offset."""
        gone = list(partitions)
        self._hand.forget(gone)
        for partition in gone:
            self._positions.pop(partition, None)

    # --- records ---

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next record, error or event, and call callbacks.

        Args:
            timeout: Maximum wait in seconds; None or -1: no limit.

        Returns:
            The message, or None after the timeout. Its `error()` is None for a record.

        Raises:
            RuntimeError: The consumer is closed.
            BaseException: A callback raised it.
        """
        offer = self._offered(1, timeout)
        hand = self._hand
        while hand.last != offer.number:
            offer = self._offered(1, timeout)
        hand.received, hand.pending = offer.messages, offer.rest  # no call from here on: see FetchedMessages
        return offer.messages[0] if offer.messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` messages, after waiting at most `timeout` seconds for them (-1: no limit)."""
        if not isinstance(num_messages, int):
            raise TypeError(f"num_messages must be int, not {type(num_messages).__name__}")
        if not 0 <= num_messages <= _MOST_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        offer = self._offered(num_messages, timeout)
        hand = self._hand
        while hand.last != offer.number:
            offer = self._offered(num_messages, timeout)
        hand.received, hand.pending = offer.messages, offer.rest  # no call from here on: see FetchedMessages
        return offer.messages

    def _offered(self, most: int, timeout: float | None) -> Offer:
        """Call callbacks, and offer the next messages."""
        self._open()
        number = self._hand.last = self._hand.last + 1
        self._count_received()  # also what a signal handler has polled since the line before the number
        wait_ms = milliseconds(timeout)
        until_s = None if wait_ms is None else time.monotonic() + wait_ms / 1000
        self._call_back()
        with calling(_CLOSED):
            self._gather(most, until_s)
        return self._hand.offer(number, most)

    def _gather(self, most: int, until_s: float | None) -> None:
        looked = False
        while not self._hand.draw(most):
            left_ms = _TICK_MS if until_s is None else max(round((until_s - time.monotonic()) * 1000), 0)
            if looked and left_ms == 0:
                return
            looked = True
            self._events.tell()
            if self._assignments.reads(min(left_ms, _TICK_MS)):
                self._hand.fill(min(left_ms, _TICK_MS))
                self._events.tell()

    def _open(self) -> Any:
        client = super()._open()
        self._count_received()
        return client

    def _count_received(self) -> None:
        """Move the positions behind the records that the last call returned, and store them if that is set."""
        hand = self._hand
        received = hand.received
        for message in received:
            after = {} if message.error() is not None else _position_after(message)
            if hand.received is not received:
                return  # a signal handler has polled: its call has counted them
            self._positions |= after  # no call between these
            if self._given.store_offsets:
                hand.stored |= after
                self._uncommitted |= after
        if hand.received is received:
            hand.received = []

    def _store(self, positions: Positions) -> None:
        self._hand.stored |= positions
        self._uncommitted |= positions

    # --- what to read ---

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[..., Any] | None = None,
        on_revoke: Callable[..., Any] | None = None,
        on_lost: Callable[..., Any] | None = None,
    ) -> None:
        """Subscribe to topics. This replaces the previous subscription.

        Args:
            topics: Names. A name that begins with "^" is a regular expression that matches the start of topic names.
            on_assign: Called as `on_assign(consumer, partitions)` after partitions were assigned.
            on_revoke: Called before partitions are released.
            on_lost: Called instead of on_revoke for partitions that other members already own.
        """
        self._open()
        given_topics: object = topics
        if not isinstance(given_topics, list) or not all(isinstance(each, str) for each in given_topics):
            raise TypeError("expected list of topic unicode strings")
        if not topics or len(set(topics)) != len(topics):
            raise local_error("_INVALID_ARG", "subscribe(): a list of different topics is needed")
        for name, function in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} expects a callable")
        self._hand.sync()
        with calling(_CLOSED):
            self._assignments.subscribe(_wanted(topics), on_assign, on_revoke, on_lost)

    def unsubscribe(self) -> None:
        """Leave the group. With enable.auto.commit, this first commits the stored offsets."""
        self._open()
        self._hand.sync()
        with calling(_CLOSED):
            self._assignments.unsubscribe()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions, from their offsets if they have one.

        In on_assign, the partitions must be those that the callback got. Otherwise a subscribed consumer raises
        UsageError.
        """
        self._open()
        wanted = distinct_partitions("assign()", partitions)
        self._hand.sync()
        with calling(_CLOSED):
            self._assignments.assign(wanted)

    def unassign(self, *_: object) -> None:
        """Remove all partitions. This is not needed in on_revoke and on_lost."""
        self.assign([])

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read further partitions."""
        self._open()
        wanted = distinct_partitions("incremental_assign()", partitions)
        with calling(_CLOSED):
            self._assignments.incremental_assign(wanted)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop reading these partitions."""
        self._open()
        gone = checked_partitions(partitions)
        self._hand.sync()
        with calling(_CLOSED):
            self._assignments.incremental_unassign(gone)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions being read."""
        with calling(_CLOSED):
            return [TopicPartition(*partition) for partition in self._open().assignment()]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Return no records of these partitions until resume(). Partitions that are not assigned are ignored."""
        self._open()
        with calling(_CLOSED):
            self._assignments.pause(checked_partitions(partitions))

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Return records of paused partitions again."""
        self._open()
        with calling(_CLOSED):
            self._assignments.resume(checked_partitions(partitions))

    def seek(self, partition: TopicPartition) -> None:
        """Continue at the offset of `partition`, or at OFFSET_BEGINNING or OFFSET_END. Raises KafkaException."""
        self._open()
        wanted = checked_partition(partition)
        with calling(_CLOSED):
            self._assignments.seek(wanted)

    # --- offsets ---

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets after the last returned records; OFFSET_INVALID for partitions without one."""
        self._open()
        topic_partitions = [topic_partition_of(each) for each in checked_partitions(partitions)]
        known = [(partition, self._positions.get(partition)) for partition in topic_partitions]
        return [
            TopicPartition(*partition) if at is None else TopicPartition(*partition, at.offset, None, at.leader_epoch)
            for partition, at in known
        ]

    def committed(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """Return the committed offsets of the group; OFFSET_INVALID for partitions without one."""
        client = self._open()
        topic_partitions = [topic_partition_of(each) for each in checked_partitions(partitions)]
        with calling(_CLOSED):
            found = client.committed(topic_partitions, milliseconds(timeout))
        return [committed_partition(partition, found.get(partition)) for partition in topic_partitions]

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the offset of a message, offsets of partitions, or the stored offsets that are not committed yet.

        Args:
            message: Commit the offset after this message.
            offsets: Partitions with the offsets of the next records.
            asynchronous: Return without waiting. A later poll() calls on_commit.

        Returns:
            The partitions with the committed offsets; None if asynchronous. Without arguments, also the partitions
            without an offset to commit, with OFFSET_INVALID.

        Raises:
            KafkaException: The commit failed, or there is nothing to commit (_NO_OFFSET).
            ValueError: Both message and offsets are given.
        """
        client = self._open()
        _check_chosen(message, offsets)
        positions = self._chosen(message, offsets)
        if not positions:
            nothing = KafkaError(NUMBERS["_NO_OFFSET"], "Commit failed: there is no offset to commit")
            if not asynchronous:
                raise KafkaException(nothing)
            self._failed(nothing, self.assignment())
            return None
        if asynchronous:
            client.commit_async(positions, self._committed_later)
            return None
        self._successes.silent = positions
        try:
            with calling(_CLOSED):
                client.commit(positions)
        finally:
            self._successes.silent = None
        self._done(positions)
        self._call_back()
        if message is not None or offsets is not None:
            return _partitions(positions)
        return [committed_partition(partition, positions.get(partition)) for partition in client.assignment()]

    def _chosen(
        self, message: Message | None, offsets: list[TopicPartition] | None
    ) -> dict[OurTopicPartition, OffsetAndMetadata]:
        if message is not None:
            return _position_after(message)
        if offsets is not None:
            return {
                topic_partition_of(each): position_to_commit(each)
                for each in checked_partitions(offsets)
                if each.offset >= 0
            }
        self._hand.sync()
        stored = self._client._core._reading.stored()  # without those of partitions that were taken away meanwhile
        return {partition: at for partition, at in stored.items() if self._uncommitted.get(partition) == at}

    def _done(self, positions: Positions) -> None:
        for partition, at in positions.items():
            if self._uncommitted.get(partition) == at:
                del self._uncommitted[partition]

    def _committed_later(self, error: OurError | None, positions: Positions) -> None:
        if error is None:
            self._done(positions)
        else:
            self._failed(error_of(error), _partitions(positions))

    def _failed(self, error: KafkaError, partitions: list[TopicPartition]) -> None:
        if self._given.on_commit is not None:
            self._callbacks.append(partial(self._given.on_commit, error, partitions))

    def _call_back(self) -> None:
        while self._callbacks:
            callback = self._callbacks[0]
            del self._callbacks[0]  # no call between this and the callback: a signal handler may raise at a call
            callback()

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets for commit() without arguments and for automatic commits.

        Raises:
            KafkaException: enable.auto.offset.store is not False, or no partition is assigned.
            ValueError: Not exactly one of message and offsets is given.
        """
        client = self._open()
        _check_chosen(message, offsets)
        if message is None and offsets is None:
            raise ValueError("expected either message or offsets")
        if self._given.store_offsets:
            raise local_error("_INVALID_ARG", "StoreOffsets failed: set enable.auto.offset.store to False")
        positions = self._chosen(message, offsets)
        assigned = set(client.assignment())
        for each in offsets or ():
            each.with_error(None if topic_partition_of(each) in assigned else KafkaError(NUMBERS["_UNKNOWN_PARTITION"]))
        known = {partition: at for partition, at in positions.items() if partition in assigned}
        if positions and not known:
            self._assignments.check_assigned("StoreOffsets failed", TopicPartition(*next(iter(positions))))
        self._store(known)

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """Return the first offset at or after a time for each partition; OFFSET_END if there is none.

        Args:
            partitions: Partitions, whose `offset` is the time in ms since 1970.
            timeout: Maximum wait in seconds; None: default_api_timeout_ms.

        Raises:
            KafkaException: A partition does not exist, or no broker answered.
        """
        self._open()
        wanted, wait_ms = checked_partitions(partitions), milliseconds(timeout)
        if not wanted:
            raise local_error("_INVALID_ARG", "offsets_for_times(): no partition is given")
        if len({topic_partition_of(each) for each in wanted}) == len(wanted):
            try:
                return self._offsets_for_times(wanted, wait_ms)
            except KafkaException as error:
                if len(wanted) == 1 or error.args[0].code() != NUMBERS["_UNKNOWN_PARTITION"]:
                    raise
        found = []
        for each in wanted:  # one by one, to learn which of them is unknown
            try:
                found += self._offsets_for_times([each], wait_ms)
            except KafkaException as error:
                if error.args[0].code() != NUMBERS["_UNKNOWN_PARTITION"]:
                    raise
                found.append(TopicPartition(*topic_partition_of(each), each.offset).with_error(error.args[0]))
        if all(each.error is not None for each in found):
            raise KafkaException(found[0].error)
        return found

    def _offsets_for_times(self, wanted: list[TopicPartition], wait_ms: int | None) -> list[TopicPartition]:
        """Ask for the offsets at the times of different partitions, in one call."""
        for each in wanted:
            _check_exists(each)
        with calling(_CLOSED), _of_partitions():
            found = self._open().offsets_for({topic_partition_of(each): each.offset for each in wanted}, wait_ms)
        partitions = map(topic_partition_of, wanted)
        return [
            TopicPartition(*partition, found[partition].offset, None, found[partition].leader_epoch)
            for partition in partitions
        ]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int]:
        """Return the first offset, and the offset after the last record (read_committed: the last stable offset).

        Args:
            partition: The partition.
            timeout: Maximum wait in seconds; None: default_api_timeout_ms.
            cached: Return the offsets of the last fetch without a request; OFFSET_INVALID if there was none.

        Raises:
            KafkaException: The partition does not exist, or no broker answered.
        """
        client = self._open()
        topic_partition = topic_partition_of(checked_partition(partition))
        _check_exists(partition)
        if cached:
            state = client._core._reading.states.get(topic_partition)
            ends = (-1, -1) if state is None else (state.log_start_offset, state.high_watermark)
            return (ends[0] if ends[0] >= 0 else OFFSET_INVALID), (ends[1] if ends[1] >= 0 else OFFSET_INVALID)
        wait_ms = milliseconds(timeout)
        with calling(_CLOSED), _of_partitions():
            low = client.beginning_offsets([topic_partition], wait_ms)
            return low[topic_partition], client.end_offsets([topic_partition], wait_ms)[topic_partition]

    # --- the group and the end ---

    def consumer_group_metadata(self) -> GroupMetadata:
        """Return the member's identity for Producer.send_offsets_to_transaction()."""
        with calling(_CLOSED):
            found: GroupMetadata = self._open().group_metadata()
        return found

    def memberid(self) -> str | None:
        """Return the member id, or None before the consumer has joined its group."""
        return self.consumer_group_metadata().member_id or None

    def close(self) -> None:
        """Leave the group and release all resources. With enable.auto.commit, this first commits the stored offsets."""
        if self._ended():
            return
        self._count_received()
        self._hand.sync()
        self._events.close()
        with calling(_CLOSED):
            self._client.close()
        self._call_back()

    def _end(self) -> None:
        self.close()


class _Successes:
    """An interceptor that queues a call of on_commit for every successful commit, including automatic ones.

    Attributes:
        silent: Positions of the present synchronous commit, for which on_commit is not called.
    """

    def __init__(self, callbacks: list[Callable[[], object]], on_commit: Callable[..., Any] | None) -> None:
        self._callbacks = callbacks
        self._on_commit = on_commit
        self.silent: Positions | None = None

    def on_consume(self, records: list[Record]) -> list[Record]:
        return records

    def on_commit(self, positions: Positions) -> None:
        if self._on_commit is None or positions == self.silent:
            self.silent = None
            return
        self._callbacks.append(partial(self._on_commit, None, _partitions(positions)))


def _check_chosen(message: object, offsets: object) -> None:
    """Raise TypeError or ValueError for wrong arguments of commit() and store_offsets()."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if not isinstance(message, (Message, type(None))):
        raise TypeError(f"expected Message, not {type(message).__name__}")
    if offsets is not None:
        checked_partitions(offsets)


def _check_exists(partition: TopicPartition) -> None:
    if partition.partition < 0:
        raise local_error("_UNKNOWN_PARTITION", f"{partition.topic} has no partition {partition.partition}")


@contextmanager
def _of_partitions() -> Iterator[None]:
    """Raise errors about unknown topics and partitions with the local code _UNKNOWN_PARTITION, as confluent-kafka."""
    try:
        yield
    except OurError as error:
        if error.code != NUMBERS["UNKNOWN_TOPIC_OR_PART"]:
            raise
        raise KafkaException(error_of(error, code=NUMBERS["_UNKNOWN_PARTITION"])) from error


def _wanted(topics: list[str]) -> list[str] | re.Pattern[str]:
    """Return the names, or one pattern for full names if any of them is a regular expression."""
    if not any(each.startswith("^") for each in topics):
        return topics
    try:
        return re.compile("|".join(f"(?:{each}.*)" if each.startswith("^") else re.escape(each) for each in topics))
    except re.error as error:
        raise local_error("_INVALID_ARG", f"subscribe: invalid regular expression: {error}") from error


def _partitions(positions: Positions) -> list[TopicPartition]:
    return [committed_partition(partition, at) for partition, at in positions.items()]


def _position_after(message: Message) -> dict[OurTopicPartition, OffsetAndMetadata]:
    error, offset, epoch = message.error(), message.offset(), message.leader_epoch()
    if error is not None:
        raise local_error("_INVALID_ARG", f"cannot commit or store a message with an error: {error.str()}")
    topic, partition = message.topic(), message.partition()
    if topic is None or partition is None or offset is None or offset < 0:
        return {}
    return {OurTopicPartition(topic, partition): OffsetAndMetadata(offset + 1, "", -1 if epoch is None else epoch)}
