"""Delivery reports: set the results of batches and chunks, and pass them to futures and callbacks."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol
from uuid import UUID

from fencepost.client.calling import SLOW_MS, Caller, SlowCalls
from fencepost.client.interceptors import ProducerInterceptors
from fencepost.client.metrics import ProducerMetrics
from fencepost.client.net.runtime import Event
from fencepost.client.producer.accumulator import Accumulator
from fencepost.client.producer.chunks import UNACKNOWLEDGED, Batch, Chunk
from fencepost.errors import (
    DataLossError,
    FailureType,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    ProduceFailedError,
    RecordRejectedError,
    TransactionAbortableError,
)

log = logging.getLogger("fencepost.client.producer")


class TransactionHooks(Protocol):
    """The sender's interface to the state of a transactional producer."""

    @property
    def implicit(self) -> bool:
        """Return true if a batch itself enlists its partition (KIP-890)."""
        ...

    @property
    def doomed(self) -> KafkaError | None:
        """Return the error for waiting records if the transaction cannot be committed any more, or None."""
        ...

    def may_send(self, topic: str, partition: int, topic_id: UUID | None) -> bool:
        """Return true if records of the partition may be sent now. Otherwise enlist the partition, if that is due."""
        ...

    def acknowledged(self, topic: str, topic_id: UUID | None) -> None:
        """Record that the topic with this id has records of the transaction."""
        ...

    def sent(self) -> None:
        """Record that a request that may enlist partitions was sent."""
        ...

    def batch_failed(self, error: KafkaError, suspicious: bool, loss: DataLossError | None = None) -> None:
        """Record that a batch failed.

        Args:
            error: The reason.
            suspicious: The transaction may have timed out.
            loss: The error to report if the transaction has not timed out.
        """
        ...


def recreation_error(
    written: Mapping[str, UUID], topic: str, topic_id: UUID | None
) -> TransactionAbortableError | None:
    """Return the error if the topic was re-created after records of the transaction were `written`, or None."""
    if topic_id is None or written.get(topic, topic_id) == topic_id:
        return None
    words = "was deleted and created again: records of this transaction may have been deleted with it"
    return TransactionAbortableError(f"topic {topic!r} {words}")


