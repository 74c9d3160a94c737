"""`fencepost groups`: list and describe groups, reset offsets, delete groups."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from fencepost.arguments import brief_repr
from fencepost.cli.cluster.positions import POSITIONS, Offset, Position, position_of
from fencepost.cli.cluster_settings import (
    PATIENCE,
    CommandConfig,
    Servers,
    client_settings,
    complete_group,
    complete_topic,
    connected,
)
from fencepost.cli.diagnosis.cluster_snapshot import ClusterSnapshot
from fencepost.cli.diagnosis.examiner import Examiner
from fencepost.cli.diagnosis.finding_text import as_value, report_of
from fencepost.cli.hidden import check_visible, impossible_topic, listed, print_problem, refuse_incomplete
from fencepost.cli.names import named, topic_named
from fencepost.cli.output import (
    Json,
    Yes,
    changes_reported,
    command_group,
    confirmed,
    print_json,
    print_line,
    print_table,
    refuse,
    report_done,
)
from fencepost.client.admin.group_descriptions import GroupDescription
from fencepost.client.blocking import Admin
from fencepost.client.diagnosis.cluster_rules import unanswered_finding
from fencepost.client.diagnosis.collecting import QUICK, CollectionLimits
from fencepost.client.diagnosis.diagnosing import diagnose
from fencepost.client.diagnosis.findings import DAMAGED, LEADERLESS, Finding, ObjectKind, Severity
from fencepost.client.diagnosis.group_rules import lags_of
from fencepost.client.diagnosis.holding import held_back
from fencepost.client.net.list_offsets import EARLIEST, LATEST
from fencepost.client.types import TopicPartition
from fencepost.counted import counted_noun
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC

__all__ = ["groups"]

groups = command_group("List, describe and delete groups; reset their offsets.")

Group = Annotated[str, typer.Argument(autocompletion=complete_group, callback=named, help="The group's id.")]

LOOK_S: Final = 20.0
MOST_READ: Final = 10_000  # positions of one group

# States of all kinds of groups: org.apache.kafka.common.GroupState. Brokers ignore upper and lower case.
STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
)


def _states(given: list[str] | None) -> list[str] | None:
    """Validate state names, because brokers silently find no group in an unknown state. Raises BadParameter."""
    for text in given or ():
        if text.lower() not in map(str.lower, STATES):
            raise typer.BadParameter(f"{brief_repr(text)}: one of {', '.join(STATES)}")
    return given


@groups.command("list")
def list_(
    state: Annotated[
        list[str] | None, typer.Option(callback=_states, help=f"Only groups in this state: {', '.join(STATES)}.")
    ] = None,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """List all groups with type and state.

    If a coordinator does not answer, the command lists the groups of the others, and names the coordinator.

    Status: 0 done; 1 not done, the list is not complete, or no group is visible to this principal; 2 invalid arguments.

    Example: fencepost groups list --state Stable
    """
    with connected(bootstrap_servers, command_config) as admin:
        found, missing = listed(lambda: admin.list_groups(states=state or ()), "groups")
        if not found and not missing:
            check_visible(admin, "group")
        impossible = None if found or missing else impossible_topic(admin, "groups")
    if as_json:
        print_json(
            [{"group": listing.group_id, "type": listing.group_type, "state": listing.state} for listing in found]
        )
    else:
        rows = [(listing.group_id, listing.group_type, listing.state) for listing in found]
        print_table([("GROUP", "TYPE", "STATE"), *rows])
    if impossible is not None:
        print_problem(impossible)
    if missing:
        refuse_incomplete(missing)


@groups.command()
def describe(
    group: Group,
    members: Annotated[bool, typer.Option("--members", help="Also show the members.")] = False,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show a group's state, committed offsets and lag: the offsets between the committed one and the partition's end.

    For a share group: the start offsets, and the lag that the brokers report (KIP-1226), empty if they do not.

    "Waits for" names the transaction at which readers of committed records stop. The findings below the table are those
    of `fencepost doctor`. Offsets that are pending in a transaction are not included. If a partition's leader does not
    answer, its end and lag are empty, and the command names it.

    Status: 0 done; 1 the group is unknown, the description is not complete, or not done; 2 invalid arguments.

    Example: fencepost groups describe billing --members
    """
    with connected(bootstrap_servers, command_config) as admin:
        described, kind = _known(admin, group)
        facts = _facts(admin, described, kind)
        snapshot = _examined(facts, client_settings(bootstrap_servers, command_config))
        findings = _findings(snapshot)
        if kind == "share" and (impossible := impossible_topic(admin, "share groups")) is not None:
            findings = [impossible, *findings]
    if as_json:
        print_json({**facts, "findings": list(map(as_value, findings))})
    else:
        _print(facts, members=members)
        for line in report_of(findings, snapshot.at_ms):
            print_line(line)
    unanswered = [unanswered_finding(each) for each in snapshot.unknown if each.part in ("topics", "offsets")]
    if missing := [*unanswered, *(each for each in findings if each.code == LEADERLESS)]:
        refuse_incomplete(missing, "description")


