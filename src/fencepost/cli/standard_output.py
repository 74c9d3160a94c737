"""What a command prints was written, or the command ends and says so; what it says besides never changes its status."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["OutputLost", "output_guarded"]


class OutputLost(Exception):
    """Standard output could not be written. No OSError, which commands take for that of what they work on."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(reason.strerror)
        self.is_unread = reason.errno == errno.EPIPE


class _StandardOutput(io.RawIOBase):
    """Descriptor 1. What cannot be written raises OutputLost, once; from then on what comes is dropped."""

    def __init__(self, *, is_closed: bool) -> None:
        self._is_closed = is_closed
        self._is_lost = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def isatty(self) -> bool:
        return os.isatty(1)

    def write(self, data: ReadableBuffer, /) -> int:
        """Raises OutputLost."""
        if self._is_lost:
            return memoryview(data).nbytes
        try:
            if self._is_closed:
                raise OSError(errno.EBADF, "standard output is closed")
            return os.write(1, data)
        except OSError as error:
            self._is_lost = True
            raise OutputLost(error) from error


class _StandardError(io.RawIOBase):
    """Descriptor 2. What cannot be written is dropped: what a command has done is done, and who would do it again
    because of its status would do it twice."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def isatty(self) -> bool:
        return os.isatty(2)

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return os.write(2, data)
        except OSError:
            return memoryview(data).nbytes


@contextmanager
def output_guarded() -> Iterator[None]:
    """What the block prints is written when it ends. Where that cannot be, the program ends: as if by SIGPIPE where
    nobody reads any more, as `head` does not, else with words and status 74 (EX_IOERR).

    Standard error is written as far as that can be.
    """
    if sys.stderr is sys.__stderr__:
        encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
        error = io.BufferedWriter(_StandardError())
        sys.stderr = io.TextIOWrapper(error, encoding, "backslashreplace", line_buffering=True)
    given = sys.stdout
    if given is not sys.__stdout__:  # somebody put his own there
        yield
        return
    raw = _StandardOutput(is_closed=given is None)
    encoding, errors = ("utf-8", "strict") if given is None else (given.encoding, given.errors)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=raw.isatty())
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputLost as lost:
        if lost.is_unread:
            raise SystemExit(128 + signal.SIGPIPE) from lost
        sys.stderr.write(f"fencepost: what was to be printed is lost: {lost}\n")
        raise SystemExit(os.EX_IOERR) from lost
