"""Files of a few lines that somebody names, as of settings and secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["MOST_BYTES", "read_small", "read_small_bytes"]

MOST_BYTES: Final = 4 * 1024 * 1024


def read_small(file: Path, encoding: str = "utf-8") -> str:
    """All of it. Raises as `read_small_bytes`, and UnicodeDecodeError."""
    return read_small_bytes(file).decode(encoding)


def read_small_bytes(file: Path) -> bytes:
    """All of it. Raises OSError; ValueError when there is more than MOST_BYTES: a device may never end."""
    with open(file, "rb") as opened:
        data = opened.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    return data
