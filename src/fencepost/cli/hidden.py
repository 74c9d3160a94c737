"""Empty and incomplete lists: rights are missing, or coordinators do not answer or cannot exist."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable
from itertools import chain
from typing import Any, Final, NoReturn, TypeVar

from fencepost.cli.cluster_settings import PATIENCE_MS
from fencepost.cli.diagnosis.finding_text import lines_of
from fencepost.cli.output import refuse
from fencepost.cli.printable import printable
from fencepost.client.blocking import Admin
from fencepost.client.diagnosis.calls import DiagnosisCalls
from fencepost.client.diagnosis.cluster_rules import unanswered_finding, uncreated_finding
from fencepost.client.diagnosis.collecting import unanswered_lists
from fencepost.client.diagnosis.coordinator_topics import COORDINATOR_TOPICS, creation_of
from fencepost.client.diagnosis.facts import FailureKind, unknown_of
from fencepost.client.diagnosis.findings import Finding
from fencepost.client.diagnosis.visibility import VisibilityCalls
from fencepost.client.net.cluster import Cluster
from fencepost.errors import ItemsFailedError, KafkaError

__all__ = [
    "check_visible",
    "hides",
    "impossible_topic",
    "listed",
    "print_problem",
    "refuse_hidden",
    "refuse_incomplete",
]

T = TypeVar("T")

_HIDES: Final[dict[str, Callable[[VisibilityCalls, int], Coroutine[Any, Any, bool]]]] = {
    "topic": VisibilityCalls.hides_topics,
    "group": VisibilityCalls.hides_groups,
    "transactional id": VisibilityCalls.hides_transactions,
}


async def hides(cluster: Cluster, kind: str) -> bool:
    """Return true if objects of this kind may be hidden from the principal. Raises KafkaError."""
    limit_ms = int(PATIENCE_MS)
    return await _HIDES[kind](VisibilityCalls(cluster, limit_ms), limit_ms)


def check_visible(admin: Admin, kind: str) -> None:
    """Exit with status 1 if objects of this kind may be hidden. Called for an empty list. Raises KafkaError."""
    if admin._run(lambda core: hides(core.cluster, kind)):
        refuse_hidden(kind)


def refuse_hidden(kind: str) -> NoReturn:
    """Exit with status 1: no object of this kind is visible."""
    refuse(f"no {kind} is visible to this principal: there is none, or DESCRIBE on all {kind}s is missing (FP002)")


def listed(ask: Callable[[], list[T]], part: str) -> tuple[list[T], list[Finding]]:
    """Return the objects of the coordinators that answer, and the findings about the others.

    Exits with status 1 if all coordinators are away or loading. Raises KafkaError.

    Args:
        ask: Lists the objects; it raises ItemsFailedError if some brokers do not answer.
        part: Key of COORDINATOR_TOPICS.
    """
    try:
        return ask(), []
    except ItemsFailedError as error:
        found: list[Any] = sorted(chain.from_iterable(error.results.values()))
        return found, list(map(unanswered_finding, unanswered_lists(part, error.errors)))
    except KafkaError as error:
        question = unknown_of(part, error)
        if question.failure_kind in (FailureKind.NO_COORDINATOR, FailureKind.LOADING):
            refuse_incomplete([unanswered_finding(question)])
        raise


def impossible_topic(admin: Admin, part: str) -> Finding | None:
    """Return a finding if the brokers cannot create the topic of the coordinators, or do not say so.

    Called for an empty list.
    """
    try:
        return admin._run(lambda core: _impossible_topic(core.cluster, part))
    except KafkaError as error:
        return unanswered_finding(unknown_of(creation_of(part), error))


async def _impossible_topic(cluster: Cluster, part: str) -> Finding | None:
    limit_ms = int(PATIENCE_MS)
    calls = DiagnosisCalls(cluster, limit_ms)
    nodes = [node.id for node in (await calls.describe_cluster(api_timeout_ms=limit_ms)).brokers]
    found = await calls.uncreated(COORDINATOR_TOPICS[part], nodes, limit_ms)
    return None if found is None else uncreated_finding(part, found)


def refuse_incomplete(findings: Iterable[Finding], printed: str = "list") -> NoReturn:
    """Exit with status 1: the list is not complete, or what else the command has printed."""
    sys.stdout.flush()
    refuse("\n".join(f"the {printed} is not complete: {each.words} ({each.code})" for each in findings))


def print_problem(finding: Finding) -> None:
    """Print a finding on standard error."""
    sys.stdout.flush()
    for line in lines_of(finding, 0):
        sys.stderr.write(f"{printable(line)}\n")
