"""Administrators' views: ListTransactions and DescribeTransactions.

Source: K80 to K83 of docs/observed.md. A kept transaction (KIP-939) has two pairs. ListTransactions shows the producer
id of its records, because tools look up a producer id found in a partition. DescribeTransactions shows the pair for
EndTxn, because its caller intends to end the transaction; the description has the other pair as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from fencepost.broker.coordinator.txn.compact_idle_ids import Summary
from fencepost.broker.coordinator.txn.endings import ending_of
from fencepost.broker.coordinator.txn.model import (
    NO_PAIR,
    NO_PRODUCER_ID,
    ProducerPair,
    Transaction,
    group_by_topic,
)
from fencepost.broker.coordinator.txn.states import IDLE, STATE_NAMES, TxnState
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.endings import Ending
from fencepost.protocol.re2 import InvalidPattern, Pattern, compile_pattern


class DescribedTransaction(NamedTuple):
    """Description of an id. Times in ms, -1 = none. With an error every other field but the id is empty."""

    error_code: int
    transactional_id: str
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: tuple[tuple[str, tuple[int, ...]], ...] = ()
    ongoing_producer_id: int = NO_PRODUCER_ID
    """With ``ongoing_producer_epoch`` the pair on the records of the open transaction; -1 if none is open."""
    ongoing_producer_epoch: int = -1
    is_kept: bool = False
    is_two_phase: bool = False
    ending: Ending = Ending.UNKNOWN
    """Outcome of the transaction with the requested pair."""


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class ListReply(NamedTuple):
    error_code: int
    unknown_states: tuple[str, ...] = ()
    listings: tuple[ListedTransaction, ...] = ()


def describe(
    transactional_id: str, current: Transaction | None, prepared: ProducerPair = NO_PAIR
) -> DescribedTransaction:
    """Describe the id, and the outcome of its transaction with the pair `prepared`."""
    if transactional_id == "":
        return DescribedTransaction(ErrorCode.INVALID_REQUEST, "")
    if current is None:
        return DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    is_open = current.state is TxnState.ONGOING
    pair = current.client_pair if is_open else current.transaction_pair
    return DescribedTransaction(
        ErrorCode.NONE,
        transactional_id,
        STATE_NAMES[current.state],
        current.timeout_ms,
        current.start_ms,
        pair.producer_id,
        pair.epoch,
        () if current.state in IDLE else group_by_topic(current.partitions),
        current.producer_id if is_open else NO_PRODUCER_ID,
        current.producer_epoch if is_open else -1,
        current.is_kept,
        current.is_two_phase,
        ending_of(current, prepared),
    )


def list_transactions(
    now_ms: int,
    summaries: Iterable[Summary],
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> ListReply:
    """List transactions.

    An empty filter matches all, and ``duration_ms`` <= 0 filters nothing.

    Unknown state names are returned; if only unknown ones were given, nothing is listed. An id without a transaction
    matches every duration.
    """
    matcher: Pattern | None = None
    if pattern:
        try:
            matcher = compile_pattern(pattern)
        except InvalidPattern:
            return ListReply(ErrorCode.INVALID_REGULAR_EXPRESSION)
    names = {name: state for state, name in STATE_NAMES.items()}
    wanted = {names[name] for name in states if name in names}
    unknown = tuple(dict.fromkeys(name for name in states if name not in names))
    if states and not wanted:
        return ListReply(ErrorCode.NONE, unknown)
    owners = frozenset(producer_ids) - {NO_PRODUCER_ID}
    if producer_ids and not owners:
        return ListReply(ErrorCode.NONE, unknown)
    listings = [
        ListedTransaction(name, producer_id, STATE_NAMES[state])
        for name, state, producer_id, next_producer_id, start_ms in summaries
        if (not wanted or state in wanted)
        and (not owners or producer_id in owners or (state not in IDLE and next_producer_id in owners))
        and (duration_ms <= 0 or now_ms - start_ms >= duration_ms)
        and (matcher is None or matcher.matches(name))
    ]
    return ListReply(ErrorCode.NONE, unknown, tuple(listings))
