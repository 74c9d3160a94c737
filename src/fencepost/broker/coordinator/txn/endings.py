"""Memory of the outcomes of one id's transactions, by the (producer id, epoch) of their records.

A prepared transaction is named by that pair (KIP-939), and its decision may be carried out again long after later
transactions of the id. The memory lives as long as the id. It is part of the id's state and so of each of its records
in ``__transaction_state``.

It holds the first pair whose outcome is certain, and up to `MOST_RUNS` runs, the oldest first (the layout is defined in
`protocol/logs/transaction_log.py`). A run stands for transactions of one producer id with one outcome and equal
distances between their epochs: all commits of a producer that runs for long, or one commit after each restart. All but
one of the last `MOST_RUNS` transactions are always remembered. Dropping a run raises the first pair, so a dropped
transaction is answered as unknown and never as not begun.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from fencepost.broker.coordinator.txn.model import LAST_CLIENT_EPOCH, ProducerPair, Transaction
from fencepost.broker.coordinator.txn.states import TxnState
from fencepost.protocol.endings import Ending
from fencepost.protocol.logs.transaction_log import ENDINGS_RUN, ENDINGS_SINCE

__all__ = ["MOST_RUNS", "begin", "ending_of", "remember"]

MOST_RUNS: Final = 64


class _Outcome(IntEnum):
    ABORTED = 0
    COMMITTED = 1
    BOTH = 2
    """EndTxn v0-4 keeps the epoch, so several transactions with different outcomes had the pair."""


class _Run(NamedTuple):
    """Transactions of one producer id with the same outcome."""

    producer_id: int
    first: int
    """Epoch of the first transaction's records."""
    last: int
    """Epoch of the last transaction's records."""
    width: int
    """Number of epochs that name each transaction, from the epoch of its records on. Keeps handed out the others."""
    step: int
    """Distance between the epochs of two transactions."""
    outcome: int

    def holds(self, pair: ProducerPair) -> bool:
        """Return true if the pair names a transaction of the run."""
        behind = pair.epoch - self.first
        inside = pair.producer_id == self.producer_id and 0 <= behind < self.last + self.width - self.first
        return inside and behind % self.step < self.width

    def with_next(self, following: _Run) -> _Run | None:
        """Return the run extended by a transaction; None if it does not fit."""
        step = following.first - self.last
        alike = (self.producer_id, self.width, self.outcome) == (
            following.producer_id,
            following.width,
            following.outcome,
        )
        fits = step >= self.width and (self.first == self.last or step == self.step)
        if not (alike and fits):
            return None
        return _Run(self.producer_id, self.first, following.last, self.width, step, self.outcome)


def begin(pair: ProducerPair) -> bytes:
    """Return the memory of an id without transactions before those with this pair."""
    return ENDINGS_SINCE.pack(*pair)


def remember(before: Transaction, *, commit: bool) -> bytes:
    """Return the memory of the id at the end of its open transaction.

    All pairs handed out for a kept transaction are its names: from that of its records to the one that ends it.
    """
    outcome = _Outcome.COMMITTED if commit else _Outcome.ABORTED
    first, last = before.transaction_pair, before.client_pair
    has_same_id = first.producer_id == last.producer_id
    if has_same_id:
        longer = _with_longer_newest(before.endings, first, _run(first, last.epoch, outcome))
        if longer is not None:
            return longer
    since, runs = _read(before)
    if has_same_id:
        added = [_run(first, last.epoch, outcome)]
    else:  # keeps exhausted the epochs of the first producer id
        added = [_run(first, max(first.epoch, LAST_CLIENT_EPOCH), outcome)]
        added.append(_run(ProducerPair(last.producer_id, 0), last.epoch, outcome))
    for addition in added:
        runs = _added(runs, addition)
    for dropped in runs[:-MOST_RUNS]:
        since = max(since, ProducerPair(dropped.producer_id, dropped.last + dropped.width))
    return ENDINGS_SINCE.pack(*since) + b"".join([ENDINGS_RUN.pack(*run) for run in runs[-MOST_RUNS:]])