def _print(facts: dict[str, Any], *, members: bool) -> None:
    print_line(f"{facts['group']}: {facts['type']}, {facts['state']}, {counted_noun(len(facts['members']), 'member')}")
    clients = {each["member"]: f"{each['client']} {each['host']}" for each in facts["members"]}
    at = "start" if facts["type"] == "share" else "committed"
    rows = [
        (
            *(
                "" if row[name] is None else str(row[name])
                for name in ("topic", "partition", at, "end", "lag", "waits_for")
            ),
            clients.get(row["member"], ""),
        )
        for row in facts["partitions"]
    ]
    if rows:
        print_table([("TOPIC", "PARTITION", at.upper(), "END", "LAG", "WAITS FOR", "MEMBER"), *rows])
    if members:
        lines = [
            (member["member"], member["instance"] or "", member["client"], member["host"], str(len(member["assigned"])))
            for member in facts["members"]
        ]
        print_table([("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"), *lines])


def _examined(facts: dict[str, Any], settings: Mapping[str, str]) -> ClusterSnapshot:
    """Add each partition's end and lag to `facts`, and the transaction that holds it back. Return what was seen.

    A group keeps the offsets of deleted topics, which have no end. Brokers before KIP-1226 do not report the lag of a
    share group.
    """
    topics = frozenset(row["topic"] for row in facts["partitions"])
    bounds = CollectionLimits(read=MOST_READ, topic_names=topics, group_names=frozenset([facts["group"]]))
    with Examiner({**PATIENCE, **settings}, DEFAULT_TOPIC, LOOK_S, bounds) as examiner:
        snapshot = examiner.collect((*QUICK, "records"))
    rows = {TopicPartition(row["topic"], row["partition"]): row for row in facts["partitions"]}
    committed = {partition: row["committed"] for partition, row in rows.items() if row.get("committed") is not None}
    lags = lags_of(snapshot, held_back(snapshot), committed)
    for partition, row in rows.items():
        ends, lag = snapshot.ends.get(partition), lags.get(partition)
        if ends is not None:
            row["end"] = ends.end
        if lag is not None:
            row["lag"] = lag.total
        held_by = None if lag is None or lag.total == 0 else lag.held
        row["waits_for"] = None if held_by is None else held_by.words
    return snapshot


def _findings(snapshot: ClusterSnapshot) -> list[Finding]:
    return [
        each
        for each in diagnose(snapshot)
        if each.kind is ObjectKind.GROUP
        or each.severity in (Severity.UNKNOWN, Severity.NOTE)
        or each.code in (LEADERLESS, DAMAGED)
    ]


def _known(admin: Admin, group: str) -> tuple[GroupDescription, str]:
    """Return the group and its type. Exits with status 1 if it does not exist."""
    found, _ = listed(admin.list_groups, "groups")
    kinds = [listing.group_type.lower() for listing in found if listing.group_id == group]
    if not kinds:
        if not found and (impossible := impossible_topic(admin, "groups")) is not None:
            print_problem(impossible)
            if impossible.severity is not Severity.UNKNOWN:
                raise typer.Exit(1)
        # Raises KafkaError if the list omits it silently: this principal may not describe it, or its coordinator does
        # not answer.
        admin.describe_group(group)
        refuse(f"there is no group {group!r}")
    return admin.describe_group(group), kinds[0]


def _facts(admin: Admin, described: GroupDescription, kind: str) -> dict[str, Any]:
    return {
        "group": described.group_id,
        "type": kind or described.group_type,
        "state": described.state,
        "protocol": described.protocol,
        "partitions": (_shared if kind == "share" else _committed)(admin, described),
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "subscribed": list(member.subscribed),
                "assigned": [f"{partition.topic}-{partition.partition}" for partition in member.assigned],
            }
            for member in described.members
        ],
    }


def _shared(admin: Admin, described: GroupDescription) -> list[dict[str, Any]]:
    """Return the partitions of a share group. No member owns one. Brokers before KIP-1226 do not report the lag.

    Kafka has no start offset of a partition before the first acknowledgement.
    """
    offsets = admin.share_group_offsets(described.group_id)
    assigned = {partition for member in described.members for partition in member.assigned}
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "start": None if (at := offsets.get(partition)) is None else at.start_offset,
            "end": None,
            "lag": None if at is None or at.lag < 0 else at.lag,
            "member": None,
        }
        for partition in sorted({*offsets, *assigned})
    ]


def _committed(admin: Admin, described: GroupDescription) -> list[dict[str, Any]]:
    committed = admin.group_offsets(described.group_id, require_stable=False)
    owners = {partition: member.member_id for member in described.members for partition in member.assigned}
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "committed": committed[partition].offset if partition in committed else None,
            "end": None,
            "lag": None,
            "member": owners.get(partition),
        }
        for partition in sorted({*committed, *owners})
    ]


