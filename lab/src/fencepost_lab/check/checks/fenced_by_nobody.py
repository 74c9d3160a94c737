"""A producer is fenced only with a cause: a takeover of its id, another client ending its transaction, or a timeout.

Not judged if the timeout is unknown, or if InitProducerId may have been sent twice: the second request fences its own
producer. Below transaction.version 2 a late request can do the same with a correct Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, History
from fencepost_lab.check.history.operations import (
    NEVER,
    Abort,
    Commit,
    Init,
    Operation,
    Prepare,
    Send,
    SendOffsets,
)


def fenced_by_nobody(history: History) -> Iterator[Anomaly]:
    """Find producers that were fenced without a cause."""
    inits: dict[str, list[Init]] = {}
    ends: dict[str, list[Commit | Abort]] = {}
    for operation in history.operations:
        if isinstance(operation, Init):
            inits.setdefault(operation.transactional_id, []).append(operation)
        elif isinstance(operation, Commit | Abort):
            ends.setdefault(_id_of(history, operation), []).append(operation)
    for fenced in history.operations:
        name = _id_of(history, fenced) if fenced.fenced else ""
        own = [init for init in inits.get(name, ()) if init.process == fenced.process]
        if not own or any(init.repeated or not init.timeout_ms for init in own):
            continue
        others: list[Operation] = [init for init in inits[name] if init is not fenced and _fences(init, fenced, own[0])]
        others += [end for end in ends.get(name, ()) if end.process != fenced.process and _meets(end, fenced, own[0])]
        if not others and not _outlasted(history, fenced, own[-1]):
            what = (
                f"{fenced.process} was told that its epoch of {name} is not the present one, which nobody had changed"
            )
            yield Anomaly("fenced_by_nobody", what, (*own, fenced))


def _id_of(history: History, operation: Operation) -> str:
    """Return the transactional id of an operation, or "" if it has none."""
    if isinstance(operation, Init):
        return operation.transactional_id
    if isinstance(operation, Send | SendOffsets | Prepare | Commit | Abort) and operation.transaction:
        return history.transactions[operation.transaction].begin.transactional_id
    return ""


def _fences(init: Init, fenced: Operation, first: Init) -> bool:
    """Return true for another client's InitProducerId, or an unanswered own one that may have arrived late."""
    return (init.process != fenced.process or not init.ok) and _meets(init, fenced, first)


def _meets(other: Operation, fenced: Operation, first: Init) -> bool:
    """Return true if `other` can have taken effect between the producer's first InitProducerId and the refusal."""
    last = other.completed if other.ok else NEVER
    return other.invoked < fenced.completed and last > first.invoked


def _outlasted(history: History, fenced: Operation, init: Init) -> bool:
    for transaction in history.transactions.values():
        begin = transaction.begin
        if begin.process == fenced.process and begin.transactional_id == init.transactional_id:
            answered = [end.completed_ms for end in transaction.ends if end.ok]
            if min([*answered, fenced.completed_ms]) - begin.invoked_ms >= init.timeout_ms:
                return True
    return False
