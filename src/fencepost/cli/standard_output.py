"""Guard standard output and standard error.

If output cannot be written, the command fails with a message. If messages on standard error cannot be written, the
command's status does not change.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fencepost.cli.progress import make_way

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["OutputLost", "output_guarded"]


class OutputLost(Exception):
    """Standard output could not be written. Not an OSError, which commands handle as an error of their own files."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(reason.strerror)
        self.is_unread = reason.errno == errno.EPIPE


class _StandardOutput(io.RawIOBase):
    """Descriptor 1. The first failed write raises OutputLost; later output is dropped."""

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
        """Write to descriptor 1. Raises OutputLost."""
        if self._is_lost:
            return memoryview(data).nbytes
        make_way(1)
        try:
            if self._is_closed:
                raise OSError(errno.EBADF, "standard output is closed")
            return os.write(1, data)
        except OSError as error:
            self._is_lost = True
            raise OutputLost(error) from error


class _StandardError(io.RawIOBase):
    """Descriptor 2. Output that cannot be written is dropped.

    A command that has done its work must not fail because of a message, as a caller would then repeat the work.
    """

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def isatty(self) -> bool:
        return os.isatty(2)

    def write(self, data: ReadableBuffer, /) -> int:
        make_way(2)
        try:
            return os.write(2, data)
        except OSError:
            return memoryview(data).nbytes


@contextmanager
def output_guarded() -> Iterator[None]:
    """Flush standard output at the end of the block; end the program if it cannot be written.

    If the reader has closed the pipe, like `head`, the status is that of SIGPIPE. Otherwise a message is printed and
    the status is 74 (EX_IOERR).
    """
    if sys.stderr is sys.__stderr__:
        encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
        error = io.BufferedWriter(_StandardError())
        sys.stderr = io.TextIOWrapper(error, encoding, "backslashreplace", line_buffering=True)
    given = sys.stdout
    if given is not sys.__stdout__:  # the caller has replaced sys.stdout
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
        sys.stderr.write(f"fencepost: the output was not printed completely: {lost}\n")
        raise SystemExit(os.EX_IOERR) from lost
