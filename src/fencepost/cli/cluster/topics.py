"""`fencepost topics`: list, describe, create, enlarge and delete topics."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from fencepost.cli.cluster.known_offsets import KnownOffsets
from fencepost.cli.cluster_settings import CommandConfig, Servers, complete_topic, connected, pairs_of
from fencepost.cli.hidden import check_visible, refuse_incomplete
from fencepost.cli.names import topic_named
from fencepost.cli.output import (
    Json,
    Yes,
    changes_reported,
    command_group,
    confirmed,
    print_json,
    print_table,
    refuse,
    report_done,
)
from fencepost.client.admin.topics import TopicDescription
from fencepost.client.blocking import Admin
from fencepost.client.diagnosis.cluster_rules import unanswered_finding
from fencepost.client.diagnosis.collecting import unanswered_offsets
from fencepost.client.net.list_offsets import EARLIEST, LATEST
from fencepost.client.types import Isolation, OffsetAt, TopicPartition
from fencepost.counted import counted_noun

__all__ = ["described", "topics"]

topics = command_group("List, describe, create, grow and delete topics.")

Topic = Annotated[str, typer.Argument(autocompletion=complete_topic, callback=topic_named, help="The topic's name.")]
Topics = Annotated[
    list[str], typer.Argument(autocompletion=complete_topic, callback=topic_named, help="One or more topic names.")
]


def _not_zero(given: int) -> int:
    if given == 0:
        raise typer.BadParameter("0 cannot be; -1 is the cluster's default")
    return given


def described(admin: Admin, name: str) -> TopicDescription:
    """Return a topic's description. Exits with status 1 if the topic does not exist."""
    found = admin.describe_topics([name])
    if name not in found:
        refuse(f"there is no topic {name!r}")
    return found[name]


@topics.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Print the names of the topics, one per line.

    Status: 0 done; 1 not done, or no topic is visible to this principal; 2 invalid arguments.

    Example: fencepost topics list -b localhost:9092
    """
    with connected(bootstrap_servers, command_config) as admin:
        names = admin.list_topics(internal=internal)
        if not names:
            check_visible(admin, "topic")
    if as_json:
        print_json(names)
    else:
        sys.stdout.writelines(f"{name}\n" for name in names)


@topics.command()
def describe(
    names: Topics,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show each partition's leader, replicas, first offset, last stable offset and end.

    If a leader does not answer, the offsets of its partitions are "unknown", and the command names them.

    Status: 0 done; 1 a topic is unknown, the description is not complete, or not done; 2 invalid arguments.

    Example: fencepost topics describe orders
    """
    with connected(bootstrap_servers, command_config) as admin:
        found = admin.describe_topics(names)
        offsets = _Offsets(admin, found.values())
    facts = [_facts(found[name], offsets) for name in dict.fromkeys(names) if name in found]
    if as_json:
        print_json(facts)
    else:
        _print(facts)
    missing = [name for name in names if name not in found]
    if missing:
        refuse(f"there is no topic {', '.join(map(repr, missing))}")
    if offsets.failed:
        refuse_incomplete(map(unanswered_finding, unanswered_offsets(offsets.failed)), "description")


class _Offsets:
    """Offsets of the partitions of some topics, as far as their leaders answer."""

    def __init__(self, admin: Admin, topics: Iterable[TopicDescription]) -> None:
        # A partition without a leader cannot be queried for offsets, but must be shown.
        led = (
            TopicPartition(each.name, number)
            for each in topics
            for number, at in each.partitions.items()
            if at.leader >= 0
        )
        known = KnownOffsets(admin, led)
        self.begins = known.at(EARLIEST)
        self.stable = known.at(LATEST, Isolation.READ_COMMITTED)
        self.ends = known.at(LATEST)
        self.failed = known.failed


