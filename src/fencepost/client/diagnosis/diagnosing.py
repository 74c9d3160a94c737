"""Derives findings from facts, and remembers the time since when a state is unchanged."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from fencepost.client.diagnosis.cluster_rules import cluster_findings
from fencepost.client.diagnosis.facts import Facts
from fencepost.client.diagnosis.findings import Finding, ordered
from fencepost.client.diagnosis.group_rules import REBALANCING, damage_findings, group_findings, phase_of
from fencepost.client.diagnosis.holding import OPEN_STATES, held_back, partition_name
from fencepost.client.diagnosis.limits import Limits
from fencepost.client.diagnosis.transaction_rules import sink_findings, transaction_findings, transaction_state
from fencepost.errors import KafkaError

__all__ = ["StateAges", "diagnose", "may_last"]

F = TypeVar("F", bound=Facts)


def diagnose(facts: Facts, limits: Limits | None = None) -> list[Finding]:
    """Return the findings that follow from the facts, the worst first."""
    bounds = limits or Limits()
    held = held_back(facts)
    return ordered(
        [
            *cluster_findings(facts, bounds),
            *transaction_findings(facts, held, bounds),
            *damage_findings(facts),
            *group_findings(facts, held, bounds),
            *sink_findings(facts, bounds),
        ]
    )


class StateAges:
    """Stores the time since when each state is unchanged, from one collection of facts to the next."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, ...], int] = {}

    def take(self, facts: F) -> F:
        """Return the facts with `since`. States that the facts do not know keep their time."""
        now = _states(facts)
        unchanged = {
            key: since_ms for key, since_ms in self._since.items() if key in now or not facts.knows(_PARTS[key[0]])
        }
        self._since = {**dict.fromkeys(now, facts.at_ms), **unchanged}
        return replace(facts, since=dict(self._since))


_PARTS = {"transaction": "transactions", "group": "groups", "progress": "groups", "sink": "sinks"}


def _states(facts: Facts) -> list[tuple[str, ...]]:
    states: list[tuple[str, ...]] = [
        transaction_state(each) for each in facts.described.values() if each.state in OPEN_STATES
    ]
    states += [("group", each.group_id, phase_of(each.state)) for each in facts.groups]
    states += [
        ("progress", group, partition_name(partition), str(at))
        for group, committed in facts.committed.items()
        if not isinstance(committed, KafkaError)
        for partition, at in committed.items()
    ]
    states += [("sink", each.sink, each.query, str(each.batch)) for each in facts.sinks if each.open]
    return states


def may_last(facts: Facts, watch_ms: int) -> bool:
    """Return true if a second collection after this time can show that a state lasts.

    This is a rebalance, an incomplete decision, or, after the time of FP504, a member without progress.
    """
    if watch_ms >= Limits().stalled_ms and any(each.state == "Stable" for each in facts.members.values()):
        return True
    decided = any(each.state in OPEN_STATES[1:] for each in facts.described.values())
    return decided or any(each.state in REBALANCING for each in facts.groups) or any(each.open for each in facts.sinks)
