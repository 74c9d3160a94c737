"""Read small files whose paths come from settings, such as properties and secrets."""

from __future__ import annotations

import os
import select
import stat
from pathlib import Path
from typing import Final, Protocol

__all__ = ["MOST_BYTES", "bare_reason", "os_reason", "read_small", "read_whole"]

MOST_BYTES: Final = 4 * 1024 * 1024
PIPE_WAIT_MS: Final = 10_000


def read_small(file: Path, encoding: str = "utf-8") -> str:
    """Return the text of a file.

    Raises:
        OSError: The file cannot be read, or is a pipe to which nobody writes.
        ValueError: The file has more than MOST_BYTES bytes, or is not valid in this encoding.
    """
    with open(file, "rb", opener=_open_at_once) as opened:
        return read_whole(opened).decode(encoding)


def os_reason(error: Exception) -> str:
    """Return the reason of an error in words, with the file that an OSError names."""
    reason = bare_reason(error)
    if not isinstance(error, OSError) or error.strerror is None or error.filename is None:
        return reason
    return f"{os.fsdecode(error.filename)}: {reason}"


def bare_reason(error: Exception) -> str:
    """Return the reason of an error in words, for a message that names the file of an OSError itself."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file. To open a named pipe, and to read it, would wait for its writer for ever."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            waiting = select.poll()
            waiting.register(descriptor, select.POLLIN)
            if not waiting.poll(PIPE_WAIT_MS):
                raise TimeoutError(f"a pipe to which nobody wrote within {PIPE_WAIT_MS / 1000:.0f} s")
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


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
