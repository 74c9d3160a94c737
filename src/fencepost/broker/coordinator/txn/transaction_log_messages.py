"""Log messages and counters about transactions and producers.

Without these messages only the affected client would notice a timeout, a fencing or a refusal.

Names come from clients, and are quoted so that they cannot break a line of the log.
"""

from __future__ import annotations

import logging

from fencepost.broker.coordinator.txn.model import BumpCause, ProducerPair, Transaction
from fencepost.broker.coordinator.txn.states import IDLE, STATE_NAMES, TxnState
from fencepost.broker.metrics.counters import Metrics
from fencepost.counted import duration_words
from fencepost.protocol.codes import ErrorCode

__all__ = ["note_change", "note_commit_of_nothing", "note_refusal"]

_NAMED_PARTITIONS = 10
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)

_log = logging.getLogger("fencepost.broker.transactions")


def note_change(metrics: Metrics, now_ms: int, before: Transaction | None, after: Transaction | None) -> None:
    """Log and count a timeout, a fencing, a return after a timeout or an expiry."""
    if before is None:
        return
    if after is None:
        _log.info("transactional id %r expired: it was not used for too long", before.transactional_id)
        return
    if before.state is TxnState.ONGOING and after.state is TxnState.PREPARE_ABORT:
        has_new_pair = after.client_pair != before.client_pair
        if after.last_bump is BumpCause.TIMEOUT:
            metrics.count("transactions_timed_out")
            timeout = duration_words(before.timeout_ms)
            _log.warning("%s timed out (%s) and is aborted", _transaction(now_ms, before), timeout)
        elif has_new_pair and after.last_bump is BumpCause.NONE:
            metrics.count("fenced_transactions")
            _log.warning("%s is aborted: another producer takes over its id", _transaction(now_ms, before))
    elif before.state in IDLE and after.state is TxnState.EMPTY:
        has_new_pair = after.client_pair != before.client_pair
        if has_new_pair and after.last_bump is BumpCause.NONE:
            # Every restarted producer does this. A previous owner is reported when it sends a request.
            _log.debug(
                "transactional id %r changes from producer id %s epoch %s to %s epoch %s; no transaction was open",
                after.transactional_id,
                *before.client_pair,
                *after.client_pair,
            )
        elif not has_new_pair and before.last_bump is BumpCause.TIMEOUT and before.state is not TxnState.EMPTY:
            metrics.count("timeouts_reclaimed")
            _log.info(
                "the producer of transactional id %r continues after its timeout with producer id %s epoch %s",
                after.transactional_id,
                *after.client_pair,
            )


def note_refusal(metrics: Metrics, subject: str, error_code: int, transactional_id: str | None = None) -> None:
    """Log and count a refusal if it means that another producer has taken over."""
    if error_code in _FENCED:
        metrics.count("fenced_requests")
        _log.warning("%s of transactional id %r is refused: its producer is fenced", subject, transactional_id)


def note_commit_of_nothing(current: Transaction | None, pair: ProducerPair) -> None:
    """Log a commit that was answered 48, with the id's state.

    Its producer assumes that it has written, and is stuck.
    """
    if current is not None:
        _log.warning(
            "the commit of transactional id %r with producer id %s epoch %s is refused: it has no open "
            "transaction. The id is %s with producer id %s epoch %s; before that %s, which ended by %s",
            *(current.transactional_id, *pair, STATE_NAMES[current.state], *current.client_pair),
            *(tuple(current.last_pair), current.last_bump.name),
        )


def _transaction(now_ms: int, transaction: Transaction) -> str:
    partitions = sorted(transaction.partitions)
    named = ", ".join(f"{topic}-{index}" for topic, index in partitions[:_NAMED_PARTITIONS])
    more = f" and {len(partitions) - _NAMED_PARTITIONS} more" if len(partitions) > _NAMED_PARTITIONS else ""
    return (
        f"the transaction of transactional id {transaction.transactional_id!r} (producer id "
        f"{transaction.producer_id} epoch {transaction.producer_epoch}, open for "
        f"{duration_words(now_ms - transaction.start_ms)}, partitions {named}{more})"
    )
