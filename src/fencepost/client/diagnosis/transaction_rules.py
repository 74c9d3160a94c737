"""Findings about transactions, and about groups and sinks that wait for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Final

from fencepost.client.admin.transactions import TransactionDescription
from fencepost.client.diagnosis.facts import Facts
from fencepost.client.diagnosis.findings import Finding, ObjectKind
from fencepost.client.diagnosis.holding import (
    OPEN_STATES,
    Cause,
    HeldBack,
    is_open,
    is_two_phase,
    partition_name,
    partition_words,
)
from fencepost.client.diagnosis.limits import Limits
from fencepost.client.types import TopicPartition
from fencepost.counted import agreeing, counted_noun, duration_words

__all__ = ["sink_findings", "transaction_findings", "transaction_state"]

MOST_NAMED: Final = 5

Held = Mapping[TopicPartition, HeldBack]


def transaction_state(transaction: TransactionDescription) -> tuple[str, ...]:
    """Return the key of its state in `Facts.since`. The next transaction of the id has another one."""
    return "transaction", transaction.transactional_id, transaction.state, str(transaction.start_time_ms)


def transaction_findings(facts: Facts, held: Held, limits: Limits) -> Iterator[Finding]:
    """Yield the findings about transactions that hold readers back, or will never end without a decision."""
    holds: dict[str, list[HeldBack]] = defaultdict(list)
    for each in held.values():
        if each.cause is Cause.HANGING:
            yield _hanging(each)
        elif each.transactional_id is not None and each.cause in (Cause.TRANSACTION, Cause.MAY_BE_PREPARED):
            holds[each.transactional_id].append(each)
    for name, transaction in sorted(facts.described.items()):
        if transaction.error_code == 0 and transaction.state in OPEN_STATES:
            yield from _open(facts, transaction, holds.get(name, ()), limits)


def _hanging(held: HeldBack) -> Finding:
    partition = held.partition
    written_ms = -1 if held.producer is None else held.producer.last_timestamp_ms
    find = f"fencepost transactions find-hanging --topic {partition.topic} --older-than 0"
    action = f"{find} --abort"
    if held.may_be_committed:
        action = f"{find} --commit; do not abort it before you know that its producer was not told of a commit"
    return Finding(
        "FP401",
        ObjectKind.PARTITION,
        partition_name(partition),
        f"readers of committed records stop at offset {held.stable}, {held.behind} before the end, for {held.words}",
        written_ms if written_ms >= 0 else None,
        (f"{partition_name(partition)} ({counted_noun(held.behind, 'offset')})",),
        action,
    )


def _open(
    facts: Facts, transaction: TransactionDescription, held: Sequence[HeldBack], limits: Limits
) -> Iterator[Finding]:
    name = transaction.transactional_id
    began_ms = transaction.start_time_ms if transaction.start_time_ms >= 0 else None
    age_ms = None if began_ms is None else max(facts.at_ms - began_ms, 0)
    holds = tuple(f"{partition_name(each.partition)} ({counted_noun(each.behind, 'offset')})" for each in held)
    snapshot = f"fencepost transactions describe {quote(name)}"
    if not is_open(transaction):
        decided_ms = facts.since.get(transaction_state(transaction), facts.at_ms)
        if facts.at_ms - decided_ms >= limits.ending_ms:
            words = f"it is decided ({transaction.state}), and partitions still wait for its markers"
            yield Finding("FP404", ObjectKind.TRANSACTION, name, words, decided_ms, holds, snapshot)
    elif age_ms is None or age_ms < limits.open_ms:
        return
    elif is_two_phase(transaction):
        where = partition_words(transaction.partitions, MOST_NAMED) or "no partition"
        words = f"it is prepared, or about to be, on {where}: only its owner decides it, and it never times out"
        yield Finding("FP402", ObjectKind.TRANSACTION, name, words, began_ms, holds, snapshot)
    elif held:
        left = duration_words(transaction.timeout_ms - age_ms)
        words = f"it is open and holds readers of committed records back; its coordinator aborts it in {left}"
        yield Finding("FP403", ObjectKind.TRANSACTION, name, words, began_ms, holds, snapshot)


def sink_findings(facts: Facts, limits: Limits) -> Iterator[Finding]:
    """Yield the findings about Spark sinks."""
    for each in facts.sinks:
        batch = f"batch {each.batch} of query {each.query}"
        if each.lost:
            count = counted_noun(len(each.lost), "lost transaction")
            words = f"{batch}: the rows of {count} are not in the topic"
            action = f"fencepost spark decisions {quote(each.sink)}"
            yield Finding("FP602", ObjectKind.SINK, each.sink, words, action=action)
        decided_ms = facts.since.get(("sink", each.sink, each.query, str(each.batch)), facts.at_ms)
        if each.open and facts.at_ms - decided_ms >= limits.ending_ms:
            words = (
                f"{batch} is decided, and {len(each.open)} of its transactions "
                f"{agreeing(len(each.open), 'are')} still open"
            )
            action = f"start the query, or if it is gone: fencepost transactions resolve {quote(each.sink)}"
            holds = ("readers of committed records of its topic",)
            yield Finding("FP601", ObjectKind.SINK, each.sink, words, decided_ms, holds, action)
    if facts.sinks_refused is not None:
        words = f"Spark sinks cannot write exactly once: {facts.sinks_refused}"
        yield Finding(
            "FP603", ObjectKind.CLUSTER, "Spark sinks", words, action="upgrade the brokers, or write at least once"
        )
