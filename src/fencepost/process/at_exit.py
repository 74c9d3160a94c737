"""Close clients, then brokers, that a program leaves open when it ends."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable
from enum import IntEnum

log = logging.getLogger("fencepost")

PATIENCE_MS = 5_000  # for all clients together
PATIENCE_AFTER_CTRL_C_MS = 500


class CloseOrder(IntEnum):
    """Order of closing: clients first, because they need their brokers."""

    CLIENTS = 1
    BROKERS = 2


_finalized_pid = -1
_hooks: dict[Callable[[], object], tuple[CloseOrder, int]] = {}


def at_exit(turn: CloseOrder, hook: Callable[[], object]) -> None:
    """Call `hook` when this process, not a fork of it, ends normally."""
    _hooks[hook] = (turn, os.getpid())
    _finish_with_multiprocessing()


def _finish_with_multiprocessing() -> None:
    """Register a finalizer in children that multiprocessing forked: they end by os._exit, which skips atexit."""
    global _finalized_pid  # noqa: PLW0603 (once per process)
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or _finalized_pid == os.getpid():
        return
    from multiprocessing.util import Finalize

    _finalized_pid = os.getpid()
    Finalize(None, _run, exitpriority=0)


def patience_ms() -> int:
    """Return the time in ms that clients have to close at the end of the program; shorter after Ctrl-C."""
    return PATIENCE_AFTER_CTRL_C_MS if getattr(sys, "last_type", None) is KeyboardInterrupt else PATIENCE_MS


def _run() -> None:
    for hook, (turn, pid) in sorted(_hooks.items(), key=lambda hook: hook[1]):
        if pid != os.getpid():
            continue
        try:
            hook()
        except Exception:
            log.exception("closing the %s at the end of the program failed", turn.name.lower())


atexit.register(_run)
