"""Interceptors for sent and received records (KIP-42), for tracing, auditing or encryption.

Unlike in Java's client, an exception of `on_send` fails the send. A producer with interceptors rejects Arrow data,
whose rows are not records. Exceptions of a consumer's interceptors are logged.
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
    """The arguments of `send`."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Sequence[Header] | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """Interceptor of a producer (setting `interceptors`), called in order.

    An exception of `on_send` fails the send; other exceptions are logged.
    """

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Return the record to send. It runs in the thread that calls `send`; if it raises, nothing is sent."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """Handle a delivered or failed record. It runs in the producer's own thread, with asyncio in the event loop."""
        ...

    def close(self) -> None:
        """Handle the closing of the producer."""
        ...


class ProducerInterceptors:
    """All interceptors of a producer."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor], slow: SlowCalls) -> None:
        self._all = tuple(interceptors)
        self._slow = slow

    def __bool__(self) -> bool:
        return bool(self._all)

    def send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Return the record after all interceptors. Raises RecordRejectedError if one fails."""
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
        """Report a delivered or failed record to all."""
        for interceptor in self._all:
            begun_ms = self._slow.now_ms()
            self._slow.running = ("interceptor", interceptor.on_acknowledgement, begun_ms)
            try:
                interceptor.on_acknowledgement(metadata, error)
            except BaseException:  # SystemExit would end the thread, and no further callback would run
                log.exception("%s.on_acknowledgement failed", type(interceptor).__name__)
            self._slow.running = None
            self._slow.record_call("interceptor", interceptor.on_acknowledgement, self._slow.now_ms() - begun_ms)

    def close(self) -> None:
        """Close all."""
        for interceptor in self._all:
            try:
                interceptor.close()
            except BaseException:
                log.exception("%s.close failed", type(interceptor).__name__)


class ConsumerInterceptor:
    """Interceptor of a consumer (setting `interceptors`), called in order in the polling thread.

    Exceptions are logged.
    """

    def on_consume(self, records: list[Record]) -> list[Record]:
        """Return the records of a `poll` to deliver. It is not called for Arrow tables and columns."""
        return records

    def on_commit(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Handle committed positions."""


class ConsumerInterceptors:
    """All interceptors of a consumer."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor], slow: SlowCalls) -> None:
        self._all = tuple(interceptors)
        self._slow = slow

    def __bool__(self) -> bool:
        return bool(self._all)

    def consume(self, records: list[Record]) -> list[Record]:
        """Return the records after all interceptors."""
        for interceptor in self._all:
            begun_ms = self._slow.now_ms()
            try:
                records = interceptor.on_consume(records)
            except Exception:
                log.exception("%s.on_consume failed", type(interceptor).__name__)
            self._slow.record_call("interceptor", interceptor.on_consume, self._slow.now_ms() - begun_ms)
        return records

    def committed(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Report committed positions to all."""
        for interceptor in self._all:
            begun_ms = self._slow.now_ms()
            try:
                interceptor.on_commit(positions)
            except BaseException:
                log.exception("%s.on_commit failed", type(interceptor).__name__)
            self._slow.record_call("interceptor", interceptor.on_commit, self._slow.now_ms() - begun_ms)
