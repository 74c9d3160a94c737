"""Records and events that were taken from Fencepost's consumer and that poll() has not returned yet."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from fencepost.client.blocking.consumer import Consumer as OurConsumer
from fencepost.client.consumer.core import ConsumerCore
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

__all__ = ["FetchedMessages", "message_of"]

_MOST: Final = 500  # records that are taken and decoded together
_LOOK_S: Final = 0.1  # a consumer with records in hand serves its group at this interval


def message_of(record: Record) -> Message:
    """Return the message of a record."""
    topic, partition, offset, timestamp_ms, key, value, headers, kind, epoch = record
    found = list(headers) if headers else None
    known = epoch if epoch >= 0 else None
    return Message(topic, partition, offset, key, value, found, None, (kind + 1, timestamp_ms), None, known)


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


class FetchedMessages:
    """The messages that poll() and consume() return next."""

    def __init__(self, client: OurConsumer, *, partition_eof: bool) -> None:
        """Start without messages. `partition_eof`: report the end of a partition as an event."""
        self._client = client
        self._partition_eof = partition_eof
        self._records: Iterator[Record] = iter(())
        self._put_back: deque[Message] = deque()
        self._events: deque[Message] = deque()
        self._look_s = 0.0
        self._ended_at: dict[OurTopicPartition, int] = {}
        self._reported: set[str] = set()
        self.stored: dict[OurTopicPartition, OffsetAndMetadata] = {}  # not yet known to the core

    def next(self) -> Message | None:
        """Return the next message in hand; None if there is none. Serves the group if that is due."""
        if self._put_back:
            return self._put_back.popleft()
        if time.monotonic() >= self._look_s:
            self._call(self._take_part())
        record = next(self._records, None)
        if record is not None:
            return message_of(record)
        return self._events.popleft() if self._events else None

    def keep(self, messages: Iterable[Message]) -> None:
        """Put messages back, so that `next` returns them first."""
        self._put_back.extendleft(reversed(list(messages)))

    def forget(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Drop the kept messages and the events of these partitions. The core drops its own records in its calls."""
        gone = {OurTopicPartition(*partition) for partition in partitions}
        self._put_back = deque(each for each in self._put_back if (each.topic(), each.partition()) not in gone)
        self._events = deque(each for each in self._events if (each.topic(), each.partition()) not in gone)
        for partition in gone:
            self._ended_at.pop(partition, None)

    def fill(self, wait_ms: int) -> None:
        """Take records and events from the consumer, and wait at most `wait_ms` for the first."""
        core = self._client._core
        hold = self._client._take(POLL)
        try:
            handed, looked = self._client._io.call(lambda: self._hand_out(core, wait_ms))
            self._records = handed.one_by_one(core.records.of(handed))
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