def _facts(topic: TopicDescription, offsets: _Offsets) -> dict[str, Any]:
    def offset(found: Mapping[TopicPartition, OffsetAt], number: int) -> int | None:
        at = found.get(TopicPartition(topic.name, number))
        return None if at is None else at.offset

    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id is None else str(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": number,
                "leader": None if partition.leader < 0 else partition.leader,
                "replicas": list(partition.replicas),
                "in_sync": list(partition.in_sync),
                "begin": offset(offsets.begins, number),
                "stable": offset(offsets.stable, number),
                "end": offset(offsets.ends, number),
            }
            for number, partition in topic.partitions.items()
        ],
    }


def _print(facts: list[dict[str, Any]]) -> None:
    rows = [("TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN SYNC", "BEGIN", "STABLE", "END")]
    for topic in facts:
        for partition in topic["partitions"]:
            lists = (",".join(map(str, partition[name])) for name in ("replicas", "in_sync"))
            absent = "none" if partition["leader"] is None else "unknown"
            offsets = (
                absent if partition[name] is None else str(partition[name]) for name in ("begin", "stable", "end")
            )
            leader = "none" if partition["leader"] is None else str(partition["leader"])
            rows.append((topic["topic"], str(partition["partition"]), leader, *lists, *offsets))
    if facts:
        print_table(rows)


@topics.command()
def create(
    name: Topic,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            min=-1,
            max=2**31 - 1,
            callback=_not_zero,
            help="Number of partitions; -1: the cluster's default.",
        ),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            min=-1, max=2**15 - 1, callback=_not_zero, help="Replicas of each partition; -1: the cluster's default."
        ),
    ] = -1,
    config: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of the topic.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")] = False,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Create a topic, and wait until its partitions have leaders.

    Example: fencepost topics create orders --partitions 6 --config retention.ms=86400000
    """
    settings = pairs_of(config, "--config")
    with connected(bootstrap_servers, command_config) as admin, changes_reported() as changes:
        there = if_not_exists and name in admin.describe_topics([name])
        with changes.change(f"topic {name} was created"):
            admin.create_topic(name, partitions, replication_factor, settings, exist_ok=if_not_exists)
    if there:
        report_done(f"{name} exists already", "nothing", as_json=as_json, topic=name)
    else:
        report_done(f"created {name}", "created", as_json=as_json, topic=name)


@topics.command()
def alter(
    name: Topic,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, max=2**31 - 1, help="New total number of partitions.")
    ],
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Add partitions to a topic. This changes the partition of hashed keys.

    Example: fencepost topics alter orders --partitions 12
    """
    with connected(bootstrap_servers, command_config) as admin, changes_reported() as changes:
        described(admin, name)
        with changes.change(f"{name} has {counted_noun(partitions, 'partition')}"):
            admin.create_partitions(name, partitions)
    report_done(
        f"{name} has {counted_noun(partitions, 'partition')}",
        "grown",
        as_json=as_json,
        topic=name,
        partitions=partitions,
    )


@topics.command()
def delete(
    names: Topics,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore topics that do not exist.")] = False,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete topics with all their records. If one of them does not exist, nothing is deleted.

    Example: fencepost topics delete orders-test --yes
    """
    with connected(bootstrap_servers, command_config) as admin, changes_reported() as changes:
        found = admin.describe_topics(names)
        missing = [name for name in names if name not in found]
        if missing and not if_exists:
            refuse(f"there is no topic {', '.join(map(repr, missing))}; nothing was deleted")
        wanted = [name for name in dict.fromkeys(names) if name in found]
        if wanted:
            confirmed(f"Delete {', '.join(wanted)} with all records?", yes=yes)
        for number, name in enumerate(wanted, 1):
            with changes.change(f"topic {name} was deleted", wanted[number:]):
                admin.delete_topic(name)
            report_done(f"deleted {name}", "deleted", as_json=as_json, topic=name)
        if not wanted:
            sys.stderr.write("nothing to delete\n")
