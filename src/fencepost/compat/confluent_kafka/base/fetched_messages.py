"""Records and events that were taken from Fencepost's consumer and that poll() has not returned yet."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from fencepost.client.blocking.consumer import Consumer as OurConsumer
from fencepost.client.consumer.core import ConsumerCore
from fencepost.client.consumer.subscription import HandOut
from fencepost.client.net.turn import POLL
from fencepost.client.records import Record
from fencepost.client.types import OffsetAndMetadata, OffsetSpec
from fencepost.client.types import TopicPartition as OurTopicPartition
from fencepost.compat.confluent_kafka.base.error_codes import NUMBERS
from fencepost.compat.confluent_kafka.base.errors import KafkaError, error_of
from fencepost.compat.confluent_kafka.base.values import TIMESTAMP_NOT_AVAILABLE, Message
from fencepost.errors import KafkaError as OurError
from fencepost.errors import OffsetOutOfRangeError, UsageError
from fencepost.protocol.codes import ErrorCode as E

__all__ = ["FetchedMessages", "Offer", "message_of"]

_MOST: Final = 500  # records that are taken and decoded together
_LOOK_S: Final = 0.1  # a consumer with records in hand serves its group at this interval


def message_of(record: Record) -> Message:
    """Return the message of a record."""
    topic, partition, offset, timestamp_ms, key, value, headers, kind, epoch = record
    found = list(headers) if headers else None
    known = epoch if epoch >= 0 else None
    return Message(topic, partition, offset, key, value, found, None, (kind + 1, timestamp_ms), None, known)


def _partition_of(item: Record | Message) -> tuple[str | None, int | None]:
    return (item.topic(), item.partition()) if isinstance(item, Message) else (item.topic, item.partition)


def error_message(
    error: KafkaError, topic_partition: tuple[str, int] | None = None, offset: int | None = None
) -> Message:
    """Return the message of an error or event."""
    topic, partition = (None, None) if topic_partition is None else topic_partition
    text = error.str().encode()
    return Message(topic, partition, offset, None, text, None, error, (TIMESTAMP_NOT_AVAILABLE, -1))


class _StateEvents(NamedTuple):
    """Events in the consumer's state: partitions that were read to their end, and missing topics."""

    ends: list[tuple[OurTopicPartition, int]]
    missing: list[str]


class Offer(NamedTuple):
    """The messages that a call is about to return.

    Attributes:
        number: The number of the call. The offer is void if there is a later one: a signal handler has polled.
        messages: The messages.
        rest: What is pending behind them.
    """

    number: int
    messages: list[Message]
    rest: list[Record | Message]