class DeliveryReports:
    """Keeps the chunks without a result, and reports results."""

    def __init__(
        self,
        accumulator: Accumulator,
        progress: Event,
        metrics: ProducerMetrics,
        interceptors: ProducerInterceptors,
        caller: Caller,
        slow: SlowCalls,
    ) -> None:
        """Create delivery reports for one producer.

        A record counts as reported when its callback has returned.

        Args:
            accumulator: Gets the buffer space of reported chunks back.
            progress: Set whenever records have been reported.
            metrics: The producer's counters.
            interceptors: Called with the result of each record.
            caller: Runs the application's functions.
            slow: Records slow functions of the application.
        """
        self.transactions: TransactionHooks | None = None
        self.incomplete: dict[int, Chunk] = {}
        self.calling = 0  # batches and chunks whose callbacks have not all run
        self._accumulator = accumulator
        self._progress = progress
        self._metrics = metrics
        self._interceptors = interceptors
        self.caller = caller
        self.slow = slow

    def fail(self, batch: Batch, cause: KafkaError) -> None:
        """Fail a batch. A batch that was purged in flight keeps its first result."""
        if not batch.done:
            batch.error = self._produce_error(cause, sent=batch.maybe_appended or cause.outcome_unknown)
        if self.transactions is not None:
            self.transactions.batch_failed(cause, False)
        self.finish(batch)

    def fail_chunk(self, chunk: Chunk, cause: KafkaError) -> None:
        """Fail a chunk of which no batches were made."""
        chunk.error = self._produce_error(cause, sent=False)
        chunk.left = 1
        chunk.release()
        self._metrics.failed(chunk.topic, chunk.rows)
        if self.transactions is not None:
            self.transactions.batch_failed(cause, False)
        self._report(chunk, chunk, range(chunk.rows) if chunk.table is not None else chunk.row_numbers)

    def finish(self, batch: Batch) -> None:
        """Finish a batch with its result. Later results are ignored, such as a response after a purge."""
        if batch.done:
            return
        batch.latency_ms = self.slow.now_ms() - batch.chunk.created_ms
        batch.done = True
        if batch.error is None:
            self._metrics.delivered(batch.topic, batch.count)
        else:
            self._metrics.failed(batch.topic, batch.count)
        batch.data = bytearray()
        self._report(batch.chunk, batch, range(batch.count) if batch.rows is None else batch.rows)

    def _report(self, chunk: Chunk, part: Batch | Chunk, rows: Sequence[int]) -> None:
        """Run the callbacks of these rows with the result of `part`, then mark the rows as reported."""
        if chunk.callbacks is None and not self._interceptors:
            self._reported(chunk, part, rows)
            return
        self.calling += 1

        def called() -> None:
            self.calling -= 1
            self._reported(chunk, part, rows)

        self.caller.call(partial(self._call_back, chunk, part, rows), called)

    def _reported(self, chunk: Chunk, part: Batch | Chunk, rows: Sequence[int]) -> None:
        part.reported = True
        chunk.left -= 1
        if part.error is not None:
            chunk.unhandled.failed(chunk, part, rows, part.error)
        self._notify(chunk)

    def _produce_error(self, cause: KafkaError, *, sent: bool) -> KafkaError:
        if isinstance(cause, (RecordRejectedError, InvalidTopicError)):
            kind = FailureType.MESSAGE_REJECTED
        elif self.transactions is not None and not isinstance(cause, KafkaTimeoutError):
            kind = FailureType.TRANSACTION_FAILED
        else:
            kind = FailureType.DELIVERY_FAILED
        unknown = sent and self.transactions is None  # records of an aborted transaction are never delivered
        text = f"{kind.value}: {cause}{UNACKNOWLEDGED if unknown else ''}"
        failed = ProduceFailedError(text, failure_type=kind, code=cause.code, outcome_unknown=unknown)
        failed.__cause__ = cause
        return failed

    def _notify(self, chunk: Chunk) -> None:
        if chunk.done:
            self.incomplete.pop(id(chunk), None)
            self._accumulator.released(chunk)
        for watcher in tuple(chunk.watchers):
            watcher()
        self._progress.set()

    def _call_back(self, chunk: Chunk, part: Batch | Chunk, rows: Sequence[int]) -> None:
        """Call interceptors and callbacks, in the caller's thread.

        `Chunk.locate` is not safe in this thread, so `part` gives the results.
        """
        slow, callbacks, interceptors = self.slow, chunk.callbacks, self._interceptors
        begun_ms = slow.now_ms()
        for position, row in enumerate(rows):
            callback = callbacks.get(row) if callbacks is not None else None
            if callback is None and not interceptors:
                continue
            error = part.error
            metadata = part.metadata(position, row) if error is None and isinstance(part, Batch) else None
            if interceptors:
                interceptors.acknowledge(metadata, error)
                begun_ms = slow.now_ms()
            if callback is None:
                continue
            slow.running = ("delivery callback", callback, begun_ms)
            try:
                callback(error, metadata)
            except BaseException:  # SystemExit would end the thread, and no further callback would run
                log.exception("a delivery callback failed")
                if callbacks is not None:
                    del callbacks[row]  # the failure then counts as unhandled
            now_ms = slow.now_ms()
            if now_ms - begun_ms >= SLOW_MS:
                slow.record_call("delivery callback", callback, now_ms - begun_ms)
            begun_ms = now_ms
        slow.running = None

    async def until(self, condition: Callable[[], bool], deadline_ms: int | None) -> bool:
        """Wait until `condition` returns true. It is called after each result. Return false if time ran out."""
        while not condition():
            left = None if deadline_ms is None else deadline_ms - self.slow.now_ms()
            if left is not None and left <= 0:
                return False
            self._progress.clear()
            await self._progress.wait(left)
        return True

    async def until_done(self, deadline_ms: int | None) -> bool:
        """Wait until all chunks that are incomplete now are done. A chunk that is done is not examined again.

        Returns:
            False if time ran out.
        """
        waiting = deque(self.incomplete.values())

        def condition() -> bool:
            while waiting and waiting[0].done:
                waiting.popleft()
            return not waiting

        return await self.until(condition, deadline_ms)

    async def end(self, deadline_ms: int | None) -> None:
        """Wait until all callbacks of a closed producer have returned, including the interceptors' close()."""
        self._close_interceptors()
        try:
            if not await self.until(lambda: not self.calling, deadline_ms):
                busy = self.slow.in_progress() or "they still run"
                log.warning("closed before the delivery callbacks of all records had run: %s", busy)
        finally:
            self.caller.end()

    def _close_interceptors(self) -> None:
        """Close the interceptors after all their earlier calls."""
        if not self._interceptors:
            return
        self.calling += 1

        def called() -> None:
            self.calling -= 1
            self._progress.set()

        self.caller.call(self._interceptors.close, called)
