"""Makes record objects from polled columns: through the interceptors, then through the deserializers.

A record that cannot be deserialized ends the poll. The records before it are delivered, and the next poll raises its
SerializationError. The position stays, so the error is raised again until the application seeks (as in Java).
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from fencepost.client import coding
from fencepost.client.coding import KEY, VALUE, Codec
from fencepost.client.consumer.subscription import HandOut
from fencepost.client.interceptors import ConsumerInterceptors
from fencepost.client.records import Fetched, Record, to_records
from fencepost.client.types import TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import SerializationError


def check_synchronous(config: ConsumerConfig) -> None:
    """Raise ConfigurationError for an asynchronous deserializer, which only an AsyncConsumer can call."""
    coding.synchronous(config.key_deserializer, KEY)
    coding.synchronous(config.value_deserializer, VALUE)


class HandedRecords:
    """Makes the records of one consumer."""

    def __init__(self, config: ConsumerConfig, interceptors: ConsumerInterceptors) -> None:
        self._interceptors = interceptors
        self._codec = Codec(
            coding.adapted(config.value_deserializer), coding.adapted(config.key_deserializer), "decoded"
        )

    def of(self, handed: HandOut) -> list[Record]:
        """Return the records for the application. Any thread may call it.

        Raises SerializationError if the first record cannot be deserialized.
        """
        records = self._received(handed.pieces)
        if not self._codec:
            return records
        done: list[Record] = []
        for record in records:
            try:
                value, key = self._codec.both(_to_decode(record))
            except SerializationError as error:
                return _stopped(handed, records, done, error)
            done.append(record._replace(key=key, value=value))
        return done

    async def awaited(self, handed: HandOut) -> list[Record]:
        """Return the records like `of`. The deserializers may be asynchronous."""
        records = self._received(handed.pieces)
        if not self._codec:
            return records
        done: list[Record] = []
        for record in records:
            try:
                value, key = await self._codec.both_awaited(_to_decode(record))
            except SerializationError as error:
                return _stopped(handed, records, done, error)
            done.append(record._replace(key=key, value=value))
        return done

    def _received(self, fetched: Iterable[Fetched]) -> list[Record]:
        records: list[Record] = []
        with held_off():
            for piece in fetched:
                records.extend(to_records(piece))
        return self._interceptors.consume(records) if records and self._interceptors else records


def _to_decode(record: Record) -> coding.Parts:
    headers = list(record.headers)  # confluent-kafka's deserializers accept only lists
    return coding.Parts(record.topic, record.value, record.key, headers, record.partition, record.offset)


def _stopped(handed: HandOut, records: Sequence[Record], done: list[Record], error: SerializationError) -> list[Record]:
    """Return the records before the one that failed, or raise the error if there are none."""
    failed = records[len(done)]
    handed.failed = TopicPartition(failed.topic, failed.partition)
    if not done:
        raise error
    handed.rest = list(records[len(done) :])
    return done


@contextmanager
def held_off() -> Iterator[None]:
    """Disable garbage collection in the block. For blocks that create thousands of objects that are in use.

    The collector would otherwise scan all of them again for every few hundred new ones.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
