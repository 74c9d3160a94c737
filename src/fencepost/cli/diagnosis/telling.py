"""Findings as text and as values for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fencepost.client.diagnosis.findings import Finding, Severity, page_of

__all__ = ["as_value", "counted", "lines_of", "since_words"]


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
