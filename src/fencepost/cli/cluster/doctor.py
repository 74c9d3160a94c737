"""`fencepost doctor`: check a cluster's features for exactly-once processing, and its health."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

import typer

from fencepost.cli.cluster_settings import CommandConfig, Servers, client_settings, connected
from fencepost.cli.output import Json, print_json, print_line, refuse
from fencepost.cli.transaction_view import Session
from fencepost.client.blocking import Admin
from fencepost.errors import KafkaError
from fencepost.spark.errors import LevelUnavailableError
from fencepost.spark.sink import plan_level
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC
from fencepost.spark.sink.plan_steps import Level
from fencepost.spark.sink.runner import PROMISES

__all__ = ["doctor"]

PROBE: Final = "fencepost-doctor"  # in place of a sink's name, so that at most one transactional id remains
MOST_SKEW_MS: Final = 1000
MOST_NAMED: Final = 3


class Finding(NamedTuple):
    """The result of a check, and the problem, if there is one."""

    value: Any
    problem: str | None = None


def doctor(
    probe: Annotated[
        bool,
        typer.Option(
            "--probe/--no-probe",
            help="Try two-phase commit with the transactional id fencepost-sink/fencepost-doctor/probe. The id "
            "remains, without a transaction, until it expires.",
        ),
    ] = True,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Check brokers, replicas, features, the exactly-once level for Spark sinks, clocks and authorization.

    A check that cannot be made is reported with the reason. Status 1 if there is a problem.

    Example: fencepost doctor -b kafka-1:9092 --command-config admin.properties
    """
    with connected(bootstrap_servers, command_config) as admin:
        checks: dict[str, Callable[[], Finding]] = {
            "cluster": lambda: _cluster(admin),
            "brokers": lambda: _brokers(admin),
            "replicas": lambda: _replicas(admin),
            "features": lambda: Finding(dict(sorted(admin.features().items()))),
            "consumer groups fence transactions": lambda: _fences(admin),
            "clock": lambda: _clock(admin),
            "rights on the cluster": lambda: _rights(admin),
        }
        if probe:
            settings = client_settings(bootstrap_servers, command_config)
            checks["level of Spark sinks"] = lambda: _level(Session(settings, DEFAULT_TOPIC))
        found = {name: _found(check) for name, check in checks.items()}
    if as_json:
        print_json({name: finding._asdict() for name, finding in found.items()})
    else:
        for name, finding in found.items():
            print_line(f"{name}: {_words(finding.value)}")
    problems = [finding.problem for finding in found.values() if finding.problem is not None]
    if problems:
        sys.stdout.flush()
        refuse("; ".join(problems))


def _found(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except KafkaError as error:
        return Finding(f"not known: {error}")


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {level}" for name, level in value.items()) or "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _cluster(admin: Admin) -> Finding:
    cluster_id = admin.describe_cluster().cluster_id
    return Finding("the brokers do not tell its id" if cluster_id is None else cluster_id)


def _brokers(admin: Admin) -> Finding:
    return Finding([f"{node.id} ({node.host}:{node.port})" for node in admin.describe_cluster().brokers])


def _replicas(admin: Admin) -> Finding:
    """Check replicas. A missing broker shows only in the partitions that have replicas on it."""
    there = {node.id for node in admin.describe_cluster().brokers}
    topics = admin.describe_topics(admin.list_topics(internal=True)).values()
    partitions = {f"{topic.name}-{number}": at for topic in topics for number, at in topic.partitions.items()}
    missing = Counter(node for at in partitions.values() for node in at.replicas if node not in there)
    words = [
        f"broker {node}, which has replicas of {count} of {len(partitions)} partitions, is not in the cluster"
        for node, count in sorted(missing.items())
    ]
    short = [name for name, at in partitions.items() if len(at.in_sync) < len(at.replicas)]
    if short:
        words.append(f"{len(short)} partitions have replicas that are not in sync: {_some(short)}")
    leaderless = [name for name, at in partitions.items() if at.leader not in there]
    if leaderless:
        words.append(f"{len(leaderless)} partitions have no leader: {_some(leaderless)}")
    told = "; ".join(words)
    return Finding(told or f"all replicas of {len(partitions)} partitions are in sync", told or None)


def _some(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")


def _fences(admin: Admin) -> Finding:
    """Check fencing of transactional offsets by group (KIP-447)."""
    if admin.fences_by_group():
        return Finding("yes")
    return Finding("no", "offsets in transactions are not fenced by group (KIP-447): one producer per input partition")


def now_ms() -> float:
    """Return the local time in ms since 1970."""
    return time.time() * 1000


def _clock(admin: Admin) -> Finding:
    """Compare the clocks. The quorum leader reports its own time as its last caught-up time (KIP-836)."""
    asked_ms = now_ms()
    ahead_ms = admin.describe_metadata_quorum().clock_ahead_ms(asked_ms, now_ms())
    if ahead_ms is None:
        return Finding("unknown: the controller does not report its time")
    if abs(ahead_ms) <= MOST_SKEW_MS:
        return Finding(f"the controller's clock differs by less than {MOST_SKEW_MS} ms from the local one")
    words = f"the controller's clock is {abs(ahead_ms)} ms {'ahead of' if ahead_ms > 0 else 'behind'} the local one"
    return Finding(words, words)


def _rights(admin: Admin) -> Finding:
    operations = admin.authorized_operations()
    if operations is None:
        return Finding("not known: the brokers do not tell")
    return Finding([operation.name.lower().replace("_", "-") for operation in sorted(operations)])


def _level(session: Session) -> Finding:
    try:
        level = session.sink_link.run(plan_level.choose_level(PROBE, None))
    except LevelUnavailableError as error:
        return Finding("none", f"Spark sinks cannot write exactly once: {error}")
    words = f"{level.value}: {PROMISES[level]}"
    try:
        session.sink_link.run(plan_level.choose_level(PROBE, Level.KEEP_PREPARED))
    except LevelUnavailableError as error:
        why = str(error).partition(f"offer {level.value!r}: ")[2]
        return Finding(f"{words} (not {Level.KEEP_PREPARED.value}: {why or error})")
    return Finding(words)