class FetchedMessages:
    """The messages that poll() and consume() return next.

    A signal handler may raise at any step of a call, which then returns nothing. So a message is in one place at each
    moment: it moves by plain assignments that follow each other, between which Python runs no signal handler.

    Attributes:
        pending: Messages that were taken from Fencepost's consumer, and that no call has returned.
        received: The messages that the last call returned, until their offsets are stored.
        last: The number of the last call.
    """

    def __init__(self, client: OurConsumer, *, partition_eof: bool) -> None:
        """Start without messages. `partition_eof`: report the end of a partition as an event."""
        self.pending: list[Record | Message] = []
        self.received: list[Message] = []
        self.last = 0
        self._client = client
        self._partition_eof = partition_eof
        self._handed = HandOut()
        self._events: list[Message] = []
        self._look_s = 0.0
        self._ended_at: dict[OurTopicPartition, int] = {}
        self._reported: set[str] = set()
        self.stored: dict[OurTopicPartition, OffsetAndMetadata] = {}  # not yet known to the core

    def draw(self, most: int) -> bool:
        """Make up to `most` messages pending. Return true if there are as many. Serves the group if that is due."""
        if time.monotonic() >= self._look_s:
            self._call(self._take_part())
        handed = self._handed
        wanted = most - len(self.pending)
        if handed.records is not None and wanted > 0:
            start = handed.given
            more = handed.records[start : start + wanted]
            end = start + len(more)
            if handed.given == start:  # no call between this and the next two; a signal handler may have polled
                self.pending += more
                handed.given = end
            wanted = most - len(self.pending)
        if self._events and wanted > 0:
            more_events, rest = self._events[:wanted], self._events[wanted:]
            self.pending += more_events
            self._events = rest  # no call between the two
        return len(self.pending) >= most

    def offer(self, number: int, most: int) -> Offer:
        """Return the first pending messages, and the rest of them. They stay pending."""
        found = [each if isinstance(each, Message) else message_of(each) for each in self.pending[:most]]
        return Offer(number, found, self.pending[most:])

    def forget(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Drop the pending messages and the events of these partitions. The core drops its records in its calls."""
        gone = {OurTopicPartition(*partition) for partition in partitions}
        self.pending = [each for each in self.pending if _partition_of(each) not in gone]
        self._events = [each for each in self._events if _partition_of(each) not in gone]
        for partition in gone:
            self._ended_at.pop(partition, None)

    def fill(self, wait_ms: int) -> None:
        """Take records and events from the consumer, and wait at most `wait_ms` for the first."""
        core = self._client._core
        hold = self._client._take(POLL)
        try:
            handed, looked = self._client._io.call(lambda: self._hand_out(core, wait_ms))
            records = list(core.records.of(handed))
            handed.records, self._handed = records, handed  # before, the core hands them out again
            self._note(looked)
        except UsageError:
            raise
        except OurError as error:
            out_of_range = isinstance(error, OffsetOutOfRangeError)  # auto.offset.reset does not say where to go on
            code = NUMBERS["_AUTO_OFFSET_RESET"] if out_of_range else None
            self._events.append(error_message(error_of(error, code=code)))
        finally:
            hold.ended = True
        self._look_s = time.monotonic() + _LOOK_S

    def sync(self) -> None:
        """Tell the core the stored offsets, before a call that may commit them."""
        if self.stored:
            self._call(self._store(self._client._core))

    def _call(self, coroutine: Any) -> None:
        self._client._io.run(coroutine)

    async def _hand_out(self, core: ConsumerCore, wait_ms: int) -> tuple[Any, _StateEvents]:
        await self._store(core)
        handed = await core.hand_out(wait_ms, _MOST)
        looked = self._look(core)
        if self._partition_eof and not handed.pieces:
            looked = looked._replace(ends=[*looked.ends, *await self._ends_of_unknown(core)])
        return handed, looked

    async def _ends_of_unknown(self, core: ConsumerCore) -> list[tuple[OurTopicPartition, int]]:
        """Request the ends of partitions whose lag is unknown. Returns those that were read to their end.

        A broker leaves unchanged partitions out of a fetch session's responses, also after they were assigned again.
        """
        at = {
            partition: state.position
            for partition, state in core._reading.states.items()
            if state.position is not None
            and not state.paused
            and partition not in self._ended_at
            and core.lag(partition) is None
        }
        if not at:
            return []
        found = await core.offsets_for(dict.fromkeys(at, OffsetSpec.LATEST))
        return [(partition, offset) for partition, offset in at.items() if found[partition].offset == offset]

    async def _store(self, core: ConsumerCore) -> None:
        stored, self.stored = self.stored, {}
        core._reading.store({partition: at for partition, at in stored.items() if partition in core._reading.states})

    async def _take_part(self) -> None:
        """Do the work of a poll for the group and for automatic commits, without returning records."""
        self._look_s = time.monotonic() + _LOOK_S
        core = self._client._core
        await self._store(core)
        if core._commits.due():
            core._commits.start(core._to_commit(), core._deadline(None), automatic=True)
        await core._serve()
        core._take_part()

    def _look(self, core: ConsumerCore) -> _StateEvents:
        states = core._reading.states
        names = {*core.subscription(), *(partition.topic for partition in states)}
        known = [core.cluster.topics.get(name) for name in names]
        missing = [each.name for each in known if each and each.error_code == E.UNKNOWN_TOPIC_OR_PARTITION]
        self._reported &= set(missing)
        if not self._partition_eof:
            return _StateEvents([], missing)
        ends = [
            (partition, state.position)
            for partition, state in states.items()
            if state.position is not None and not state.paused and not state.ready and core.lag(partition) == 0
        ]
        return _StateEvents(ends, missing)

    def _note(self, looked: _StateEvents) -> None:
        for partition, offset in looked.ends:
            if self._ended_at.get(partition) != offset:
                self._ended_at[partition] = offset
                end = KafkaError(
                    NUMBERS["_PARTITION_EOF"], f"{partition.topic}-{partition.partition}: the end is {offset}"
                )
                self._events.append(error_message(end, partition, offset))
        for name in looked.missing:
            if name not in self._reported:
                self._reported.add(name)
                error = KafkaError(NUMBERS["UNKNOWN_TOPIC_OR_PART"], f"topic {name!r} does not exist")
                self._events.append(error_message(error, (name, 0)))
