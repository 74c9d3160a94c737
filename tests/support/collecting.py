"""Workers of a parallel run collect the same tests, and what one of them has compiled the others need not compile."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def first_ahead(meeting_file: Path) -> Iterator[None]:
    """Of processes that come here together one goes ahead, and the others follow it when it is through, all at once.

    On a clean checkout the first to collect compiles the tests, the product and the libraries, which is four times the
    work of all else that it does. Side by side each worker would do so.
    """
    with meeting_file.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_SH)
        yield
