"""Files of a few lines that somebody names, as of settings and secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

__all__ = ["MOST_BYTES", "read_small", "read_whole"]

MOST_BYTES: Final = 4 * 1024 * 1024


def read_small(file: Path, encoding: str = "utf-8") -> str:
    """All of it. Raises as `read_whole`, and UnicodeDecodeError."""
    with open(file, "rb") as opened:
        return read_whole(opened).decode(encoding)


class _Readable(Protocol):
    def read(self, most: int, /) -> bytes: ...


def read_whole(opened: _Readable) -> bytes:
    """All of it. Raises OSError; ValueError when there is more than MOST_BYTES: a device may never end."""
    data = opened.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    return data
