"""Which transactional ids a process may give its tasks: those it minted itself, and that are free again.

A coordinator remembers an id for days, so a stream must not need a new one per task. An id is free once the decision of
a later batch was read with the claim at hand. From that follow both things that have to be true:

* Every earlier use was under an older claim. A use for batch b had found batches below b decided, so a later batch's
  decision came with a newer claim, and who has read that has claimed later still. A late copy of an old task, which
  comes with what an old Open read, finds nothing free that a newer run uses.
* No decision that an Open may yet complete names the id. A batch's decision is the only one that names ids used for it,
  and it was complete, and replaced, before the later one could be written.

Whoever was busy with the earlier use (a task, a commit worker, a planner, a request on its way) has its pair; an
InitProducerId moves the id on from that. Only InitProducerId itself names no pair, so an id whose InitProducerId was
never answered is never taken again; and an id belongs to one process, which runs one attempt after the other.
"""

from __future__ import annotations

from collections.abc import Callable

from fencepost.spark.sink import names
from fencepost.spark.sink.plan_steps import Opened, Use

__all__ = ["TaskIds", "is_free"]


def is_free(last: Use, opened: Opened) -> bool:
    """May an id be used under this claim that was used like this before?"""
    decided = opened.last(last.query_id)
    if last.sink != opened.sink or decided is None or decided.batch_id <= last.batch_id:
        return False
    # Said twice where it can be: somebody may have made the query begin anew by hand.
    return last.claim.producer_id != opened.claim.producer_id or last.claim.epoch < opened.claim.epoch


class TaskIds:
    """One process's ids. `unique` gives 16 bytes that were never given before."""

    def __init__(self, unique: Callable[[], bytes]) -> None:
        self._unique = unique
        self._used: dict[str, Use] = {}  # in the order of use

    def take(self, opened: Opened) -> str:
        """A free id, or a new one. It is out of here until `begun`."""
        for transactional_id, last in self._used.items():
            if is_free(last, opened):
                del self._used[transactional_id]
                return transactional_id
        return names.task_id(opened.sink, self._unique())

    def begun(self, transactional_id: str, use: Use) -> None:
        """Its InitProducerId was answered."""
        self._used[transactional_id] = use
