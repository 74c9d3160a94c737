"""The end of a transaction: the next pair, the prepare record, the completion record.

Pure functions without checks.

Epochs (KIP-890, KIP-939): ending with a bump makes the *client pair* one higher, or a new producer id with epoch 0
where the epoch is exhausted, while the markers carry the *transaction pair* one higher. The two differ for a kept
transaction and for an exhausted epoch, whose marker carries 32767: no client is ever given that epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.broker.coordinator.txn import endings
from fencepost.broker.coordinator.txn.model import (
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    NO_PAIR,
    NO_PRODUCER_ID,
    BumpCause,
    PartitionFence,
    ProducerPair,
    Transaction,
)
from fencepost.broker.coordinator.txn.states import TxnState
from fencepost.protocol.transactions import LAST_EPOCH
from fencepost.values import replace

AllocateProducerId = Callable[[], int]

BUMPING = 2
"""``client_transaction_version`` of a transaction that is ended with an epoch bump."""
NOT_BUMPING = 0


def bump(pair: ProducerPair, allocate: AllocateProducerId) -> ProducerPair:
    """Return the pair after this pair: the next epoch, or a new producer id if the epochs are exhausted."""
    if pair.epoch >= LAST_CLIENT_EPOCH:
        return ProducerPair(allocate(), 0)
    return ProducerPair(pair.producer_id, pair.epoch + 1)


def prepare(
    now_ms: int, before: Transaction, commit: bool, *, bumping: bool, cause: BumpCause, allocate: AllocateProducerId
) -> Transaction:
    """Return an open transaction's PREPARE_* state.

    ``cause`` NONE drops the old pair: its owner is fenced permanently.

    Without ``bumping`` (EndTxn v0-4) the client keeps its pair. A kept transaction's markers are bumped regardless,
    because the pair of its records was handed to another client.
    """
    client = before.client_pair
    following = bump(client, allocate) if bumping else client
    marker_epoch = min(before.producer_epoch + 1, LAST_EPOCH) if bumping or before.is_kept else before.producer_epoch
    same = following == ProducerPair(before.producer_id, marker_epoch)
    return replace(
        before,
        state=TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT,
        producer_epoch=marker_epoch,
        next_producer_id=NO_PRODUCER_ID if same else following.producer_id,
        next_producer_epoch=NO_EPOCH if same else following.epoch,
        client_transaction_version=BUMPING if bumping or before.is_kept else NOT_BUMPING,
        last_update_ms=now_ms,
        endings=endings.remember(before, commit=commit),
        **_last_pair(client if bumping else None, cause),
    )


def complete(now_ms: int, before: Transaction) -> Transaction:
    """Return the COMPLETE_* state after PREPARE_*, once all markers are written. Only the client pair remains."""
    client = before.client_pair
    timeout_ms = before.timeout_ms if before.next_timeout_ms < 0 else before.next_timeout_ms
    return replace(
        before,
        state=TxnState.COMPLETE_COMMIT if before.state is TxnState.PREPARE_COMMIT else TxnState.COMPLETE_ABORT,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        partitions=frozenset(),
        timeout_ms=timeout_ms,
        next_timeout_ms=-1,
        last_update_ms=now_ms,
    )


def abort_nothing(now_ms: int, before: Transaction, allocate: AllocateProducerId) -> Transaction:
    """Return the state after an abort by EndTxn v5+ without a transaction.

    Only the epoch changes, and there are no markers.
    """
    client = before.client_pair
    following = bump(client, allocate)
    after = replace(
        before,
        state=TxnState.COMPLETE_ABORT,
        producer_id=following.producer_id,
        producer_epoch=following.epoch,
        client_transaction_version=BUMPING,
        start_ms=now_ms,
        last_update_ms=now_ms,
    )
    return remember(after, client, BumpCause.END_TXN)


def remember(after: Transaction, last: ProducerPair | None, cause: BumpCause) -> Transaction:
    """Set the pair before the bump. With None or cause NONE no earlier pair is recognised."""
    return replace(after, **_last_pair(last, cause))


def _last_pair(last: ProducerPair | None, cause: BumpCause) -> dict[str, Any]:
    """Return the fields of the pair before the bump."""
    if last is None or cause is BumpCause.NONE:
        last, cause = NO_PAIR, BumpCause.NONE
    return {"previous_producer_id": last.producer_id, "last_producer_epoch": last.epoch, "last_bump": cause}


def fences(after: Transaction) -> tuple[PartitionFence, ...]:
    """Return the fences of a prepared transaction's partitions: all epochs below the marker's are refused."""
    return tuple(
        PartitionFence(partition, after.producer_id, after.producer_epoch) for partition in sorted(after.partitions)
    )