def _with_longer_newest(stored: bytes, pair: ProducerPair, addition: _Run) -> bytes | None:
    """Return the memory whose newest run is longer by a transaction, as it nearly always is; None for another one."""
    at = len(stored) - ENDINGS_RUN.size
    if at < ENDINGS_SINCE.size:
        return None
    newest = _Run._make(ENDINGS_RUN.unpack_from(stored, at))
    joined = None if newest.holds(pair) else newest.with_next(addition)
    return None if joined is None else stored[:at] + ENDINGS_RUN.pack(*joined)


def ending_of(current: Transaction | None, pair: ProducerPair) -> Ending:
    """Return the outcome of the transaction whose records have the pair."""
    if current is None:
        return Ending.UNKNOWN
    if current.state is TxnState.ONGOING and _names_open_transaction(current, pair):
        return Ending.OPEN
    since, runs = _read(current)
    for run in reversed(runs):
        if run.holds(pair):
            return _ending_for(current, pair, run.outcome)
    own = {current.client_pair.producer_id, current.producer_id, since.producer_id, *(run.producer_id for run in runs)}
    was_given_out = pair.producer_id in own and since <= pair <= current.client_pair and pair.epoch <= LAST_CLIENT_EPOCH
    return Ending.NEVER_BEGUN if was_given_out else Ending.UNKNOWN


def _ending_for(current: Transaction, pair: ProducerPair, outcome: int) -> Ending:
    if outcome == _Outcome.ABORTED:
        return Ending.TIMED_OUT if current.timed_out(pair) else Ending.ABORTED
    return Ending.COMMITTED if outcome == _Outcome.COMMITTED else Ending.UNKNOWN


def _names_open_transaction(current: Transaction, pair: ProducerPair) -> bool:
    first, last = current.transaction_pair, current.client_pair
    return first <= pair <= last and pair.producer_id in (first.producer_id, last.producer_id)


def _run(first: ProducerPair, last_epoch: int, outcome: _Outcome) -> _Run:
    """Return a run of one transaction, named by the pairs up to `last_epoch`."""
    width = last_epoch - first.epoch + 1
    return _Run(first.producer_id, first.epoch, first.epoch, width, width, outcome)


def _added(runs: list[_Run], addition: _Run) -> list[_Run]:
    """Return the runs with a transaction added, and its run at the end."""
    newest = runs[-1] if runs else None
    if newest is not None and newest.holds(ProducerPair(addition.producer_id, addition.first)):
        # Only EndTxn v0-4 ends a second transaction with the same pair, which is then the newest pair.
        runs = [*runs[:-1], *_without_last(newest)]
        addition = addition._replace(outcome=addition.outcome if addition.outcome == newest.outcome else _Outcome.BOTH)
    for at in reversed(range(len(runs))):
        joined = runs[at].with_next(addition)
        if joined is not None:
            return [*runs[:at], *runs[at + 1 :], joined]
    return [*runs, addition]


def _without_last(run: _Run) -> list[_Run]:
    """Return the run without the last name of its last transaction."""
    remaining = [] if run.first == run.last else [run._replace(last=run.last - run.step)]
    if run.width > 1:
        remaining.append(run._replace(first=run.last, width=run.width - 1, step=run.width - 1))
    return remaining


def _read(transaction: Transaction) -> tuple[ProducerPair, list[_Run]]:
    """Return the first remembered pair and the runs. A record of a broker without this memory has none."""
    stored = transaction.endings
    if not stored:
        client = transaction.client_pair
        return ProducerPair(client.producer_id, client.epoch + 1), []
    runs = [_Run(*fields) for fields in ENDINGS_RUN.iter_unpack(memoryview(stored)[ENDINGS_SINCE.size :])]
    return ProducerPair(*ENDINGS_SINCE.unpack_from(stored)), runs