@groups.command("reset-offsets")
def reset_offsets(
    group: Group,
    to: Annotated[str | None, typer.Option(metavar="WHERE", help=f"{POSITIONS}.")] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="COUNT", help="Instead of --to: move by this many offsets; negative: back.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=complete_topic,
            help="TOPIC or TOPIC:0,1,2.",
            show_default="partitions with committed offsets",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Set the offsets from which a group continues. The group must have no members.

    An offset outside the partition is moved to its beginning or end. A time later than all records means the end.

    Example: fencepost groups reset-offsets billing --to 2026-01-31T12:00:00Z --topic orders --dry-run
    """
    if (to is None) == (shift_by is None):
        raise typer.BadParameter("either --to or --shift-by is required")
    position = None if to is None else position_of(to, "--to")
    chosen = [_chosen(text) for text in topic or ()]
    with connected(bootstrap_servers, command_config) as admin, changes_reported() as changes:
        committed = {partition: at.offset for partition, at in admin.group_offsets(group).items()}
        partitions = _chosen_partitions(admin, chosen) if chosen else sorted(committed)
        if not partitions:
            refuse(f"group {group!r} has committed nothing; say --topic")
        if position is None:
            unknown = [partition for partition in partitions if partition not in committed]
            if unknown:
                refuse(
                    f"group {group!r} has committed nothing of {unknown[0].topic}-{unknown[0].partition} to shift from"
                )
        targets = _resolved(
            admin, partitions, position, {partition: at + (shift_by or 0) for partition, at in committed.items()}
        )
        rows = [
            (partition.topic, str(partition.partition), str(committed.get(partition, "")), str(at))
            for partition, at in targets.items()
        ]
        if not as_json:
            print_table([("TOPIC", "PARTITION", "COMMITTED", "NEW"), *rows])
            sys.stdout.flush()
        if not dry_run:
            confirmed(f"Set {counted_noun(len(targets), 'offset')} of {group}?", yes=yes)
            with changes.change(f"the offsets of {group} were set"):
                admin.alter_group_offsets(group, targets)
    if as_json:
        print_json(
            [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "committed": committed.get(partition),
                    "new": at,
                }
                for partition, at in targets.items()
            ]
        )
    sys.stderr.write(f"{counted_noun(len(targets), 'offset')} {'would be ' if dry_run else ''}set\n")


def _chosen(text: str) -> tuple[str, list[int] | None]:
    """Parse TOPIC or TOPIC:0,1,2. Raises BadParameter."""
    try:
        name, separator, numbers = named(text).partition(":")
        topic_named(name)
    except typer.BadParameter as error:
        raise typer.BadParameter(error.message, param_hint="--topic") from error
    if not separator:
        return name, None
    try:
        return name, [int(number) for number in numbers.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{brief_repr(text)} is not TOPIC or TOPIC:0,1,2", param_hint="--topic") from error


def _chosen_partitions(admin: Admin, chosen: Sequence[tuple[str, list[int] | None]]) -> list[TopicPartition]:
    """Return the partitions. Exits with status 1 for an unknown topic or partition."""
    there = admin.describe_topics([name for name, _ in chosen])
    partitions = []
    for name, numbers in chosen:
        if name not in there:
            refuse(f"there is no topic {name!r}")
        known = there[name].partitions
        for number in known if numbers is None else numbers:
            if number not in known:
                refuse(f"topic {name!r} has no partition {number}")
            partitions.append(TopicPartition(name, number))
    return sorted(set(partitions))


def _resolved(
    admin: Admin, partitions: Sequence[TopicPartition], position: Position | None, shifted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition, between its beginning and its end."""
    begins = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(partitions, LATEST))
    at: Mapping[TopicPartition, int]
    match position:
        case None:
            at = shifted
        case Offset(number):
            at = {partition: number if number >= 0 else ends[partition].offset + number for partition in partitions}
        case _:
            found = admin.list_offsets(dict.fromkeys(partitions, position.timestamp))
            at = {
                partition: ends[partition].offset if found[partition].offset < 0 else found[partition].offset
                for partition in partitions
            }
    return {
        partition: min(max(at[partition], begins[partition].offset), ends[partition].offset) for partition in partitions
    }


@groups.command()
def delete(
    group: Annotated[
        list[str], typer.Argument(autocompletion=complete_group, callback=named, help="One or more group ids.")
    ],
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete groups without members, and their committed offsets.

    Example: fencepost groups delete billing-test --yes
    """
    with connected(bootstrap_servers, command_config) as admin, changes_reported() as changes:
        wanted = list(dict.fromkeys(group))
        # Only the coordinators of these groups: another one that does not answer would delay the command.
        found = admin.describe_groups(wanted)
        missing = [name for name in wanted if found[name].state == "Dead"]
        if missing:
            refuse(f"there is no group {', '.join(map(repr, missing))}; nothing was deleted")
        confirmed(f"Delete {', '.join(wanted)}?", yes=yes)
        for number, name in enumerate(wanted, 1):
            with changes.change(f"group {name} was deleted", wanted[number:]):
                admin.delete_group(name)
            report_done(f"deleted {name}", "deleted", as_json=as_json, group=name)
