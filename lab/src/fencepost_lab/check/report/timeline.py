"""Anomalies as pictures: one self-contained HTML page with a timeline per anomaly.

Rows are processes, and bars are operations. The operations that show the anomaly are dark, and numbered as in the list
below. Around them are operations of the same processes, and of others at that time, as far as there is room. Time is
the order of events, so idle periods take no room.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from html import escape

from fencepost.counted import noun_for
from fencepost_lab.check.history.model import Anomaly
from fencepost_lab.check.history.operations import NEVER, Operation, OperationResult
from fencepost_lab.check.report.verdict import Verdict, describe, in_order

__all__ = ["page"]

MOST_BARS = 400
MOST_ROWS = 24
NEIGHBOURS = 60
ROW, BAR, LEFT, WIDTH = 26, 16, 190, 1100

STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem; color: #1c2733; max-width: 1340px }
h2 { margin: 2.5rem 0 0 } p.detail { margin: .2rem 0 .8rem; font-size: 15px }
svg { background: #f7f9fb; border: 1px solid #d8e0e8; max-width: 100%; height: auto }
text { font: 11px system-ui, sans-serif; fill: #1c2733 } .row { stroke: #d8e0e8 }
rect { rx: 2; stroke: #fff; stroke-width: .5 } .ok { fill: #a9c9e8 } .fail { fill: #e5c3b0 } .unknown { fill: #d9d3ea }
.shown.ok { fill: #1b66b3 } .shown.fail { fill: #b3541b } .shown.unknown { fill: #6847b0 }
.number { fill: #fff; font-weight: 600; text-anchor: middle } ol { padding-left: 1.6rem }
li { font: 12px/1.6 ui-monospace, monospace; overflow-wrap: anywhere } .key { color: #5b6b7b }
"""

KEY = (
    "Rows are processes, bars operations in the order of events: blue done, brown failed, violet unknown; dark and "
    "numbered is what shows the anomaly. A bar that goes on to the right end was never answered."
)


def page(verdict: Verdict, title: str) -> str:
    """Return the page. `title` names the history."""
    counted = ", ".join(f"{count:,} {check}" for check, count in verdict.counts.items()) or "no anomalies"
    done, records = verdict.operations.total(), verdict.records_read
    read = f"{done:,} {noun_for(done, 'operation')}, {records:,} {noun_for(records, 'record')} read"
    parts = [
        "<!doctype html>",
        '<html lang="en"><meta charset="utf-8">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(title)}</h1>",
        f"<p>{read}: {escape(counted)}.</p>",
        f'<p class="key">{KEY}</p>',
    ]
    operations = verdict.history.operations
    starts = [operation.invoked for operation in operations]
    for number, anomaly in enumerate(verdict.listed, 1):
        parts.append(f"<h2>{number}. {escape(anomaly.check)}</h2>")
        parts.append(f'<p class="detail">{escape(anomaly.detail)}</p>')
        parts.append(_picture(anomaly, operations, starts))
        listed = "".join(f"<li>{escape(describe(operation))}</li>" for operation in in_order(anomaly.operations))
        parts.append(f"<ol>{listed}</ol>")
    return "\n".join(parts) + "\n"


def _picture(anomaly: Anomaly, operations: Sequence[Operation], starts: list[int]) -> str:
    shown = in_order(anomaly.operations)
    bars = _around(shown, operations, starts)
    rows = _rows(shown, bars)
    bars = [bar for bar in bars if bar.process in rows]
    events = sorted({moment for bar in bars for moment in (bar.invoked, bar.completed) if moment != NEVER})
    step = WIDTH / max(len(events) + 1, 2)
    height = ROW * len(rows) + 24
    drawn = [f'<svg viewBox="0 0 {LEFT + WIDTH + 20} {height}" width="{LEFT + WIDTH + 20}" role="img">']
    for row, process in enumerate(rows):
        y = ROW * row + ROW
        drawn.append(f'<line class="row" x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y}" y2="{y}"/>')
        drawn.append(f'<text x="{LEFT - 8}" y="{y - 8}" text-anchor="end">{escape(process[-28:])}</text>')
    numbers = {operation.invoked: number for number, operation in enumerate(shown, 1)}
    # The operations that show the anomaly are drawn last, on top.
    for bar in sorted(bars, key=lambda bar: bar.invoked in numbers):
        drawn.extend(_bar(bar, rows.index(bar.process), events, step, numbers.get(bar.invoked)))
    first, last = (min(bar.invoked_ms for bar in bars), max(bar.invoked_ms for bar in bars)) if bars else (0.0, 0.0)
    drawn.append(f'<text class="key" x="{LEFT}" y="{height - 6}">{first:.1f} ms</text>')
    drawn.append(f'<text class="key" x="{LEFT + WIDTH}" y="{height - 6}" text-anchor="end">{last:.1f} ms</text>')
    return "".join([*drawn, "</svg>"])


def _around(shown: list[Operation], operations: Sequence[Operation], starts: list[int]) -> list[Operation]:
    """Return the operations of the anomaly, and those that began next to each of them."""
    found = {operation.invoked: operation for operation in shown}
    each = max(4, min(NEIGHBOURS, MOST_BARS // max(len(shown), 1))) // 2
    for operation in shown:
        middle = bisect_left(starts, operation.invoked)
        for neighbour in operations[max(0, middle - each) : middle + each]:
            if len(found) < MOST_BARS:
                found.setdefault(neighbour.invoked, neighbour)
    return [found[moment] for moment in sorted(found)]


def _rows(shown: list[Operation], bars: list[Operation]) -> list[str]:
    """Return the processes of the anomaly, then the others in order of appearance."""
    names = dict.fromkeys(operation.process for operation in shown)
    for bar in bars:
        if len(names) < MOST_ROWS:
            names.setdefault(bar.process)
    return list(names)


def _bar(bar: Operation, row: int, events: list[int], step: float, number: int | None) -> Iterator[str]:
    x = LEFT + step * bisect_left(events, bar.invoked)
    end = LEFT + WIDTH if bar.completed == NEVER else LEFT + step * bisect_left(events, bar.completed)
    width = max(end - x, min(step * 0.8, 14))
    y = ROW * row + (ROW - BAR) / 2
    kind = "unknown" if bar.result is OperationResult.UNKNOWN else bar.result.value
    classes = f"shown {kind}" if number is not None else kind
    title = f"<title>{escape(describe(bar))}</title>"
    yield f'<rect class="{classes}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR}">{title}</rect>'
    if number is not None:
        yield f'<text class="number" x="{x + min(width, 14) / 2:.1f}" y="{y + 12:.1f}">{number}</text>'
