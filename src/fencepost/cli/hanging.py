"""Hanging transactions (KIP-664): no coordinator will end them, so read_committed readers wait forever."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Final, NamedTuple

import typer

from fencepost.cli.cluster_settings import CommandConfig, Servers, complete_topic, connected
from fencepost.cli.ending import MOST_NAMED
from fencepost.cli.hidden import listed
from fencepost.cli.names import topic_named
from fencepost.cli.output import (
    MOST_SECONDS,
    CommandChanges,
    Json,
    Yes,
    changes_reported,
    confirmed,
    print_json,
    print_table,
    refuse,
)
from fencepost.cli.printable import printable
from fencepost.client.admin.hanging import HangingTransaction
from fencepost.client.admin.topics import TopicDescription
from fencepost.client.blocking import Admin
from fencepost.client.diagnosis.cluster_rules import unanswered_finding
from fencepost.client.diagnosis.collecting import by_reason
from fencepost.client.diagnosis.facts import unknown_of
from fencepost.client.diagnosis.holding import partition_name, partition_words, undecided_of
from fencepost.client.types import TopicPartition
from fencepost.counted import agreeing, counted_noun, duration_words
from fencepost.errors import ItemsFailedError, KafkaError

__all__ = ["find_hanging"]

_HEAD: Final = ("PARTITION", "PRODUCER", "FROM OFFSET", "LAST WRITTEN", "TRANSACTIONAL ID", "MAY BE COMMITTED")


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
    commit: Annotated[
        bool,
        typer.Option(
            "--commit", help="Write the missing commit markers of those that may be committed. Readers get the records."
        ),
    ] = False,
    even_if_committed: Annotated[
        bool, typer.Option("--even-if-committed", help="Also abort those that may be committed.")
    ] = False,
    yes: Yes = False,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Find open transactions in partitions that no coordinator knows, so that nothing will end them (KIP-664).

    The command reads the partitions, the coordinators, and the partitions again, to exclude transactions that ended
    meanwhile. A transaction that may belong to a prepared one is not aborted: its owner must decide that one first.

    Apache Kafka writes no marker to a partition that has no leader when a transaction ends. A transaction that hangs
    may therefore be committed: the coordinator's last decision for its id is a commit. Find out if the commit of its
    producer succeeded. If so, use --commit, else --abort --even-if-committed.

    It needs DESCRIBE and READ on topics, and DESCRIBE on all transactional ids: one with a hidden id seems to hang.

    If a broker does not answer, the command names the partitions that are not known. It ends no transaction of theirs.

    Status: 0 there is none (with --abort or --commit: no more); 1 there are some, the search is not complete, or not
    done; 2 invalid arguments.

    Example: fencepost transactions find-hanging --topic orders --abort
    """
    if abort and commit:
        refuse("--abort and --commit exclude each other", status=2)
    with connected(bootstrap_servers, command_config) as admin, changes_reported() as changes:
        described = _described(admin, topic)
        hanging, unknown = _found(admin, described, older_than)
        if hanging and not as_json:
            print_table([_HEAD, *map(_row, hanging)])
        done = "committed" if commit else "aborted"
        wanted = [each for each in hanging if abort or (commit and each.may_be_committed)]
        if wanted:
            _agree(admin, wanted, commit=commit, even_if_committed=even_if_committed, yes=yes)
        outcomes = _end_all(admin, changes, wanted, older_than, commit=commit)
        ended = [each for each, is_ended in outcomes.items() if is_ended]
    if as_json:
        print_json([_facts(each) | ({done: outcomes.get(each, False)} if abort or commit else {}) for each in hanging])
    else:
        sys.stdout.writelines(f"{done} {_facts(each)['partition']}\n" for each in ended)
    why = "; --commit writes markers only for those that may be committed" if commit else ""
    still_words = f"transactions that hang{' still' if ended else ''}: {len(hanging) - len(ended)}{why}"
    _conclude(described, older_than, still_words if len(ended) < len(hanging) else "", unknown, is_none=not hanging)


def _conclude(
    there: Mapping[str, TopicDescription],
    older_than: float,
    still: str,
    unknown: Mapping[TopicPartition, KafkaError],
    *,
    is_none: bool,
) -> None:
    """Print that nothing hangs. Exit with status 1 if something does (`still`), or a partition is not known."""
    leaders = _leaders(there)
    unread = [partition for partition, leader in leaders.items() if leader < 0]
    if is_none:
        count = counted_noun(len(leaders) - len(unread) - len(unknown), "partition")
        words = f"no hanging transactions in {count}, last written more than {duration_words(older_than * 1000)} ago"
        sys.stderr.write(f"fencepost: {words}\n")
    problems = [still] if still else []
    if unread:
        which = agreeing(len(unread), "they have")
        problems.append(f"not looked at, because {which} no leader (FP201): {partition_words(unread, MOST_NAMED)}")
    problems += _incomplete(unknown)
    if problems:
        refuse("\n".join(problems))


def _incomplete(unknown: Mapping[TopicPartition, KafkaError]) -> list[str]:
    """Return the partitions without an answer in words, by reason."""
    findings = [
        unanswered_finding(unknown_of("open transactions", reason, f" in {partition_words(partitions, MOST_NAMED)}"))
        for partitions, reason in by_reason(unknown)
    ]
    return [f"the search is not complete: {each.words} ({each.code})" for each in findings]


