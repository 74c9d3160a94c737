"""After another client initialised a transactional id, no request of the previous client takes effect.

A decision about a prepared transaction is exempt: any client may carry it out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, History, HistoryTransaction
from fencepost_lab.check.history.operations import Init, Operation


def zombie_write(history: History) -> Iterator[Anomaly]:
    """Find transactions that a fenced client committed, and records that it wrote, after it was fenced."""
    inits: dict[str, list[Init]] = {}
    for init in history.of(Init):
        if init.ok:
            inits.setdefault(init.transactional_id, []).append(init)
    for transaction in history.transactions.values():
        session = transaction.session
        if session is None or not session.ok or transaction.prepares:
            continue
        later = inits[session.transactional_id]
        following = bisect_right(later, session.completed, key=lambda init: init.invoked)
        if following < len(later):
            yield from _after(transaction, later[following], history)


def _after(transaction: HistoryTransaction, fence: Init, history: History) -> Iterator[Anomaly]:
    subject = f"{transaction.begin.process}, fenced by {fence.process},"
    shown: tuple[Operation, ...] = (transaction.begin, fence)
    for commit in transaction.commits:
        if commit.ok and commit.invoked > fence.completed:
            yield Anomaly("zombie_write", f"{subject} committed transaction {transaction.name}", (*shown, commit))
            return
    for send in transaction.sends:
        if send.invoked > fence.completed and send.value in history.committed:
            seen = history.committed[send.value].operation
            message = f"{subject} wrote {send.value!r} in transaction {transaction.name}"
            yield Anomaly("zombie_write", message, (*shown, send, *transaction.ends, seen))
            return
