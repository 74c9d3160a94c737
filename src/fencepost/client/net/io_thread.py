"""The one background thread of a process that runs the event loop of all blocking clients.

It is a daemon, started with the first client. A forked child does not have it: a client made before the fork raises
ForkedError there, a new client starts the child's own thread. At the end of the program clients that are still open
get a few seconds to deliver what was sent and to leave their groups (`fencepost.at_exit`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from fencepost.at_exit import Turn, at_exit, patience_ms
from fencepost.client.net.open_clients import Leaving, leave_quietly, tell_lost
from fencepost.errors import ForkedError, UsageError
from fencepost.protocol.records.engine import is_compiled

log = logging.getLogger("fencepost.client")

T = TypeVar("T")

GRACE_S = 2.0  # for what follows when time is up

_lock = threading.Lock()
_current: IoThread | None = None


class Forkable(Protocol):
    """A client that wants to know that it woke up in a forked child."""

    def _forked(self) -> None: ...


_clients: weakref.WeakSet[Forkable] = weakref.WeakSet()


def tell_when_forked(client: Forkable) -> None:
    """Call `client._forked()` in every child that is forked while the client lives."""
    _clients.add(client)


def _forget_after_fork() -> None:
    global _lock, _current  # noqa: PLW0603 (the parent's lock may be held by a thread that does not exist here)
    _lock = threading.Lock()
    _current = None
    for client in list(_clients):
        client._forked()


os.register_at_fork(after_in_child=_forget_after_fork)


def io_thread() -> IoThread:
    """This process's thread, started if need be."""
    global _current  # noqa: PLW0603 (one per process is the point)
    with _lock:
        if _current is None:
            _current = IoThread()
            at_exit(Turn.CLIENTS, _end)
        return _current


def is_shared(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the event loop of all blocking clients of the process."""
    return _current is not None and _current.loop is loop


def _end() -> None:
    if _current is not None:
        _current.end(patience_ms())


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
        self._open: dict[int, Leaving] = {}
        self._leaving: set[concurrent.futures.Future[None]] = set()
        self._thread = threading.Thread(target=self._serve, name="fencepost-io", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        is_compiled.never_wait_in(threading.get_ident())
        asyncio.set_event_loop(self.loop)
        ended = False
        while not ended:
            try:
                self.loop.run_forever()
                ended = True
            except BaseException:  # SystemExit and the like, out of an application's function
                log.exception("a function of the application tried to end the thread of all clients, which goes on")

    def is_this_process(self) -> bool:
        """False in a forked child."""
        return os.getpid() == self.pid

    def check_process(self) -> None:
        """Raise ForkedError in a forked child."""
        if not self.is_this_process():
            raise ForkedError("this client was made before fork(); make a new client in this process")

    def is_current(self) -> bool:
        """Whether the caller runs in the I/O thread itself (a callback), where blocking would deadlock."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to its end in the loop. A KeyboardInterrupt cancels it there and is raised here."""
        self._refuse_here(coroutine)
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
            raise

    def run_through(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """As `run`; but what is interrupted cleans up before the KeyboardInterrupt is raised here."""
        self._refuse_here(coroutine)
        tasks: list[asyncio.Task[T]] = []
        ended = threading.Event()

        def start() -> None:
            task = self.loop.create_task(coroutine)
            task.add_done_callback(lambda _: ended.set())
            tasks.append(task)

        self.loop.call_soon_threadsafe(start)
        try:
            ended.wait()
        except BaseException:
            self.loop.call_soon_threadsafe(
                lambda: [task.cancel() for task in tasks]
            )  # started by then: calls keep their order
            ended.wait()
            if not tasks[0].cancelled():
                log.debug("after an interruption: %r", tasks[0].exception())
            raise
        return tasks[0].result()

    @contextlib.contextmanager
    def entered(
        self, block: AbstractAsyncContextManager[object, bool | None], *, begun: bool = False
    ) -> Iterator[None]:
        """An asynchronous context manager of the loop, for a block in the calling thread; `begun`: entered already."""
        if not begun:
            self.run_through(block.__aenter__())
        try:
            yield
        except BaseException as error:
            # A forked child that leaves the block has nothing to put right: the block is its parent's.
            if not self.is_this_process() or not self.run_through(
                block.__aexit__(type(error), error, error.__traceback__)
            ):
                raise
        else:
            self.run_through(block.__aexit__(None, None, None))

    def _refuse_here(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        if os.getpid() != self.pid or self.is_current():
            coroutine.close()
            self.check_process()
            self.refuse_to_wait()

    def refuse_to_wait(self) -> None:
        """Raise UsageError in the I/O thread, where a wait would never end."""
        if self.is_current():
            raise UsageError("a blocking call of a client from its I/O thread would wait for itself")

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run a plain function in the loop, without waiting."""
        self.loop.call_soon_threadsafe(callback)

    # --- clients that nobody closes ---

    def keep(self, core: Leaving) -> None:
        """A client is open: it is left to itself when it is collected, and at the end of the program."""
        self._open[id(core)] = core

    def forget(self, core: Leaving) -> None:
        """A client was closed."""
        self._open.pop(id(core), None)

    def leave(self, core: Leaving, timeout_ms: int) -> None:
        """Close a client's core in the background, unless that was done; from any thread."""
        if id(core) not in self._open:
            return

        async def run() -> None:
            try:
                await leave_quietly(core, timeout_ms)
            finally:
                self.forget(core)

        future = asyncio.run_coroutine_threadsafe(run(), self.loop)
        self._leaving.add(future)
        future.add_done_callback(self._leaving.discard)

    def end(self, timeout_ms: int) -> None:
        """Leave all clients that are open, and end every task of the loop."""
        for core in list(self._open.values()):
            self.leave(core, timeout_ms)
        concurrent.futures.wait(list(self._leaving), timeout=timeout_ms / 1000 + GRACE_S)
        for core in list(self._open.values()):
            tell_lost(core)
        ended = asyncio.run_coroutine_threadsafe(_cancel_tasks(), self.loop)
        concurrent.futures.wait([ended], timeout=GRACE_S)


async def _cancel_tasks() -> None:
    """A task that is pending when its loop is collected would be complained about."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
