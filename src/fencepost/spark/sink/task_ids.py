"""Which transactional ids a task may be given: those that are free again, of those that lie in a pool; or a new id.

A coordinator remembers an id for days, so a stream must not need a new id per task. An id is free once the decision of
a later batch was read with the claim at hand. From that follows both that has to be true:

* Every earlier use was under an older claim. A use for batch b had found batches below b decided, so a later batch's
  decision came with a newer claim, and who has read that has claimed later still. A late copy of an old task, which
  comes with what an old Open read, finds nothing free that a newer run uses.
* No decision that an Open may yet complete names the id. Only a batch's decision names ids used for the batch,
  and it was complete, and replaced, before the later decision could be written.

Whoever was busy with the earlier use (a task, a commit worker, a planner, a request on its way) has its pair; an
InitProducerId moves the id on from that. Only InitProducerId itself names no pair, so an id is out of the pool before
its InitProducerId is sent, and comes back when that is answered: what was never answered, or whose process was killed
in between, is never taken again. Who takes an id names the use that he has judged: after another use it is not his.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from fencepost.spark.sink import names
from fencepost.spark.sink.plan_steps import Opened, Use

__all__ = ["IdPool", "OwnPool", "TaskIds", "is_free"]


def is_free(last: Use, opened: Opened) -> bool:
    """May an id be used under this claim that was used like this before?"""
    decided = opened.last(last.query_id)
    if last.sink != opened.sink or decided is None or decided.batch_id <= last.batch_id:
        return False
    # Said twice where it can be: somebody may have made the query begin anew by hand.
    return last.claim.producer_id != opened.claim.producer_id or last.claim.epoch < opened.claim.epoch


class IdPool(Protocol):
    """Ids with their last uses. Processes may share it: `take` and `give` each happen at once, or not at all."""

    def idle(self, opened: Opened) -> Iterable[tuple[str, Use]]:
        """At least those that may be free."""
        ...

    def take(self, transactional_id: str, last: Use) -> bool:
        """Out of the pool. False when it is not there with that use any more."""
        ...

    def give(self, transactional_id: str, use: Use) -> None: ...


class OwnPool:
    """The pool of a single process."""

    def __init__(self) -> None:
        self._used: dict[str, Use] = {}  # in the order of use

    def idle(self, opened: Opened) -> Iterable[tuple[str, Use]]:
        return tuple(self._used.items())

    def take(self, transactional_id: str, last: Use) -> bool:
        if self._used.get(transactional_id) != last:
            return False
        del self._used[transactional_id]
        return True

    def give(self, transactional_id: str, use: Use) -> None:
        self._used[transactional_id] = use


class TaskIds:
    """What a process gives its tasks. `unique` gives 16 bytes that were never given before."""

    def __init__(self, unique: Callable[[], bytes], pool: IdPool) -> None:
        self._unique = unique
        self.pool = pool
        self._once: set[str] = set()  # of a level at which no id is used again

    def take(self, opened: Opened) -> str:
        """A free id, or a new id. It is nobody else's until `begun`."""
        if not opened.level.uses_ids_again:
            self._once.add(new := names.task_id(opened.sink, self._unique()))
            return new
        for transactional_id, last in self.pool.idle(opened):
            if is_free(last, opened) and self.pool.take(transactional_id, last):
                return transactional_id
        return names.task_id(opened.sink, self._unique())

    def begun(self, transactional_id: str, use: Use) -> None:
        """Its InitProducerId was answered."""
        if transactional_id in self._once:
            self._once.remove(transactional_id)
        else:
            self.pool.give(transactional_id, use)
