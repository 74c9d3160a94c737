"""A file with the outcomes of a run, so that an interrupted run can go on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tests.spark.differential.comparing import Cell, Seen

__all__ = ["append", "read"]


def append(path: Path, seen: Seen) -> None:
    """Add an outcome: a line of JSON."""
    line = {
        "cell": str(seen.cell),
        "differs": seen.aspects(),
        "built_in": seen.built_in,
        "ours": seen.ours,
        "moving": seen.moving,
    }
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read(path: Path, cells: Iterable[Cell]) -> list[Seen]:
    """Return the outcomes of these cells that the file has. It need not exist.

    A kill can leave a part of the last line, which is cut off, so that `append` begins a line.
    """
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    names = {str(cell): cell for cell in cells}
    lines = [json.loads(line) for line in whole.splitlines()]
    return [
        Seen(names[line["cell"]], line["built_in"], line["ours"], line["moving"])
        for line in lines
        if line["cell"] in names
    ]
