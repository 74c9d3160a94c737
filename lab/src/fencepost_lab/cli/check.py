"""`fencepost check`: check a history of client operations for anomalies."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from fencepost.cli.garbage import without_collections
from fencepost.cli.names import file_to_write, need_other_file
from fencepost.cli.output import Json, failures_reported, print_json
from fencepost.cli.progress import step
from fencepost.counted import noun_for
from fencepost.small_files import bare_reason, written_whole
from fencepost_lab.check.history.file import decoded, operations_of
from fencepost_lab.check.history.model import History, InvalidHistory
from fencepost_lab.check.report.timeline import page
from fencepost_lab.check.report.verdict import Verdict, describe, in_order, judge, text_of

__all__ = ["check", "report"]

_COUNTED: Final = 10_000  # the progress shows multiples of it


def check(
    history: Annotated[str, typer.Argument(metavar="HISTORY", help="File of JSON lines (docs/check.md); - for stdin.")],
    html: Annotated[
        Path | None, typer.Option(callback=file_to_write, help="Write a page with a timeline of each anomaly.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many anomalies of each kind.")] = 5,
    as_json: Json = False,
) -> None:
    """Check a history: every operation of every client, with its result.

    Status: 0 no anomaly; 1 anomalies, or the history has no reads; 2 invalid arguments, or the history cannot be read.

    Example: fencepost check history.jsonl --html history.html
    """
    need_other_file(html, "--html", None if history == "-" else Path(history), "HISTORY")
    try:
        operations = _load(history)
        step("looking for anomalies")
        verdict = judge(operations, limit)
    except (InvalidHistory, OSError) as error:
        sys.stderr.write(f"fencepost: {history}: {bare_reason(error)}\n")
        raise typer.Exit(2) from error
    report(verdict, html, Path(history).name, as_json=as_json)
    raise typer.Exit(0 if verdict.clean else 1)


def report(verdict: Verdict, html: Path | None, title: str, *, as_json: bool) -> None:
    """Print the verdict, and write it as HTML if `html` is given. Exits with status 2 if that cannot be written."""
    if as_json:
        print_json(_as_json(verdict))
    else:
        sys.stdout.write(text_of(verdict) + "\n")
    if html is not None:
        sys.stdout.flush()
        with failures_reported(status=2), written_whole(html) as file:
            file.write(page(verdict, title).encode())


def _load(name: str) -> History:
    with without_collections():
        if name == "-":
            return History(operations_of(_counted(decoded(sys.stdin.buffer))))
        with open(name, "rb") as file:
            return History(operations_of(_counted(decoded(file))))


def _counted(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, and show how many were read."""
    for number, line in enumerate(lines, 1):
        if not number % _COUNTED:
            step(f"{number:,} {noun_for(number, 'line')} read")
        yield line


def _as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "clean": verdict.clean,
        "operations": verdict.operations,
        "records_read": verdict.records_read,
        "counts": verdict.counts,
        "anomalies": [
            {
                "check": anomaly.check,
                "detail": anomaly.detail,
                "operations": [
                    {
                        "line": operation.invoked,
                        "process": operation.process,
                        "f": operation.F,
                        "text": describe(operation),
                    }
                    for operation in in_order(anomaly.operations)
                ],
            }
            for anomaly in verdict.listed
        ],
    }
