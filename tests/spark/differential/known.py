"""The differences that docs/differences-from-spark.md names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from tests.spark.differential.comparing import Cell, Seen

__all__ = ["PAGE", "Known", "judge", "known", "report"]

PAGE: Final = Path(__file__).parents[3] / "docs" / "differences-from-spark.md"
_CODE: Final = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Known:
    """A row of the page: the cells it is about, by patterns, and what they show with either connector."""

    line: int
    states: tuple[str, ...]
    ways: tuple[str, ...]
    options: tuple[str, ...]
    built_in: str
    ours: str
    aspects: frozenset[str]

    def covers(self, cell: Cell) -> bool:
        """Return True for a cell that it is about."""
        pairs = ((cell.state, self.states), (cell.way, self.ways), (cell.options, self.options))
        return all(any(fnmatchcase(name, pattern) for pattern in patterns) for name, patterns in pairs)

    def says(self, seen: Seen) -> bool:
        """Return True if it describes the outcomes. Of two equal ones it says in which respects they differ."""
        if not all(
            fnmatchcase(kind, reported) for kind, reported in zip(seen.kinds, (self.built_in, self.ours), strict=True)
        ):
            return False
        return seen.kinds[0] != seen.kinds[1] or frozenset(seen.aspects()) == self.aspects


def known(page: Path = PAGE) -> list[Known]:
    """The rows of the page's tables."""
    return list(_rows(page.read_text()))


def _rows(text: str) -> Iterator[Known]:
    for number, line in enumerate(text.splitlines(), 1):
        columns = line.split("|")[1:]
        if not line.startswith("| `"):
            continue
        states, ways, options, built_in, ours, aspects = (tuple(_CODE.findall(column)) for column in columns[:6])
        yield Known(number, states, ways, options, built_in[0], ours[0], frozenset(aspects))


def judge(found: Iterable[Seen], rows: list[Known]) -> tuple[list[Seen], list[str]]:
    """The differences that no row describes, and the rows that no cell shows any more.

    A row is judged by those of its cells that were run, if there are any.
    """
    unknown: list[Seen] = []
    shown: dict[Known, bool] = {}
    for seen in found:
        covering = [row for row in rows if row.covers(seen.cell)]
        saying = [row for row in covering if seen.aspects() and row.says(seen)]
        if seen.aspects() and not saying:
            unknown.append(seen)
        shown.update({row: shown.get(row, False) or row in saying for row in covering})
    return unknown, [
        f"{PAGE.name}, line {row.line}: no cell shows it" for row, is_shown in shown.items() if not is_shown
    ]


def report(unknown: Sequence[Seen], wrong: Sequence[str]) -> str:
    """All that `judge` has found, for a person: the cells, and all in which they differ. Empty if it found nothing."""
    lines = list(wrong)
    for seen in unknown:
        lines.append(f"unknown: {seen.cell}: {', '.join(seen.aspects())}")
        for whose, kind, outcome in zip(("Spark's own", "here"), seen.kinds, (seen.built_in, seen.ours), strict=True):
            lines.append(f"  {whose}: {kind}")
            differing = [name for name in outcome if name == "errors" or seen.built_in[name] != seen.ours[name]]
            lines += [f"    {name}: {text}" for name in differing for text in _several(outcome[name])]
    return "\n".join(lines)


def _several(reported: str | list[object]) -> list[object]:
    return [reported] if isinstance(reported, str) else reported
