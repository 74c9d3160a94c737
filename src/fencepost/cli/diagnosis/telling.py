"""Findings as text and as values for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fencepost.client.diagnosis.findings import CODES, Finding, Severity, page_of

__all__ = ["as_metrics", "as_value", "counted", "lines_of", "since_words"]


def as_value(finding: Finding) -> dict[str, Any]:
    """Return a finding by the field names of --json."""
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
    """Return a finding in lines, the problem in the first one."""
    lines = [f"{finding.code} {finding.severity.value}: {finding.subject}: {finding.words}"]
    if finding.since_ms is not None:
        lines.append(f"  since: {since_words(finding.since_ms, now_ms)}")
    if finding.holds:
        lines.append(f"  holds back: {', '.join(finding.holds)}")
    if finding.action:
        lines.append(f"  do: {finding.action}")
    return lines


def since_words(since_ms: int, now_ms: int) -> str:
    """Return a time and the duration until now."""
    at = datetime.fromtimestamp(since_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{at} ({max(now_ms - since_ms, 0) / 1000:.0f} s)"


def counted(findings: Sequence[Finding]) -> str:
    """Return the number of findings by severity, in words."""
    counts = Counter(each.severity for each in findings)
    names = {Severity.ERROR: "errors", Severity.UNKNOWN: "questions without an answer", Severity.WARNING: "warnings"}
    return ", ".join(f"{names[severity]}: {counts[severity]}" for severity in Severity if counts[severity])


def as_metrics(findings: Sequence[Finding], looked_ms: int | None, *, away: bool) -> str:
    """Return the findings in Prometheus' text format.

    Args:
        findings: The findings of the last look.
        looked_ms: Epoch ms of the last answers, or None before the first ones: then no finding has a value.
        away: No broker answers. Then no finding but FP101 has a value.
    """
    counts = Counter({"FP101": 1}) if away else Counter(each.code for each in findings)
    known = ["FP101"] if away else list(CODES) if looked_ms is not None else []
    lines = [
        "# HELP fencepost_cluster_answers 1 if a broker answered the last look at the cluster.",
        "# TYPE fencepost_cluster_answers gauge",
        *([f"fencepost_cluster_answers {int(not away)}"] if known else []),
        "# HELP fencepost_findings Findings of the diagnosis by code; docs/at-night.md has a section for each code.",
        "# TYPE fencepost_findings gauge",
    ]
    for code in known:
        labels = f'code="{code}",severity="{CODES[code].severity.value}"'
        lines.append(f"fencepost_findings{{{labels}}} {counts[code]}")
    if looked_ms is not None:
        lines += [
            "# HELP fencepost_last_look_timestamp_seconds Time of the last answers.",
            "# TYPE fencepost_last_look_timestamp_seconds gauge",
            f"fencepost_last_look_timestamp_seconds {looked_ms / 1000:.3f}",
        ]
    return "\n".join(lines) + "\n"
