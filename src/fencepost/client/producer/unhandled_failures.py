"""Delivery failures that the application has not handled: counted, logged, and raised by the next flush() or close().

They are counted by topic and cause. A failure counts as handled if the record has an `on_delivery` callback that did
not raise. It also counts as handled if the application awaits or reads the record's delivery (`result()`,
`exception()`, `await`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from fencepost.client.producer.chunks import EVERY_ROW, Batch, Chunk, FailureCount
from fencepost.counted import counted_noun
from fencepost.errors import FailureType, KafkaError, ProduceFailedError, RecordPurgedError

log = logging.getLogger("fencepost.client.producer")

LOG_EVERY_MS: Final = 10_000  # per topic and cause


InRuntime = Callable[[Callable[[], object]], object]
"""Runs a function in the runtime, in the order of the calls. May be called from any thread."""


def at_once(function: Callable[[], object]) -> object:
    """Call the function in this thread. Used if there is no thread besides the runtime's."""
    return function()


def _no_objection() -> None:
    """Allow every thread to wait."""


_Key = tuple[str, type[BaseException], int | None, bool]


class UnhandledFailures:
    """The failure counts of one producer.

    Claims come from any thread and are counted in the runtime, like everything else. There is no lock: a signal handler
    would deadlock if it interrupted the holder.
    """

    def __init__(self, in_runtime: InRuntime) -> None:
        self.enabled = True  # false for a transactional producer, whose next transactional call raises failures instead
        self.before_waiting: Callable[[], None] = _no_objection  # raises in threads that cannot wait for a result
        self._in_runtime = in_runtime
        self._tallies: dict[_Key, FailureCount] = {}
        self._logged_ms: dict[_Key, int] = {}

    def failed(self, chunk: Chunk, part: Batch | Chunk, rows: Sequence[int], error: KafkaError) -> None:
        """Count the failed rows of a chunk that are not handled. `part` is the batch or chunk with the error."""
        if not self.enabled or isinstance(error.__cause__, RecordPurgedError):  # `purge` has returned their number
            return
        claimed, callbacks = chunk.claimed, chunk.callbacks
        if claimed is None and callbacks is None:
            count = len(rows)
        elif claimed is not None and EVERY_ROW in claimed:
            count = 0
        else:
            count = sum(row not in (claimed or ()) and row not in (callbacks or ()) for row in rows)
        tally = FailureCount(chunk.topic, error)
        tally = self._tallies.setdefault((chunk.topic, type(tally.cause), error.code, tally.outcome_unknown), tally)
        tally.count += count
        part.tally = tally

    def claim(self, chunk: Chunk, row: int) -> None:
        """Count the row (or every row) as handled, because a caller waits for its result or has it. From any thread."""
        self._in_runtime(partial(_claim, chunk, row))

    def release(self, chunk: Chunk, row: int) -> None:
        """Undo a claim: the caller stopped waiting before there was a result. From any thread."""
        self._in_runtime(partial(_release, chunk, row))

    def log(self, now_ms: int) -> None:
        """Log new failures, one line per topic and cause, each at most every ten seconds."""
        for key, tally in list(self._tallies.items()):
            fresh = tally.count - tally.logged
            if fresh > 0 and self._due_ms(key) <= now_ms:
                tally.logged = tally.count
                self._logged_ms[key] = now_ms
                log.error("records not delivered: %d for topic %r: %s", fresh, tally.topic, tally.reason)

    def _due_ms(self, key: _Key) -> float:
        last_ms = self._logged_ms.get(key)
        return float("-inf") if last_ms is None else last_ms + LOG_EVERY_MS

    def next_log_ms(self) -> float | None:
        """Return the time of the next message of `log`, or None."""
        due = [self._due_ms(key) for key, tally in self._tallies.items() if tally.count > tally.logged]
        return min(due, default=None)

    def take(self) -> ProduceFailedError | None:
        """Return all unhandled failures as one error, or None. They count as handled from now on."""
        found = [tally for tally in self._tallies.values() if tally.count > 0]
        self._tallies = {}
        if not found:
            return None
        return _summary(found)

    def count(self) -> int:
        """Return the number of failed records that are not handled."""
        return sum(max(tally.count, 0) for tally in self._tallies.values())


def _claim(chunk: Chunk, row: int) -> None:
    if chunk.claimed is None:
        chunk.claimed = set()
    if row not in chunk.claimed:
        chunk.claimed.add(row)
        _count(chunk, row, -1)


def _release(chunk: Chunk, row: int) -> None:
    if chunk.claimed is not None and row in chunk.claimed:
        chunk.claimed.discard(row)
        _count(chunk, row, 1)


def _count(chunk: Chunk, row: int, step: int) -> None:
    """Add `step` failures to the tally of the row. For EVERY_ROW, add the failures of all rows."""
    if row != EVERY_ROW:
        found = chunk.locate(row)
        tally = found[0].tally if found is not None else chunk.tally
        if tally is not None and (chunk.callbacks is None or row not in chunk.callbacks):
            tally.count += step
        return
    if chunk.tally is not None:
        chunk.tally.count += step * chunk.rows
    for batch in chunk.batches:
        if batch.tally is not None:
            batch.tally.count += step * batch.count


def _summary(found: Sequence[FailureCount]) -> ProduceFailedError:
    count = sum(tally.count for tally in found)
    first = found[0]
    reasons = "; ".join(f"{tally.count} for topic {tally.topic!r}: {tally.reason}" for tally in found[:3])
    more = f"; and {counted_noun(len(found) - 3, 'other cause')}" if len(found) > 3 else ""
    kind = getattr(first.error, "failure_type", None)
    failure = ProduceFailedError(
        f"records not delivered: {count} ({reasons}{more})",
        failure_type=kind if kind is not None else FailureType.DELIVERY_FAILED,
        code=first.error.code,
        records=count,
        outcome_unknown=any(tally.outcome_unknown for tally in found),
    )
    failure.__cause__ = first.cause
    return failure
