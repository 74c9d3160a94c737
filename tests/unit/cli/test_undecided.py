"""Seemingly hanging transactions that may be two-phase (KIP-939), as partitions and coordinators describe them."""

from __future__ import annotations

from fencepost.client.admin.hanging import HangingTransaction
from fencepost.client.admin.transactions import ProducerDescription, TransactionDescription
from fencepost.client.diagnosis.holding import undecided_of
from fencepost.client.types import TopicPartition

HERE, ELSEWHERE = TopicPartition("t", 0), TopicPartition("t", 1)
FOR_EVER_MS = 2**31 - 1  # DescribeTransactions of a two-phase transaction
LOST = ProducerDescription(7, 0, 0, 1_000, 0, 5)
HANGING = HangingTransaction(HERE, LOST, None)


def transaction(
    producer_id: int, *partitions: TopicPartition, timeout_ms: int = FOR_EVER_MS, state: str = "Ongoing"
) -> TransactionDescription:
    return TransactionDescription("book", 0, state, producer_id, 3, timeout_ms, 900, partitions)


def undecided(*transactions: TransactionDescription, seen: tuple[ProducerDescription, ...] = (LOST,)) -> bool:
    found = undecided_of([HANGING], {HERE: seen}, transactions)
    assert found in ({}, {HANGING: "book"})
    return bool(found)


def test_only_what_an_undecided_transaction_may_hold_is_spared() -> None:
    assert undecided(transaction(7, ELSEWHERE)), "its producer has one open, of which nobody knows what is in it"
    assert undecided(transaction(8, HERE)), "kept, and to be ended with another producer id than its records carry"
    own = LOST._replace(producer_id=8)
    assert not undecided(transaction(8, HERE), seen=(LOST, own)), "its own records are open beside what hangs"
    assert undecided(transaction(8, HERE), seen=(LOST, own._replace(transaction_start_offset=-1)))
    assert not undecided(transaction(8, ELSEWHERE))
    assert not undecided(transaction(8, HERE, timeout_ms=60_000)), "it ends by itself"
    assert not undecided(transaction(8, HERE, state="PrepareCommit")), "it is decided"
    assert not undecided()
