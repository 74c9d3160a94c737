"""Looking at, and changing, records on their way out and in (KIP-42), for tracing, auditing, encrypting.

Unlike in Java's client, a record goes out only as all interceptors want it: what `on_send` raises fails the send, and
Arrow data, whose rows are no records, is refused by a producer with interceptors. What a consumer's raise is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from fencepost.client.calling import SlowCalls
from fencepost.client.records import Record
from fencepost.client.types import OffsetAndMetadata, RecordMetadata, TopicPartition
from fencepost.errors import KafkaError, RecordRejectedError
from fencepost.protocol.records.headers import Header

log = logging.getLogger("fencepost.client.interceptors")


class OutgoingRecord(NamedTuple):
    """What `send` was given."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Sequence[Header] | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """Setting `interceptors`: asked in their order. What `on_send` raises fails the send, the rest is logged."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Runs in the thread that calls `send`; returns the record to send. When it raises, nothing is sent."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """Runs when the record's fate is known: in the producer's own thread, in asyncio in the event loop."""
        ...

    def close(self) -> None:
        """The producer is closed."""
        ...


class ProducerInterceptors:
    """All interceptors of a producer."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor], slow: SlowCalls) -> None:
        self._all = tuple(interceptors)
        self._slow = slow

    def __bool__(self) -> bool:
        return bool(self._all)

    def send(self, record: OutgoingRecord) -> OutgoingRecord:
        """The record as the interceptors want it. Raises RecordRejectedError when an interceptor fails."""
        for interceptor in self._all:
            name = f"{type(interceptor).__name__}.on_send"
            try:
                wanted: object = interceptor.on_send(record)
            except Exception as error:
                rejected = RecordRejectedError(f"{name} failed, and the record was not sent: {error!r}")
                self.acknowledge(None, rejected)
                raise rejected from error
            if not isinstance(wanted, OutgoingRecord):
                rejected = RecordRejectedError(
                    f"{name} returned {type(wanted).__name__} instead of an OutgoingRecord, and the record was not sent"
                )
                self.acknowledge(None, rejected)
                raise rejected
            record = wanted
        return record

    def acknowledge(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """Tell them a record's fate."""
        for interceptor in self._all:
            begun_ms = self._slow.now_ms()
            self._slow.running = ("interceptor", interceptor.on_acknowledgement, begun_ms)
            try:
                interceptor.on_acknowledgement(metadata, error)
            except BaseException:  # SystemExit would end the thread, and with it all further callbacks
                log.exception("%s.on_acknowledgement failed", type(interceptor).__name__)
            self._slow.running = None
            self._slow.took("interceptor", interceptor.on_acknowledgement, self._slow.now_ms() - begun_ms)

    def close(self) -> None:
        """Tell all of them."""
        for interceptor in self._all:
            try:
                interceptor.close()
            except BaseException:
                log.exception("%s.close failed", type(interceptor).__name__)


class ConsumerInterceptor:
    """Setting `interceptors`: asked in their order, in the thread that polls. What they raise is logged."""

    def on_consume(self, records: list[Record]) -> list[Record]:
        """The records of one `poll`; returns those to hand out. Arrow tables and columns do not come by here."""
        return records

    def on_commit(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Positions that were committed."""


class ConsumerInterceptors:
    """All interceptors of a consumer."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._all = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._all)

    def consume(self, records: list[Record]) -> list[Record]:
        """The records as the interceptors want them."""
        for interceptor in self._all:
            try:
                records = interceptor.on_consume(records)
            except Exception:
                log.exception("%s.on_consume failed", type(interceptor).__name__)
        return records

    def committed(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell all."""
        for interceptor in self._all:
            try:
                interceptor.on_commit(positions)
            except BaseException:
                log.exception("%s.on_commit failed", type(interceptor).__name__)
