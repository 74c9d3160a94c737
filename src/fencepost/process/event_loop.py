"""The event loops of threads that belong to this package."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from typing import Final, cast

__all__ = ["new_event_loop"]

DESCRIPTORS: Final = 12
"""Descriptors that must be free. A loop opens nine before its first connection."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop if it is installed, else asyncio's.

    Raises:
        OSError: Too few descriptors are left in this process, or in the system.
    """
    _check_descriptors()
    if _threads_are_patched():  # uvloop waits in C code, where the hub cannot switch to another greenlet
        return asyncio.new_event_loop()
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return cast("asyncio.AbstractEventLoop", uvloop.new_event_loop())


def _check_descriptors() -> None:
    """Raise OSError if too few descriptors are left. Without them libuv ends the process with SIGABRT."""
    opened: list[int] = []
    try:
        for _ in range(DESCRIPTORS // 2):
            opened += os.pipe()
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        words = f"{os.strerror(error.errno)}: an event loop needs {DESCRIPTORS} free descriptors (ulimit -n)"
        raise OSError(error.errno, words) from None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _threads_are_patched() -> bool:
    """Return true if gevent or eventlet has replaced `threading`. Its threads run only while its hub does."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    return bool(
        (gevent is not None and gevent.is_module_patched("threading"))
        or (eventlet is not None and eventlet.is_monkey_patched("thread"))
    )
