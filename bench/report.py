"""What was measured: a row for each comparison, as JSON and as a table in Markdown, with what the machine was and how
busy others kept it meanwhile."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import psutil

from fencepost.benchmark.contest import BUSY, Row

__all__ = ["command_of", "machine", "write_json", "write_markdown"]

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def machine() -> dict[str, str]:
    """Where it was measured, and with what."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    packages = ("numpy", "pyarrow", "numba", "uvloop", "confluent-kafka")
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": f"{os.cpu_count()} x {model}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "kafka": "4.3.1",
    }


def command_of(arguments: Sequence[str], without: Sequence[str]) -> str:
    """What was run, as one writes it; options that only say where the results go are left out, with their values."""
    left: list[str] = []
    place = 0
    while place < len(arguments):
        if arguments[place] in without:
            place += 2
        else:
            left.append(arguments[place])
            place += 1
    return " ".join(("make bench", *([f'ARGS="{" ".join(left)}"'] if left else ())))


def write_json(file: Path, command: str, where: dict[str, str], rows: Sequence[Row]) -> None:
    """All figures of all rounds."""
    told = [{**asdict(row), "ratio": row.ratio, "spread": row.spread} for row in rows]
    file.write_text(json.dumps({"command": command, "machine": where, "rows": told}, indent=1) + "\n")


def write_markdown(file: Path, command: str, where: dict[str, str], rows: Sequence[Row]) -> None:
    """Put the table between the two marks in the file; it is made, with them, when it does not exist."""
    text = file.read_text() if file.exists() else f"{BEGIN}\n{END}\n"
    head, _, rest = text.partition(BEGIN)
    _, mark, tail = rest.partition(END)
    if not mark:
        raise ValueError(f"{file} has no place for the table: {BEGIN} and {END}")
    file.write_text("\n".join((f"{head}{BEGIN}", *_table(command, where, rows), f"{END}{tail}")))


def _table(command: str, where: dict[str, str], rows: Sequence[Row]) -> list[str]:
    busiest = max((row.busy for row in rows), default=0.0)
    believed = ": believe the ratios, not the figures." if busiest > BUSY else "."
    lines = [
        f"`{command}`, {', '.join(f'{name} {what}' for name, what in where.items())}.",
        "",
        f"Others took up to {busiest:.0%} of the machine while it ran{believed}",
        "",
        "| work | unit | ours | peer | of the peer's | in each round | mark | raw limit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row.spread
        own, other = _figure(statistics.median(row.ours)), _figure(statistics.median(row.peers))
        raw = "" if row.raw is None else _figure(row.raw)
        spread = f"{low:.2f} to {high:.2f}"
        cells = (row.name, row.unit, own, f"{row.peer} {other}", f"{row.ratio:.2f}x", spread, row.mark, raw)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
