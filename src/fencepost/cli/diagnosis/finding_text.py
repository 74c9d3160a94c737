"""Convert findings to text, to values for JSON, and to metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

from fencepost.client.diagnosis.findings import CODES, OBSERVED, Finding, Severity, page_of
from fencepost.counted import counted_noun, duration_words

__all__ = ["WatchedState", "as_metrics", "as_value", "counted", "lines_of", "report_of", "since_words"]

MOST_OF_A_CODE: Final = 20  # in a text for people; JSON and metrics have all


def as_value(finding: Finding) -> dict[str, Any]:
    """Return a finding as a dict with the field names of --json."""
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "kind": finding.kind.value,
        "name": finding.name,
        "words": finding.words,
        "since_ms": finding.since_ms,
        "holds": list(finding.holds),
        "action": finding.action,
        "page": page_of(finding.code),
    }


def lines_of(finding: Finding, now_ms: int) -> list[str]:
    """Return a finding as lines of text. The first line has the problem."""
    lines = [f"{finding.code} {finding.severity.value}: {finding.subject}: {finding.words}"]
    if finding.since_ms is not None:
        label = "seen since" if finding.code in OBSERVED else "since"
        lines.append(f"  {label}: {since_words(finding.since_ms, now_ms)}")
    if finding.holds:
        lines.append(f"  holds back: {', '.join(finding.holds)}")
    if finding.action:
        lines.append(f"  do: {finding.action}")
    return lines


def report_of(findings: Sequence[Finding], now_ms: int) -> Iterator[str]:
    """Yield the findings as lines of text, each after an empty line. Of one code at most MOST_OF_A_CODE are described.

    A node that is away affects thousands of topics or groups at once.
    """
    for code, found in groupby(findings, lambda each: each.code):
        alike = list(found)
        for finding in alike[:MOST_OF_A_CODE]:
            yield ""
            yield from lines_of(finding, now_ms)
        if left_out := alike[MOST_OF_A_CODE:]:
            kind = left_out[0].kind.value if len({each.kind for each in left_out}) == 1 else "object"
            more = counted_noun(len(left_out), f"more {kind}")
            yield ""
            yield f"{code} {left_out[0].severity.value}: {more}, not described here; --json lists all"


def since_words(since_ms: int, now_ms: int) -> str:
    """Return a time, and the duration from then to `now_ms`, as text."""
    at = datetime.fromtimestamp(since_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{at} ({duration_words(now_ms - since_ms)})"


def counted(findings: Sequence[Finding]) -> str:
    """Return the number of findings of each severity, as text."""
    counts = Counter(each.severity for each in findings)
    names = {
        Severity.ERROR: "errors",
        Severity.UNKNOWN: "questions without an answer",
        Severity.WARNING: "warnings",
        Severity.NOTE: "notes",
    }
    return ", ".join(f"{names[severity]}: {counts[severity]}" for severity in Severity if counts[severity])


class WatchedState(NamedTuple):
    """The state of a watched cluster.

    Attributes:
        findings: The findings of the last snapshot.
        collected_ms: Time of the last answers, in ms since 1970. None before the first answers: no finding has a value.
        away: True if no broker answers: only FP101 has a value.
        cluster: The name of the cluster, or "" for the only one.
    """

    findings: Sequence[Finding]
    collected_ms: int | None
    away: bool
    cluster: str = ""

    def answers(self) -> list[str]:
        """Return the sample that says if a broker answers."""
        return [self._sample("fencepost_cluster_answers", str(int(not self.away)))] if self._codes() else []

    def counts(self) -> list[str]:
        """Return a sample for each finding that has a value."""
        counts = Counter({"FP101": 1}) if self.away else Counter(each.code for each in self.findings)
        return [
            self._sample("fencepost_findings", str(counts[code]), code=code, severity=CODES[code].severity.value)
            for code in self._codes()
        ]

    def times(self) -> list[str]:
        """Return the sample with the time of the last answers."""
        if self.collected_ms is None:
            return []
        return [self._sample("fencepost_last_answer_timestamp_seconds", f"{self.collected_ms / 1000:.3f}")]

    def _codes(self) -> list[str]:
        return ["FP101"] if self.away else list(CODES) if self.collected_ms is not None else []

    def _sample(self, name: str, value: str, **labels: str) -> str:
        named = {"cluster": self.cluster, **labels} if self.cluster else labels
        text = ",".join(f'{label}="{text}"' for label, text in named.items())
        return f"{name}{{{text}}} {value}" if text else f"{name} {value}"


_FAMILIES: Sequence[tuple[str, str, Callable[[WatchedState], list[str]]]] = (
    ("fencepost_cluster_answers", "1 if a broker answered the last collection of facts.", WatchedState.answers),
    (
        "fencepost_findings",
        "Findings of the diagnosis by code; docs/at-night.md has a section for each code.",
        WatchedState.counts,
    ),
    ("fencepost_last_answer_timestamp_seconds", "Time of the last answers.", WatchedState.times),
)


def as_metrics(states: Iterable[WatchedState]) -> str:
    """Return the findings of clusters in Prometheus' text format."""
    known = list(states)
    lines = []
    for name, about, samples in _FAMILIES:
        lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
        lines += [line for state in known for line in samples(state)]
    return "\n".join(lines) + "\n"
