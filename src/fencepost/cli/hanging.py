"""Transactions that no coordinator will ever end (KIP-664): their partitions' committed readers stop there for ever."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from fencepost.cli.cluster_settings import CommandConfig, Servers, connected
from fencepost.cli.output import Json, print_json, print_table, refuse
from fencepost.client.admin.transactions import ProducerDescription, TransactionDescription
from fencepost.client.blocking import Admin
from fencepost.client.types import TopicPartition

__all__ = ["Hanging", "find_hanging", "hanging_of"]


class Hanging(NamedTuple):
    """A partition's open transaction, and the transactional id whose producer began it, where it is known."""

    partition: TopicPartition
    producer: ProducerDescription
    transactional_id: str | None


def hanging_of(
    producers: Mapping[TopicPartition, Iterable[ProducerDescription]],
    transactions: Iterable[TransactionDescription],
    written_before_ms: float,
) -> list[Hanging]:
    """Those that nobody ends: open in the partition, last written before that time, and not in the transaction that the
    coordinator of their producer id knows; as Kafka's own tool decides it."""
    known = {each.producer_id: each for each in transactions if each.error_code == 0}
    return [
        Hanging(partition, producer, None if at is None else at.transactional_id)
        for partition, seen in sorted(producers.items())
        for producer in seen
        if producer.transaction_start_offset >= 0 and producer.last_timestamp_ms <= written_before_ms
        for at in (known.get(producer.producer_id),)
        if at is None or partition not in at.partitions
    ]


def find_hanging(
    topic: Annotated[list[str] | None, typer.Option(help="Only in this topic; may be repeated.")] = None,
    older_than: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Last written so long ago: the largest timeout."),
    ] = 900.0,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Open transactions of partitions that no coordinator knows any more, so that none will end them (KIP-664).

    Looks at partitions, at coordinators, and at partitions again: what has ended meanwhile does not hang. Status 1 if
    some do. An abort marker ends one: Admin.write_abort_marker, or kafka-transactions.sh abort.

    Example: fencepost transactions find-hanging --topic orders
    """
    with connected(bootstrap_servers, command_config) as admin:
        names = topic or admin.list_topics(internal=True)
        there = admin.describe_topics(names)
        missing = [name for name in names if topic and name not in there]
        if missing:
            refuse(f"there is no topic {', '.join(map(repr, missing))}")
        found = _found(admin, there, older_than)
    if as_json:
        print_json([_facts(each) for each in found])
    elif found:
        rows = [tuple(str(value) for value in _facts(each).values()) for each in found]
        print_table([("PARTITION", "PRODUCER", "FROM OFFSET", "LAST WRITTEN MS", "TRANSACTIONAL ID"), *rows])
    if found:
        refuse(f"{len(found)} transactions hang")


def _found(admin: Admin, there: Mapping[str, Any], older_than: float) -> list[Hanging]:
    # A partition without a leader cannot be asked; its readers wait for more than a transaction.
    led = [
        TopicPartition(name, number)
        for name, described in there.items()
        for number, at in described.partitions.items()
        if at.leader >= 0
    ]
    producers = admin.describe_producers(led)
    before_ms = (time.time() - older_than) * 1000
    suspected = hanging_of(producers, (), before_ms)
    known = _transactions_of(admin, [each.producer.producer_id for each in suspected])
    found = hanging_of(producers, known, before_ms)
    again = admin.describe_producers(list(dict.fromkeys(each.partition for each in found)))
    return [each for each in found if each in hanging_of(again, known, before_ms)]


def _transactions_of(admin: Admin, producer_ids: Sequence[int]) -> list[TransactionDescription]:
    if not producer_ids:
        return []
    listed = admin.list_transactions(producer_ids=sorted(set(producer_ids)))
    return admin.describe_transactions([each.transactional_id for each in listed])


def _facts(found: Hanging) -> dict[str, Any]:
    producer = found.producer
    return {
        "partition": f"{found.partition.topic}-{found.partition.partition}",
        "producer": f"{producer.producer_id}:{producer.producer_epoch}",
        "from_offset": producer.transaction_start_offset,
        "last_written_ms": producer.last_timestamp_ms,
        "transactional_id": found.transactional_id,
    }
