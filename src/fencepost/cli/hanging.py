"""Hanging transactions (KIP-664): no coordinator will end them, so read_committed readers wait forever."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from fencepost.cli.cluster_settings import CommandConfig, Servers, complete_topic, connected
from fencepost.cli.ending import MOST_NAMED
from fencepost.cli.names import topic_named
from fencepost.cli.output import MOST_SECONDS, Json, Yes, confirmed, print_json, print_table, refuse
from fencepost.client.admin.hanging import HangingTransaction
from fencepost.client.blocking import Admin
from fencepost.client.diagnosis.holding import partition_name, partition_words, undecided_of
from fencepost.errors import KafkaError

__all__ = ["find_hanging"]

_HEAD: Final = ("PARTITION", "PRODUCER", "FROM OFFSET", "LAST WRITTEN", "TRANSACTIONAL ID")


def find_hanging(
    topic: Annotated[
        list[str] | None,
        typer.Option(autocompletion=complete_topic, callback=topic_named, help="Only this topic."),
    ] = None,
    older_than: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=MOST_SECONDS,
            help="Minimum time since the last write; use the largest timeout.",
        ),
    ] = 900.0,
    abort: Annotated[
        bool, typer.Option("--abort", help="Abort them with abort markers. Their records are lost.")
    ] = False,
    yes: Yes = False,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Find open transactions in partitions that no coordinator knows, so that nothing will end them (KIP-664).

    The command reads the partitions, the coordinators, and the partitions again, to exclude transactions that ended
    meanwhile. A transaction that may belong to a prepared one is not aborted: its owner must decide that one first.

    The command needs DESCRIBE and READ on topics, and DESCRIBE on all transactional ids: a transaction whose id is
    hidden looks as if it hangs.

    Status: 0 there is none (with --abort: no more); 1 there are some, or not done; 2 invalid arguments.

    Example: fencepost transactions find-hanging --topic orders --abort
    """
    with connected(bootstrap_servers, command_config) as admin:
        names = topic or admin.list_topics(internal=True)
        there = admin.describe_topics(names)
        missing = [name for name in names if topic and name not in there]
        if missing:
            refuse(f"there is no topic {', '.join(map(repr, missing))}")
        if not there:  # Kafka leaves topics out that this principal may not describe, and does not say so
            refuse(
                "no topic is visible to this principal, so no partition was looked at: the cluster has no topic, or "
                "DESCRIBE on its topics is missing"
            )
        found = _found(admin, there, older_than)
        if found and not as_json:
            print_table([_HEAD, *map(_row, found)])
        if found and abort:
            _agree(admin, found, yes=yes)
            still = _found(admin, there, older_than)  # the question may have been open for a while
            aborted = [each for each in found if _aborted(admin, each, still)]
        else:
            aborted = []
    if as_json:
        print_json([_facts(each) | ({"aborted": each in aborted} if abort else {}) for each in found])
    elif abort:
        sys.stdout.writelines(f"aborted {_facts(each)['partition']}\n" for each in aborted)
    if not found:
        count = sum(len(described.partitions) for described in there.values())
        what = f"no hanging transactions in {count} partitions, last written more than {older_than:g} s ago"
        sys.stderr.write(f"fencepost: {what}\n")
    if len(aborted) < len(found):
        refuse(f"transactions that hang{' still' if aborted else ''}: {len(found) - len(aborted)}")


def _agree(admin: Admin, found: Sequence[HangingTransaction], *, yes: bool) -> None:
    """Exit with status 1 if one may belong to a prepared transaction, or the person answers no."""
    listed = admin.list_transactions(states=["Ongoing"])
    known = admin.describe_transactions([each.transactional_id for each in listed])
    undecided = undecided_of(found, admin.describe_producers([each.partition for each in found]), known)
    for hanging, transactional_id in undecided.items():
        refuse(
            f"the hanging transaction in {partition_words([hanging.partition], 1)} may belong to {transactional_id}, a "
            "two-phase transaction: its owner must commit or abort that first; nothing was aborted"
        )
    where = partition_words([each.partition for each in found], MOST_NAMED)
    confirmed(f"Abort {len(found)} ({where})? No reader of committed records will ever see what they wrote.", yes=yes)


def _aborted(admin: Admin, hanging: HangingTransaction, still: Sequence[HangingTransaction]) -> bool:
    """Abort one; print the reason if that fails."""
    try:
        if hanging in still:
            admin.write_abort_marker(hanging.partition, hanging.producer)
            return True
        reason = f"{partition_words([hanging.partition], 1)} has changed meanwhile: run the command again"
    except KafkaError as error:
        reason = str(error)
    sys.stderr.write(f"fencepost: {reason}\n")
    return False


def _found(admin: Admin, there: Mapping[str, Any], older_than: float) -> list[HangingTransaction]:
    return admin.find_hanging_transactions(list(there), older_than_ms=round(older_than * 1000))


def _row(found: HangingTransaction) -> tuple[str, ...]:
    facts = _facts(found)
    facts["last_written_ms"] = f"{max(time.time() - found.producer.last_timestamp_ms / 1000, 0):.0f} s ago"
    return tuple("not known" if value is None else str(value) for value in facts.values())


def _facts(found: HangingTransaction) -> dict[str, Any]:
    producer = found.producer
    return {
        "partition": partition_name(found.partition),
        "producer": f"{producer.producer_id}:{producer.producer_epoch}",
        "from_offset": producer.transaction_start_offset,
        "last_written_ms": producer.last_timestamp_ms,
        "transactional_id": found.transactional_id,
    }
