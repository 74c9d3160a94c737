"""Positions in a topic, as command options give them."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

import typer

from fencepost.arguments import brief_repr, whole_number
from fencepost.client.net.list_offsets import EARLIEST, LATEST

__all__ = ["POSITIONS", "Offset", "Point", "Position", "position_of"]

POSITIONS: Final = "beginning, end, an offset, or a time such as 2026-01-31T12:00:00Z (local time without a zone)"


class Offset(NamedTuple):
    """The same offset in each partition. A negative one counts back from the end."""

    at: int


class Point(NamedTuple):
    """A timestamp for ListOffsets: milliseconds since 1970, EARLIEST or LATEST."""

    timestamp: int


Position = Offset | Point


def position_of(text: str, option: str) -> Position:
    """Parse a position. Raises BadParameter."""
    match text:
        case "beginning" | "earliest":
            return Point(EARLIEST)
        case "end" | "latest":
            return Point(LATEST)
    if (offset := whole_number(text)) is not None:
        return Offset(offset)
    try:
        timestamp = round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise typer.BadParameter(f"{brief_repr(text)} is none of {POSITIONS}", param_hint=option) from error
    if timestamp < 0:  # Kafka reads -1 as the end, -2 as the beginning
        raise typer.BadParameter(f"{brief_repr(text)} is a time before 1970", param_hint=option)
    return Point(timestamp)
