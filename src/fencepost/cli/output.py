"""How commands print, ask and fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer

from fencepost.errors import KafkaError

__all__ = ["Json", "Yes", "failures_told", "print_json", "print_table", "refuse"]

Json = Annotated[bool, typer.Option("--json", help="As JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@contextmanager
def failures_told() -> Iterator[None]:
    """An error is a line and status 1."""
    try:
        yield
    except (KafkaError, OSError) as error:
        refuse(str(error))


def refuse(words: str) -> NoReturn:
    """Say why not, and exit with status 1."""
    sys.stderr.write(f"fencepost: {words}\n")
    raise typer.Exit(1)


def print_table(rows: Iterable[Sequence[str]]) -> None:
    """In columns, the first row being their names."""
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


def print_json(found: Any) -> None:
    """For programs."""
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
