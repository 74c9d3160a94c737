"""The one background thread of a process that runs the event loop of all blocking clients.

It is a daemon, started with the first client. A forked child does not have it: a client made before the fork raises
ForkedError there, a new one starts the child's own thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from fencepost.errors import ForkedError, UsageError

T = TypeVar("T")

_lock = threading.Lock()
_current: IoThread | None = None


class Forkable(Protocol):
    """A client that wants to know that it woke up in a forked child."""

    def forked(self) -> None: ...


_clients: weakref.WeakSet[Forkable] = weakref.WeakSet()


def tell_when_forked(client: Forkable) -> None:
    """Call `client.forked()` in every child that is forked while the client lives."""
    _clients.add(client)


def _forget_after_fork() -> None:
    global _lock, _current  # noqa: PLW0603 (the parent's lock may be held by a thread that does not exist here)
    _lock = threading.Lock()
    _current = None
    for client in list(_clients):
        client.forked()


os.register_at_fork(after_in_child=_forget_after_fork)


def io_thread() -> IoThread:
    """This process's thread, started if need be."""
    global _current  # noqa: PLW0603 (one per process is the point)
    with _lock:
        if _current is None:
            _current = IoThread()
        return _current


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class IoThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._serve, name="fencepost-io", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def check_process(self) -> None:
        """Raise ForkedError in a forked child."""
        if os.getpid() != self.pid:
            raise ForkedError("this client was made before fork(); make a new one in this process")

    def is_current(self) -> bool:
        """Whether the caller runs in the I/O thread itself (a callback), where blocking would deadlock."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to its end in the loop. A KeyboardInterrupt cancels it there and is raised here."""
        if os.getpid() != self.pid or self.is_current():
            coroutine.close()
            self.check_process()
            raise UsageError("a blocking call from a delivery callback would wait for itself")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
            raise

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run a plain function in the loop, without waiting."""
        self.loop.call_soon_threadsafe(callback)
