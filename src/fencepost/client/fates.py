"""What becomes of records: batches and chunks get their result, futures and callbacks are told."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from fencepost.client.accumulator import Accumulator, Batch, Chunk
from fencepost.client.metrics import ProducerMetrics
from fencepost.client.runtime import Event
from fencepost.errors import FailureType, KafkaError, KafkaTimeoutError, ProduceFailedError, RecordRejectedError

log = logging.getLogger("fencepost.client.producer")


class TransactionHooks(Protocol):
    """What the sender asks of a transactional producer's state."""

    implicit: bool

    def may_send(self, topic: str, partition: int) -> bool:
        """Whether records of the partition may go out now; a refusal makes it enlist the partition if that is due."""
        ...

    def sent(self) -> None:
        """A request that may enlist partitions was written."""
        ...

    def batch_failed(self, error: KafkaError, suspicious: bool) -> None:
        """A batch failed; `suspicious`: the transaction may have timed out."""
        ...


class Fates:
    """Chunks without a fate yet, and how they get it."""

    def __init__(self, accumulator: Accumulator, progress: Event, metrics: ProducerMetrics) -> None:
        self.transactions: TransactionHooks | None = None
        self.incomplete: dict[int, Chunk] = {}
        self._accumulator = accumulator
        self._progress = progress
        self._metrics = metrics

    def fail(self, batch: Batch, cause: KafkaError) -> None:
        """A batch was not delivered."""
        batch.error = self._produce_error(cause)
        if self.transactions is not None:
            self.transactions.batch_failed(cause, False)
        self.finish(batch)

    def fail_chunk(self, chunk: Chunk, cause: KafkaError) -> None:
        """A chunk did not even become batches."""
        chunk.error = self._produce_error(cause)
        chunk.left = 0
        self._metrics.record_error_total += len(chunk.table if chunk.table is not None else chunk.values)
        if self.transactions is not None:
            self.transactions.batch_failed(cause, False)
        if chunk.callbacks is not None:
            self._call_back(chunk, list(chunk.callbacks))
        self._tell(chunk)

    def finish(self, batch: Batch) -> None:
        """A batch has its result."""
        batch.done = True
        if batch.error is None:
            self._metrics.record_send_total += batch.count
        else:
            self._metrics.record_error_total += batch.count
        batch.data = bytearray()
        chunk = batch.chunk
        chunk.left -= 1
        if chunk.callbacks is not None:
            rows = range(batch.count) if batch.rows is None else batch.rows
            self._call_back(chunk, rows)
        self._tell(chunk)

    def _produce_error(self, cause: KafkaError) -> KafkaError:
        if isinstance(cause, RecordRejectedError):
            kind = FailureType.MESSAGE_REJECTED
        elif self.transactions is not None and not isinstance(cause, KafkaTimeoutError):
            kind = FailureType.TRANSACTION_FAILED
        else:
            kind = FailureType.DELIVERY_FAILED
        failed = ProduceFailedError(f"{kind.value}: {cause}", failure_type=kind, code=cause.code)
        failed.__cause__ = cause
        return failed

    def _tell(self, chunk: Chunk) -> None:
        if chunk.done:
            self.incomplete.pop(id(chunk), None)
            self._accumulator.released(chunk.bytes)
        for watcher in tuple(chunk.watchers):
            watcher()
        self._progress.set()

    def _call_back(self, chunk: Chunk, rows: Sequence[int]) -> None:
        for row in rows:
            callback = (chunk.callbacks or {}).get(row)
            if callback is None:
                continue
            fate = chunk.fate(row)
            try:
                if isinstance(fate, KafkaError):
                    callback(fate, None)
                else:
                    callback(None, fate)
            except Exception:
                log.exception("a delivery callback failed")
