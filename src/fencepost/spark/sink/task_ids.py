"""Transactional ids for tasks: free ids from a pool, or new ids.

A coordinator remembers an id for days, so a stream must not need a new id per task. An id used for batch b is free once
a process has read the decision of a later batch with its own claim. Two facts follow:

* Every earlier use of the id was under an older claim. The use for batch b found all batches below b decided, so the
  decision of a later batch was written with a newer claim, and the reader has claimed the sink after that. A late copy
  of an old task has the result of an old Open. To it, no id is free that a newer run uses.
* No Open will complete a decision that names the id. Only the decision of batch b names ids used for b. It was
  completed and replaced before the decision of the later batch could be written.

Processes and late requests of the earlier use carry its pair. InitProducerId raises the epoch, which fences all of
them. Only InitProducerId itself carries no pair. Therefore an id leaves the pool before its InitProducerId is sent, and
returns when that request is answered. If the request is not answered, or the process is killed in between, no process
uses the id again. `take` names the use that the caller has examined, and fails if the id was used since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from fencepost.spark.sink import names
from fencepost.spark.sink.plan_steps import ClaimedBatch, OpenedSink

__all__ = ["IdPool", "OwnPool", "TaskIds", "is_free"]


def is_free(last: ClaimedBatch, opened: OpenedSink) -> bool:
    """Return true if an id with this last use may be used under this claim."""
    decided = opened.last(last.query_id)
    if last.sink != opened.sink or decided is None or decided.batch_id <= last.batch_id:
        return False
    # The batch number alone is not enough, because a person may have reset the query's batch numbers.
    return last.claim.producer_id != opened.claim.producer_id or last.claim.epoch < opened.claim.epoch


class IdPool(Protocol):
    """Ids with their last uses. Processes may share a pool: `take` and `give` are atomic."""

    def idle(self, opened: OpenedSink) -> Iterable[tuple[str, ClaimedBatch]]:
        """Return at least the ids that may be free."""
        ...

    def take(self, transactional_id: str, last: ClaimedBatch) -> bool:
        """Remove the id from the pool. Return False if the pool no longer has it with that use."""
        ...

    def give(self, transactional_id: str, batch: ClaimedBatch) -> None: ...


class OwnPool:
    """The pool of a single process."""

    def __init__(self) -> None:
        self._used: dict[str, ClaimedBatch] = {}  # in the order of use

    def idle(self, opened: OpenedSink) -> Iterable[tuple[str, ClaimedBatch]]:
        return tuple(self._used.items())

    def take(self, transactional_id: str, last: ClaimedBatch) -> bool:
        if self._used.get(transactional_id) != last:
            return False
        del self._used[transactional_id]
        return True

    def give(self, transactional_id: str, batch: ClaimedBatch) -> None:
        self._used[transactional_id] = batch


class TaskIds:
    """Chooses the ids of a process's tasks. `unique` returns 16 bytes that it never returned before."""

    def __init__(self, unique: Callable[[], bytes], pool: IdPool) -> None:
        self._unique = unique
        self.pool = pool

    def take(self, opened: OpenedSink) -> str:
        """Return a free id, or a new id. No other task gets it before `begun`."""
        for transactional_id, last in self.pool.idle(opened):
            if is_free(last, opened) and self.pool.take(transactional_id, last):
                return transactional_id
        return names.task_id(opened.sink, self._unique())

    def begun(self, transactional_id: str, batch: ClaimedBatch) -> None:
        """Return the id to the pool: its InitProducerId was answered."""
        self.pool.give(transactional_id, batch)
