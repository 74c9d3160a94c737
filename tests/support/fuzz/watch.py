"""Watch for defects in this process: unexpected errors in the log, and memory beyond a bound."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from tests.support.memory import give_back, resident

__all__ = ["Watch"]


class Watch(logging.Handler):
    """Collects defects while the context lasts, and raises AssertionError for them at the end of it.

    A defect: an exception in the log; any ERROR, and any WARNING of a client's, but `clients_may_complain`, being lied
    to; `look` finding more than `most_bytes` of memory taken since the start.
    """

    def __init__(self, most_bytes: int, *, clients_may_complain: bool = False) -> None:
        super().__init__(logging.WARNING)
        self._clients_may_complain = clients_may_complain
        self._most_bytes = most_bytes
        self._before = 0
        self._loggers = [logging.getLogger(name) for name in ("fencepost", "asyncio")]
        self.taken_bytes = 0
        self.defects: list[str] = []

    def __enter__(self) -> Self:
        self._before = resident()
        for logger in self._loggers:
            logger.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for logger in self._loggers:
            logger.removeHandler(self)
        if error is None:
            self.look()
        if error is None and self.defects:
            raise AssertionError(f"{len(self.defects)} defects, the first:\n" + "\n".join(self.defects[:5]))

    def emit(self, record: logging.LogRecord) -> None:
        of_a_client = record.name.startswith("fencepost.client")
        complains = not self._clients_may_complain if of_a_client else record.levelno >= logging.ERROR
        if record.exc_info or complains:
            self.defects.append(self.format(record))

    def look(self) -> None:
        """Compare the memory that is held with the bound. Raises AssertionError."""
        taken = resident() - self._before
        if taken > self._most_bytes:
            give_back()
            taken = resident() - self._before
        self.taken_bytes = max(self.taken_bytes, taken)
        if taken > self._most_bytes:
            raise AssertionError(f"{taken >> 20} MiB of memory were taken, {self._most_bytes >> 20} are allowed")
