"""Results of measurements as JSON and as tables in Markdown, with the machine and its load by other processes.

A page has two marks for each table. A new measurement replaces the text between them.
"""

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
from typing import Any

import psutil

from fencepost_lab.benchmark.contest import BUSY, Row, figure

__all__ = ["busy_line", "command_of", "machine", "provenance", "put", "row_values", "table", "write_json"]


def machine() -> dict[str, str]:
    """Return the machine and the versions of a measurement."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    packages = ("numpy", "pyarrow", "fencepost-native", "uvloop", "confluent-kafka")
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
    """Return the command line without the options for the place of the results."""
    left: list[str] = []
    index = 0
    while index < len(arguments):
        if arguments[index] in without:
            index += 2
        else:
            left.append(arguments[index])
            index += 1
    return " ".join(("make bench", *([f'ARGS="{" ".join(left)}"'] if left else ())))


def write_json(file: Path, command: str, where: dict[str, str], rows: Sequence[dict[str, Any]]) -> None:
    """All figures of all rounds."""
    file.write_text(json.dumps({"command": command, "machine": where, "rows": rows}, indent=1) + "\n")


def row_values(row: Row) -> dict[str, Any]:
    """For JSON."""
    return {**asdict(row), "ratio": row.ratio, "spread": row.spread}


def put(file: Path, name: str, lines: Sequence[str]) -> None:
    """The lines between the marks of that name, which are added at the end of a file that has them not.

    Raises ValueError for a first mark without a second."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = file.read_text() if file.exists() else ""
    if begin not in text:
        text += f"{begin}\n{end}\n"
    head, _, rest = text.partition(begin)
    _, mark, tail = rest.partition(end)
    if not mark:
        raise ValueError(f"{file} has no place for what is measured: {begin} and {end}")
    file.write_text("\n".join((f"{head}{begin}", *lines, f"{end}{tail}")))


def provenance(command: str, where: dict[str, str]) -> str:
    """Return the line with the command and the machine."""
    return f"`{command}`, {', '.join(f'{name} {what}' for name, what in where.items())}."


def busy_line(busiest: float) -> str:
    """Return the line about the load by other processes, and whether the figures can be trusted."""
    believed = ": believe the ratios, not the figures." if busiest > BUSY else "."
    return f"Others took up to {busiest:.0%} of the machine while it ran{believed}"


def table(rows: Sequence[Row]) -> list[str]:
    """The comparisons, in Markdown."""
    heads = ["work", "unit", "ours", "peer", "of the peer's", "in each round", "processor time, ours", "the peer's"]
    heads += ["mark", "raw limit"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        peer = f"{row.peer} {figure(statistics.median(row.peers))}" if row.peers else ""
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
        spread = "" if row.spread is None else "{:.2f} to {:.2f}".format(*row.spread)
        raw = "" if row.raw is None else figure(row.raw)
        used = [f"{figure(statistics.median(each))} us" if each else "" for each in (row.ours_us, row.peers_us)]
        cells = (row.name, row.unit, figure(statistics.median(row.ours)), peer, ratio, spread, *used, row.mark, raw)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
