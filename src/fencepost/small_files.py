"""Read small files whose paths come from settings, such as properties and secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

__all__ = ["MOST_BYTES", "read_small", "read_whole"]

MOST_BYTES: Final = 4 * 1024 * 1024


def read_small(file: Path, encoding: str = "utf-8") -> str:
    """Return the text of a file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file has more than MOST_BYTES bytes, or is not valid in this encoding.
    """
    with open(file, "rb") as opened:
        return read_whole(opened).decode(encoding)


class _Readable(Protocol):
    def read(self, most: int, /) -> bytes: ...


def read_whole(opened: _Readable) -> bytes:
    """Return all bytes of a file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file has more than MOST_BYTES bytes. A device file may never end.
    """
    data = opened.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    return data