def _leaders(there: Mapping[str, TopicDescription]) -> dict[TopicPartition, int]:
    return {TopicPartition(name, number): at.leader for name in there for number, at in there[name].partitions.items()}


def _described(admin: Admin, topic: Sequence[str] | None) -> Mapping[str, TopicDescription]:
    """Return these topics, or all. Exit with status 1 if one is missing, or none is visible."""
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
    return there


def _agree(
    admin: Admin, transactions: Sequence[HangingTransaction], *, commit: bool, even_if_committed: bool, yes: bool
) -> None:
    """Exit with status 1 if one may have another outcome, or the person answers no."""
    if not (commit or even_if_committed):
        for each in transactions:
            if each.may_be_committed:
                refuse(
                    f"the coordinator may have committed the hanging transaction of {each.transactional_id} in "
                    f"{partition_name(each.partition)}: if the commit of its producer succeeded, write the missing "
                    "marker with --commit, else use --abort --even-if-committed; nothing was aborted"
                )
    ongoing, missing = listed(lambda: admin.list_transactions(states=["Ongoing"]), "transactions")
    if missing:
        refuse(
            f"they may belong to a two-phase transaction: {missing[0].words} ({missing[0].code}); "
            f"nothing was {'committed' if commit else 'aborted'}"
        )
    known = admin.describe_transactions([each.transactional_id for each in ongoing])
    undecided = undecided_of(transactions, admin.describe_producers([each.partition for each in transactions]), known)
    for hanging, transactional_id in undecided.items():
        refuse(
            f"the hanging transaction in {partition_words([hanging.partition], 1)} may belong to {transactional_id}, a "
            "two-phase transaction: its owner must commit or abort that first; nothing was "
            f"{'committed' if commit else 'aborted'}"
        )
    where = partition_words([each.partition for each in transactions], MOST_NAMED)
    seen = "Readers of committed records will see" if commit else "No reader of committed records will ever see"
    confirmed(
        f"{'Commit' if commit else 'Abort'} {len(transactions)} ({where})? {seen} what "
        f"{agreeing(len(transactions), 'they')} wrote.",
        yes=yes,
    )


def _end_all(
    admin: Admin, changes: CommandChanges, wanted: Sequence[HangingTransaction], older_than: float, *, commit: bool
) -> dict[HangingTransaction, bool | None]:
    """Commit or abort them, and return the outcome of each: true, false, or None if it is unknown."""
    # The question may have been open for a while.
    still = _found(admin, {each.partition.topic for each in wanted}, older_than) if wanted else _HangingSearch()
    outcomes: dict[HangingTransaction, bool | None] = {}
    for number, each in enumerate(wanted, 1):
        rest = [partition_name(left.partition) for left in wanted[number:]]
        with changes.change(_ending(each, commit=commit), rest):
            outcomes[each] = _end(admin, each, still, commit=commit)
    return outcomes


def _ending(hanging: HangingTransaction, *, commit: bool) -> str:
    return f"the transaction in {partition_name(hanging.partition)} was {'committed' if commit else 'aborted'}"


def _end(admin: Admin, hanging: HangingTransaction, still: _HangingSearch, *, commit: bool) -> bool | None:
    """Commit or abort one, and return true. If that fails, print the reason and return false; None: it is unknown."""
    is_unknown = False
    try:
        if hanging in still.hanging:
            write = admin.write_commit_marker if commit else admin.write_abort_marker
            write(hanging.partition, hanging.producer)
            return True
        if hanging.partition in still.unknown:
            raise still.unknown[hanging.partition]
        reason = f"{partition_words([hanging.partition], 1)} has changed meanwhile: run the command again"
    except KafkaError as error:
        is_unknown = error.may_have_taken_effect and hanging in still.hanging
        reason = f"{error}; it is unknown if {_ending(hanging, commit=commit)}" if is_unknown else str(error)
    sys.stderr.write(f"fencepost: {printable(reason)}\n")
    return None if is_unknown else False


class _HangingSearch(NamedTuple):
    """The transactions that hang, and the reasons why partitions are not known."""

    hanging: Sequence[HangingTransaction] = ()
    unknown: Mapping[TopicPartition, KafkaError] = {}


def _found(admin: Admin, topics: Iterable[str], older_than: float) -> _HangingSearch:
    try:
        return _HangingSearch(admin.find_hanging_transactions(list(topics), older_than_ms=round(older_than * 1000)))
    except ItemsFailedError as error:
        return _HangingSearch(list(chain.from_iterable(error.results.values())), error.errors)


def _row(found: HangingTransaction) -> tuple[str, ...]:
    facts = _facts(found)
    facts["last_written_ms"] = f"{duration_words(time.time() * 1000 - found.producer.last_timestamp_ms)} ago"
    facts["may_be_committed"] = "yes" if found.may_be_committed else "no"
    return tuple("not known" if value is None else str(value) for value in facts.values())


def _facts(found: HangingTransaction) -> dict[str, Any]:
    producer = found.producer
    return {
        "partition": partition_name(found.partition),
        "producer": f"{producer.producer_id}:{producer.producer_epoch}",
        "from_offset": producer.transaction_start_offset,
        "last_written_ms": producer.last_timestamp_ms,
        "transactional_id": found.transactional_id,
        "may_be_committed": found.may_be_committed,
    }
