"""Findings: their codes, severities and titles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

__all__ = [
    "CODES",
    "DAMAGED",
    "LEADERLESS",
    "OBSERVED",
    "Code",
    "Finding",
    "ObjectKind",
    "Severity",
    "exit_status",
    "ordered",
    "page_of",
]

PAGE: Final = "docs/at-night.md"
LEADERLESS: Final = "FP201"
DAMAGED: Final = "FP204"
OBSERVED: Final = frozenset({"FP404", "FP501", "FP502", "FP504", "FP601"})
"""Codes of states without a time of their own: `since_ms` is that of the first collection that showed the state."""


class Severity(Enum):
    """Severity of a finding, the worst first.

    UNKNOWN: a request failed, so a problem may be hidden. NOTE: a limit of the diagnosis was reached, and the finding
    says what was not asked, and how to ask it.
    """

    ERROR = "error"
    UNKNOWN = "unknown"
    WARNING = "warning"
    NOTE = "note"


class ObjectKind(Enum):
    """Kind of the object that a finding is about."""

    CLUSTER = "cluster"
    BROKER = "broker"
    TOPIC = "topic"
    PARTITION = "partition"
    TRANSACTION = "transaction"
    GROUP = "group"
    SINK = "sink"


class Code(NamedTuple):
    """Severity and title of a code. A code keeps its meaning in all later versions."""

    severity: Severity
    title: str


CODES: Final[Mapping[str, Code]] = {
    "FP001": Code(Severity.UNKNOWN, "a question was not answered in time"),
    "FP002": Code(Severity.UNKNOWN, "the principal may not ask"),
    "FP003": Code(Severity.UNKNOWN, "the brokers are too old to be asked"),
    "FP004": Code(Severity.NOTE, "not everything was asked"),
    "FP101": Code(Severity.ERROR, "a broker does not answer"),
    "FP102": Code(Severity.ERROR, "a broker with replicas is missing"),
    "FP103": Code(Severity.ERROR, "a log directory is offline"),
    "FP104": Code(Severity.ERROR, "a disk is full"),
    "FP105": Code(Severity.WARNING, "a disk is nearly full"),
    "FP106": Code(Severity.WARNING, "the clocks differ"),
    "FP107": Code(Severity.WARNING, "a certificate ends soon"),
    "FP108": Code(Severity.WARNING, "a broker throttles this client"),
    "FP109": Code(Severity.WARNING, "the brokers do not fence transactions by group"),
    LEADERLESS: Code(Severity.ERROR, "partitions have no leader"),
    "FP202": Code(Severity.ERROR, "partitions have too few in-sync replicas for acks=all"),
    "FP203": Code(Severity.WARNING, "replicas are not in sync"),
    DAMAGED: Code(Severity.ERROR, "the next records of a group cannot be read"),
    "FP301": Code(Severity.ERROR, "no coordinator of transactions"),
    "FP302": Code(Severity.ERROR, "no coordinator of groups"),
    "FP303": Code(Severity.WARNING, "a coordinator is loading"),
    "FP304": Code(Severity.ERROR, "no coordinator of share groups"),
    "FP401": Code(Severity.ERROR, "a transaction hangs"),
    "FP402": Code(Severity.WARNING, "a prepared transaction waits for its decision"),
    "FP403": Code(Severity.WARNING, "an open transaction holds readers back"),
    "FP404": Code(Severity.ERROR, "a decided transaction is not finished"),
    "FP501": Code(Severity.ERROR, "a group does not finish its rebalance"),
    "FP502": Code(Severity.WARNING, "a group without members is behind"),
    "FP503": Code(Severity.WARNING, "no member of the group reads a partition"),
    "FP504": Code(Severity.WARNING, "a member makes no progress"),
    "FP505": Code(Severity.WARNING, "a group waits for a transaction"),
    "FP601": Code(Severity.WARNING, "a sink's decision is not complete"),
    "FP602": Code(Severity.ERROR, "a decided batch of a sink is lost"),
    "FP603": Code(Severity.WARNING, "Spark sinks cannot write exactly once"),
}


class Finding(NamedTuple):
    """A problem of one object.

    Attributes:
        code: Key of CODES.
        kind: Kind of the object.
        name: The object's name or id.
        words: The problem, in one sentence without a full stop.
        since_ms: Epoch ms since when it lasts, as far as known. A state of OBSERVED may be older.
        holds: The objects that it holds back.
        action: The next command or step.
    """

    code: str
    kind: ObjectKind
    name: str
    words: str
    since_ms: int | None = None
    holds: tuple[str, ...] = ()
    action: str = ""

    @property
    def severity(self) -> Severity:
        """Severity of its code."""
        return CODES[self.code].severity

    @property
    def subject(self) -> str:
        """Kind and name of the object."""
        return self.kind.value if self.kind is ObjectKind.CLUSTER else f"{self.kind.value} {self.name}"


_RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}
_STATUS: Final = {None: 0, Severity.ERROR: 1, Severity.WARNING: 3, Severity.UNKNOWN: 4, Severity.NOTE: 0}


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by severity, code and object, each once."""
    return sorted(set(findings), key=lambda each: (_RANKS[each.severity], each.code, each.kind.value, each.name))


def exit_status(findings: Iterable[Finding]) -> int:
    """Return the exit status for the worst finding: 0 none or a note, 1 error, 3 warning, 4 a failed request."""
    worst = min((each.severity for each in findings), key=_RANKS.__getitem__, default=None)
    return _STATUS[worst]


def page_of(code: str) -> str:
    """Return the section of the documentation for a code."""
    return f"{PAGE}#{code.lower()}"
