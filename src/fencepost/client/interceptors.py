"""Looking at, and changing, records on their way out (KIP-42), for tracing, auditing, encrypting."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fencepost.client.accumulator import Header, OnDelivery
from fencepost.client.types import RecordMetadata
from fencepost.errors import KafkaError

log = logging.getLogger("fencepost.client.producer")


class OutgoingRecord(NamedTuple):
    """What `send` was given."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Sequence[Header] | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """Setting `interceptors`: asked in their order. What they raise is logged, and the record goes on without them."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Runs in the thread that calls `send`; returns the record to send. Arrow rows do not come by here."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """Runs in the I/O thread when the record's fate is known; must be quick."""
        ...

    def close(self) -> None:
        """The producer is closed."""
        ...


class Interceptors:
    """All interceptors of a producer."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._all = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._all)

    def send(self, record: OutgoingRecord) -> OutgoingRecord:
        """The record as the interceptors want it."""
        for one in self._all:
            try:
                record = one.on_send(record)
            except Exception:
                log.exception("%s.on_send failed", type(one).__name__)
        return record

    def acknowledging(self, on_delivery: OnDelivery | None) -> OnDelivery:
        """The delivery callback with the interceptors' before it."""

        def tell(error: KafkaError | None, metadata: RecordMetadata | None) -> None:
            for one in self._all:
                try:
                    one.on_acknowledgement(metadata, error)
                except Exception:
                    log.exception("%s.on_acknowledgement failed", type(one).__name__)
            if on_delivery is not None:
                on_delivery(error, metadata)

        return tell

    def close(self) -> None:
        """Tell all of them."""
        for one in self._all:
            try:
                one.close()
            except Exception:
                log.exception("%s.close failed", type(one).__name__)
