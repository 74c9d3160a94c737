"""A transaction with an unknown outcome is read completely or not at all, and its offsets share its outcome."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost_lab.check.history.model import Anomaly, History, HistoryTransaction, Outcome
from fencepost_lab.check.history.operations import OffsetsFetch, Operation


def torn(history: History) -> Iterator[Anomaly]:
    """Find transactions that took effect in part."""
    fetches: dict[str, list[OffsetsFetch]] = {}
    for fetched in history.of(OffsetsFetch):
        if fetched.ok:
            fetches.setdefault(fetched.group, []).append(fetched)
    for transaction in history.transactions.values():
        if transaction.outcome is not Outcome.UNKNOWN:
            continue
        visible = next((send for send in transaction.sends if send.value in history.committed), None)
        if visible is None:
            continue
        seen = history.committed[visible.value].operation
        for send in transaction.sends:
            read = None if send.value in history.committed else history.missing_in(send)
            if read is not None:
                message = f"{visible.value!r} of transaction {transaction.name} was read and {send.value!r} was not"
                yield Anomaly("torn", message, (transaction.begin, visible, send, *transaction.ends, seen, read))
                break
        yield from _without_offsets(transaction, visible, seen, fetches)


def _without_offsets(
    transaction: HistoryTransaction, visible: Operation, seen: Operation, fetches: dict[str, list[OffsetsFetch]]
) -> Iterator[Anomaly]:
    """Find offsets that a later read shows before the transaction's position, although its records are visible."""
    for sent in transaction.offsets:
        for fetched in fetches.get(sent.group, []) if sent.ok else []:
            at = {(topic, partition): offset for topic, partition, offset in fetched.offsets}
            behind = [position for position in sent.offsets if at.get(position[:2], -1) < position.offset]
            if fetched.invoked > seen.completed and behind:
                message = (
                    f"records of transaction {transaction.name} were read, and group {sent.group} is not at {behind[0]}"
                )
                yield Anomaly("torn", message, (transaction.begin, visible, sent, *transaction.ends, seen, fetched))
                return
