"""What `send` gives back: a view of a record's fate that nothing keeps alive but the caller.

Both kinds are tuples (chunk, index): the cheapest object there is, because one is made for every record.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from fencepost.client.accumulator import Chunk
from fencepost.client.types import RecordMetadata
from fencepost.errors import KafkaError, KafkaTimeoutError


class Delivery(tuple[Chunk, int]):
    """A record on its way (blocking producer). Safe to drop; `result()` waits."""

    __slots__ = ()

    def done(self) -> bool:
        """Whether the record's fate is known."""
        return self[0].fate(self[1]) is not None

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record is. Raises ProduceFailedError, or KafkaTimeoutError after `timeout_s` (it goes on)."""
        fate = self._wait(timeout_s)
        if isinstance(fate, KafkaError):
            raise fate
        return fate

    def exception(self, timeout_s: float | None = None) -> KafkaError | None:
        """Why it was not delivered, None when it was. Raises KafkaTimeoutError after `timeout_s`."""
        fate = self._wait(timeout_s)
        return fate if isinstance(fate, KafkaError) else None

    def _wait(self, timeout_s: float | None) -> RecordMetadata | KafkaError:
        chunk, index = self
        fate = chunk.fate(index)
        if fate is not None:
            return fate
        something = threading.Event()
        chunk.watch(something.set)
        while True:
            fate = chunk.fate(index)
            if fate is not None:
                return fate
            if not something.wait(timeout_s):
                raise KafkaTimeoutError(f"the record was not delivered within {timeout_s} s", outcome_unknown=True)
            something.clear()


class AsyncDelivery(tuple[Chunk, int]):
    """A record on its way (asyncio). Safe to drop; `await` it for its RecordMetadata or ProduceFailedError."""

    __slots__ = ()

    def done(self) -> bool:
        """Whether the record's fate is known."""
        return self[0].fate(self[1]) is not None

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self._wait().__await__()

    async def _wait(self) -> RecordMetadata:
        chunk, index = self
        fate = chunk.fate(index)
        if fate is None:
            something = asyncio.Event()
            chunk.watch(something.set)
            while (fate := chunk.fate(index)) is None:
                await something.wait()
                something.clear()
        if isinstance(fate, KafkaError):
            raise fate
        return fate


class Appended(NamedTuple):
    """A run of records of one batch: offsets base_offset .. base_offset + records - 1 (-1: the broker did not say)."""

    topic: str
    partition: int
    base_offset: int
    records: int


def bulk_result(chunks: list[Chunk]) -> list[Appended]:
    """Where Arrow rows went. Raises the first ProduceFailedError. Only for chunks that are done."""
    found = []
    for chunk in chunks:
        if chunk.error is not None:
            raise chunk.error
        for batch in chunk.batches:
            if batch.error is not None:
                raise batch.error
            found.append(Appended(batch.topic, batch.partition, batch.base_offset, batch.count))
    return found


class BulkDelivery:
    """Arrow data on its way (blocking producer)."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._chunks = chunks

    def done(self) -> bool:
        """Whether the fate of every row is known."""
        return all(chunk.done for chunk in self._chunks)

    def result(self, timeout_s: float | None = None) -> list[Appended]:
        """Where the rows are. Raises ProduceFailedError (the first), KafkaTimeoutError."""
        something = threading.Event()
        watcher: Callable[[], object] = something.set
        for chunk in self._chunks:
            chunk.watch(watcher)
        while not self.done():
            if not something.wait(timeout_s):
                raise KafkaTimeoutError(f"not every row was delivered within {timeout_s} s", outcome_unknown=True)
            something.clear()
        return bulk_result(self._chunks)


class AsyncBulkDelivery:
    """Arrow data on its way (asyncio): await it."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._chunks = chunks

    def done(self) -> bool:
        """Whether the fate of every row is known."""
        return all(chunk.done for chunk in self._chunks)

    def __await__(self) -> Generator[Any, None, list[Appended]]:
        return self._wait().__await__()

    async def _wait(self) -> list[Appended]:
        something = asyncio.Event()
        for chunk in self._chunks:
            chunk.watch(something.set)
        while not self.done():
            await something.wait()
            something.clear()
        return bulk_result(self._chunks)
