"""`fencepost doctor`: report the present problems of a cluster."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from fencepost.cli.cluster_settings import PATIENCE, CommandConfig, Servers, client_settings, warnings_suppressed
from fencepost.cli.diagnosis.cluster_snapshot import ClusterSnapshot
from fencepost.cli.diagnosis.examiner import Examiner
from fencepost.cli.diagnosis.finding_text import as_value, counted, report_of
from fencepost.cli.output import MOST_SECONDS, Json, failures_reported, print_json, print_line
from fencepost.cli.progress import step
from fencepost.cli.transaction_view import Session
from fencepost.client.diagnosis.collecting import AWAY
from fencepost.client.diagnosis.diagnosing import diagnose
from fencepost.client.diagnosis.facts import unknown_of
from fencepost.client.diagnosis.findings import Finding, ObjectKind, exit_status, ordered
from fencepost.client.diagnosis.limits import Limits
from fencepost.counted import duration_words
from fencepost.errors import KafkaError
from fencepost.spark.errors import GuaranteeUnavailableError
from fencepost.spark.sink import plan_abilities
from fencepost.spark.sink.abilities import Guarantee
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC

__all__ = ["doctor"]

PROBE: Final = "fencepost-doctor"  # in place of a sink's name, so that at most one transactional id remains
GUARANTEE: Final = "guarantee of Spark sinks"


def doctor(
    probe: Annotated[
        bool,
        typer.Option(
            "--probe/--no-probe",
            help="Try two-phase commit with the transactional id fencepost-sink/fencepost-doctor/probe. The id "
            "remains, without a transaction, until it expires.",
        ),
    ] = True,
    older_than: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, max=MOST_SECONDS, help="Age from which on an open transaction is a finding."
        ),
    ] = 60.0,
    watch: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=MOST_SECONDS,
            help="If a group rebalances, a decision is not complete, or, with 60 or more, a member is behind: look "
            "again after this time. A state that is still there is a finding. 0: do not look again, and report none of "
            "these.",
        ),
    ] = 5.0,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, max=MOST_SECONDS, help="Time limit of one look at the cluster.")
    ] = 20.0,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Report the present problems of a cluster, who is affected, and what to do. It works with any Kafka.

    Each finding has a code; docs/at-night.md has a section for each. A question without an answer is a finding, too.

    Status: 0 nothing found, or only notes (FP004); 1 an error, or no broker answers; 2 invalid arguments; 3 the worst
    finding is a warning; 4 a question was not answered, and there is no error.

    Example: fencepost doctor -b kafka-1:9092 --command-config admin.properties
    """
    settings = {**PATIENCE, **client_settings(bootstrap_servers, command_config)}
    settings["default.api.timeout.ms"] = str(round(timeout * 1000))
    watch_ms = round(watch * 1000)
    limits = Limits(open_ms=round(older_than * 1000))
    if watch_ms > 0:  # one look cannot show that a state lasts
        limits = replace(limits, ending_ms=watch_ms, rebalance_ms=watch_ms)
    with failures_reported(), warnings_suppressed(), Examiner(settings, DEFAULT_TOPIC, timeout) as examiner:
        try:
            snapshot = examiner.collect_twice(watch, step)
        except KafkaError as error:
            _print_findings(None, [_unreachable(settings["bootstrap.servers"], error)], "", as_json=as_json)
        guarantee = "not asked (--no-probe)"
        if probe:
            step("trying two-phase commit")
            snapshot, guarantee = _guarantee(snapshot, settings)
        findings = diagnose(snapshot, limits)
    _print_findings(snapshot, findings, guarantee, as_json=as_json)


def _unreachable(servers: str, error: KafkaError) -> Finding:
    if isinstance(error, AWAY):
        words, action = f"no broker answers at {servers}: {error}", "see the brokers' processes and logs"
        return Finding("FP101", ObjectKind.CLUSTER, servers, words, None, ("all clients",), action)
    (finding,) = ordered(
        [Finding("FP002", ObjectKind.CLUSTER, servers, f"nothing is known: {error}", action="use other credentials")]
    )
    return finding


def _print_findings(
    snapshot: ClusterSnapshot | None, findings: list[Finding], guarantee: str, *, as_json: bool
) -> None:
    """Print the findings, and exit with the status of the worst one."""
    about = {} if snapshot is None else _about(snapshot, guarantee)
    if as_json:
        print_json({"about": about, "findings": list(map(as_value, findings))})
    else:
        for name, value in about.items():
            print_line(f"{name}: {_words(value)}")
        now_ms = 0 if snapshot is None else snapshot.at_ms
        for number, line in enumerate(report_of(findings, now_ms)):
            if about or number > 0:  # the first line is empty: a gap below the facts
                print_line(line)
        if not findings:
            print_line("no findings")
    sys.stdout.flush()
    if findings:
        sys.stderr.write(f"fencepost: {counted(findings)}\n")
    raise typer.Exit(exit_status(findings))


def _about(snapshot: ClusterSnapshot, guarantee: str) -> dict[str, Any]:
    clock = "not known"
    if snapshot.clock_ahead_ms is not None:
        clock = f"the controller's clock differs by {duration_words(abs(snapshot.clock_ahead_ms))} from the local one"
    partitions = sum(len(topic.partitions) for topic in snapshot.topics.values())
    unknown = "not known" if snapshot.rights is None else ""
    return {
        "cluster": snapshot.cluster.cluster_id or "the brokers do not report its id",
        "brokers": [f"{node.id} ({node.address})" for node in snapshot.cluster.brokers],
        "partitions": partitions if snapshot.knows("topics") else "not known",
        "features": "not known" if snapshot.features is None else dict(sorted(snapshot.features.items())),
        "clock": clock,
        "rights on the cluster": unknown or [each.name.lower().replace("_", "-") for each in snapshot.rights or ()],
        GUARANTEE: guarantee,
    }


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {level}" for name, level in value.items()) or "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _guarantee(snapshot: ClusterSnapshot, settings: dict[str, str]) -> tuple[ClusterSnapshot, str]:
    """Return the facts with the result of the probe, and the guarantee in words."""
    try:
        return _probed(snapshot, Session(settings, DEFAULT_TOPIC))
    except KafkaError as error:
        return replace(snapshot, unknown=(*snapshot.unknown, unknown_of(GUARANTEE, error))), "not known"


def _probed(snapshot: ClusterSnapshot, session: Session) -> tuple[ClusterSnapshot, str]:
    """Probe the brokers, and return the facts and the guarantee in words. Raises KafkaError."""
    try:
        abilities, weakness = session.sink_link.run(plan_abilities.probe_abilities(PROBE))
    except GuaranteeUnavailableError as error:
        return replace(snapshot, sinks_refused=str(error)), "none"
    words = str(abilities.guarantee)
    return snapshot, words if abilities.guarantee is Guarantee.DURABLE else f"{words} ({weakness})"
