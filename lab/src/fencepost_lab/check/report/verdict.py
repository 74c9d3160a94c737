"""Check a history: count the anomalies of each kind, and keep the first of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from fencepost.counted import noun_for
from fencepost_lab.check.checks import CHECKS, has_reads
from fencepost_lab.check.history.model import Anomaly, History
from fencepost_lab.check.history.operations import NEVER, Operation, OperationResult, Position, events_of

__all__ = ["Verdict", "describe", "judge", "text_of"]


@dataclass(slots=True)
class Verdict:
    """Result of all checks. `listed` has at most the requested number of anomalies per check; `counts` counts all."""

    history: History
    counts: Counter[str] = field(default_factory=Counter)
    listed: list[Anomaly] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    records_read: int = 0
    unproven: bool = False

    @property
    def clean(self) -> bool:
        return not self.counts and not self.unproven


def judge(history: History, limit: int) -> Verdict:
    """Run every check and keep at most `limit` anomalies of each. A history without answered reads is `unproven`."""
    verdict = Verdict(history, unproven=not has_reads(history))
    for check in CHECKS:
        for anomaly in check(history):
            verdict.counts[anomaly.check] += 1
            if verdict.counts[anomaly.check] <= limit:
                verdict.listed.append(anomaly)
    verdict.operations.update(operation.F for operation in history.operations)
    verdict.records_read = sum(len(batch.offsets) for _, batch in history.readings())
    return verdict


def text_of(verdict: Verdict) -> str:
    """Return the report as text: each kept anomaly with its operations in order, then the totals."""
    lines = []
    for anomaly in verdict.listed:
        lines.append(f"{anomaly.check}: {anomaly.detail}")
        lines += [f"    {describe(operation)}" for operation in in_order(anomaly.operations)]
        lines.append("")
    for check, count in verdict.counts.items():
        shown = sum(anomaly.check == check for anomaly in verdict.listed)
        lines.append(f"{count:,} {check}" + (f", of which {shown} are shown" if shown < count else ""))
    details = ", ".join(f"{count:,} {name}" for name, count in sorted(verdict.operations.items()))
    lines.append(
        f"{verdict.operations.total():,} {noun_for(verdict.operations.total(), 'operation')} ({details}); "
        f"{verdict.records_read:,} {noun_for(verdict.records_read, 'record')} read"
    )
    if verdict.unproven:
        lines.append("nobody read anything: whatever was lost would not be seen")
    total = verdict.counts.total()
    lines.append(
        "no anomalies" if verdict.clean else f"{total:,} {noun_for(total, 'anomaly')}" if total else "nothing is proven"
    )
    return "\n".join(lines)


def in_order(operations: Iterable[Operation]) -> list[Operation]:
    """Return the operations in order of invocation, without duplicates."""
    distinct = {operation.invoked: operation for operation in operations}
    return [distinct[key] for key in sorted(distinct)]


def describe(operation: Operation) -> str:
    """Describe an operation in one line: position, time, process, request and answer."""
    lines = f"line {operation.invoked}"
    if operation.completed == NEVER:
        lines += ", never answered"
        times = f"{operation.invoked_ms:.1f} ms"
    elif operation.completed == operation.invoked:
        times = f"{operation.invoked_ms:.1f} ms"
    else:
        lines += f" to {operation.completed}"
        times = f"{operation.invoked_ms:.1f} to {operation.completed_ms:.1f} ms"
    details = "" if operation.result is OperationResult.OK else f" -> {operation.result.value}"
    error = f": {operation.error}" if operation.error else ""
    return f"{lines}, {times}  {operation.process}  {operation.F} {_fields(operation)}{details}{error}"


def _fields(operation: Operation) -> str:
    words = []
    for declared in fields(operation):
        value = getattr(operation, declared.name)
        if declared.name in _SHOWN_ELSEWHERE or value in ("", -1, None, []):
            continue
        if declared.name == "records":
            words.append("got " + " ".join(_batch(*batch) for batch in value))
        elif isinstance(value, list):
            words.append(f"{declared.name} " + " ".join(map(str, value)))
        elif "end" in events_of(declared):
            words.append(f"-> {declared.name} {value}")
        else:
            words.append(f"{declared.name} {value!r}" if isinstance(value, str) else f"{declared.name} {value}")
    return " ".join(words)


def _batch(topic: str, partition: int, offsets: list[int], values: list[str]) -> str:
    if len(offsets) == 1:
        return f"{Position(topic, partition, offsets[0])} {values[0]!r}"
    if not offsets:
        return f"nothing of {topic}-{partition}"
    return f"{len(offsets)} of {topic}-{partition} from {offsets[0]} {values[0]!r} to {offsets[-1]} {values[-1]!r}"


_SHOWN_ELSEWHERE = frozenset("process invoked completed invoked_ms completed_ms result error".split())
