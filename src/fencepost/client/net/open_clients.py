"""Closes clients that the application has left open."""

from __future__ import annotations

import logging
import warnings
from typing import Any, Protocol

from fencepost.arguments import Milliseconds
from fencepost.client.net.turn import Polls, Soon, Turn, at_once

log = logging.getLogger("fencepost.client")


LEAVING_MS = 30_000  # for a client that was collected while it was open
# For close() of consumers: short, so that a supervisor does not kill a process that waits for lost brokers.
CLOSE_MS = 10_000


class Leaving(Protocol):
    """A client core that can close without its application."""

    cluster: Any

    async def leave(self, timeout_ms: int) -> None:
        """Close without the application: deliver records, leave groups, call none of its listeners."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return counters and gauges. Any thread may call it, also after close."""
        ...

    def close_warning(self) -> str:
        """Return a text about work that would be lost silently if the client ended now; "" if there is none."""
        ...


class PollingCore(Leaving, Protocol):
    """A client core with a poll method."""

    turn: Turn
    poll_ends: Polls

    def wakeup(self, soon: Soon = at_once) -> None:
        """Make the current or the next poll raise WakeupError."""
        ...

    async def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None:
        """Release all resources."""
        ...


def warn_unclosed(client: object) -> None:
    """Warn of a client that was collected while it was open."""
    name = type(client).__name__
    warnings.warn(f"{name} was never closed; use `with`, or close()", ResourceWarning, stacklevel=3, source=client)


def report_close_failure(error: BaseException, failure: Exception) -> None:
    """Log an error of close(), and add it as a note to the error that ended a `with` block."""
    log.error("closing a client after %s: %s: %s", type(error).__name__, type(failure).__name__, failure)
    error.add_note(f"close() failed, too: {type(failure).__name__}: {failure}")


async def leave_quietly(core: Leaving, timeout_ms: int) -> None:
    """Close a core without the application. Log errors, because no caller exists that could handle them."""
    try:
        await core.leave(timeout_ms)
    except Exception as error:  # noqa: BLE001 (no caller exists that could handle it)
        log.error("a client that was not closed: %s: %s", type(error).__name__, error)


def log_lost_work(core: Leaving) -> None:
    """Log the work that is lost with a core whose event loop is gone."""
    close_warning = core.close_warning()
    if close_warning:
        log.error("a client was not closed while its event loop ran: %s", close_warning)
