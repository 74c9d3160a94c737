"""What was measured: a row for each comparison, as JSON and as a table in Markdown, with what the machine was and how
busy others kept it meanwhile."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

__all__ = ["BUSY", "Row", "command_of", "machine", "others_share", "write_json", "write_markdown"]

BUSY = 0.25
"""Where others take more of the machine than this, absolute figures say little."""

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass
class Row:
    """One comparison: a figure for each round, ours and the peer's in turn.

    `mark`: the ratio that is aimed at, as text. `raw`: the same bytes through sockets and files without a protocol.
    `busy`: the largest share of the machine that others were seen to take, before and after.
    """

    name: str
    unit: str
    ours: list[float]
    peer: str
    peers: list[float]
    mark: str = ""
    raw: float | None = None
    busy: float = 0.0

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return statistics.median(self.ours) / statistics.median(self.peers)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest ratio of a round."""
        ratios = [own / other for own, other in zip(self.ours, self.peers, strict=True)]
        return min(ratios), max(ratios)


def others_share(seconds: float = 0.5) -> float:
    """How much of all processors is busy while nothing is measured, 0 to 1."""
    before = psutil.cpu_times()
    time.sleep(seconds)
    after = psutil.cpu_times()
    idle = after.idle - before.idle + after.iowait - before.iowait
    passed = sum(after) - sum(before)
    return max(0.0, 1 - idle / passed) if passed else 0.0


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
