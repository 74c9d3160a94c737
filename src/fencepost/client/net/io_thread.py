"""The background thread of a process that runs the event loop of all blocking clients.

It is a daemon thread, started with the first client. A forked child does not have it. Clients created before the fork
raise ForkedError in the child, and a new client starts the child's own thread. At the end of the program, open clients
get a few seconds to deliver records and to leave their groups (`fencepost.process.at_exit`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeVar, cast

from fencepost.client.net.open_clients import Leaving, leave_quietly, log_lost_work
from fencepost.errors import ClosedError, ForkedError, UsageError
from fencepost.process.at_exit import CloseOrder, at_exit, patience_ms
from fencepost.process.event_loop import new_event_loop
from fencepost.process.signal_waits import Latch, WaitQueue

log = logging.getLogger("fencepost.client")

T = TypeVar("T")

GRACE_S = 2.0  # for the remaining steps after the timeout

_by_process: dict[int, IoThread] = {}  # by process id; setdefault decides between concurrent creators, without a lock


class Forkable(Protocol):
    """A client that must know that it runs in a forked child."""

    def _forked(self) -> None: ...


_clients: weakref.WeakSet[Forkable] = weakref.WeakSet()


def notify_when_forked(client: Forkable) -> None:
    """Call `client._forked()` in every child process that is forked while the client lives."""
    _clients.add(client)


def _forget_after_fork() -> None:
    _by_process.clear()
    for client in list(_clients):
        client._forked()


os.register_at_fork(after_in_child=_forget_after_fork)


def io_thread() -> IoThread:
    """Return this process's thread. Starts it if necessary."""
    found = _by_process.get(os.getpid())
    if found is not None:
        return found
    at_exit(CloseOrder.CLIENTS, _end)
    created = IoThread()
    try:
        found = _by_process.setdefault(created.pid, created)
    finally:
        if found is not created:  # another thread or a signal handler was faster
            created.stop()
    return found


def is_shared(loop: asyncio.AbstractEventLoop) -> bool:
    """Return true for the event loop of all blocking clients of the process."""
    current = _by_process.get(os.getpid())
    return current is not None and current.loop is loop


def _end() -> None:
    current = _by_process.get(os.getpid())
    if current is not None:
        current.end(patience_ms())


WaiterCall = Callable[[], object]
_waiter_calls: ContextVar[WaitQueue[WaiterCall | None]] = ContextVar("errands of the call whose task this is")


class TaskOutcome(Generic[T]):
    """Result or exception of a task, created in the loop when the task is done.

    Waiting threads refer to this object instead of the task, so that the task is freed in the loop's thread. asyncio
    keeps tasks in a weak set. If a task is freed elsewhere, a callback of that set runs there. An exception that a
    signal handler raises inside such a callback, for example KeyboardInterrupt, is lost.
    """

    def __init__(self, task: asyncio.Task[T]) -> None:
        self.error: BaseException | None
        if task.cancelled():
            self.error = concurrent.futures.CancelledError()
        else:
            self.error = task.exception()  # reading it prevents asyncio's warning if no thread waits any more
        self._value = task.result() if self.error is None else None

    def get(self) -> T:
        """Return the result, or raise the exception. The object then drops its reference to the exception."""
        error, self.error = self.error, None
        if error is None:
            return cast("T", self._value)
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame


class IoCall(Generic[T]):
    """A call in the loop, as seen by the thread that waits for it. Each call has its own result and queue of errands.

    Errands are functions of the application, which the loop lets the waiting thread run. A call made by a signal
    handler waits here as well, inside the call that it interrupts.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._loop = loop
        self._make = make
        self._task: asyncio.Task[T] | None = None  # None when it is done
        self._outcome: TaskOutcome[T] | None = None
        self._cancelled = False
        self._waiter_calls: WaitQueue[WaiterCall | None] = WaitQueue()  # None: the call is over

    def start(self) -> None:
        """Start the task. Runs in the loop."""
        if not self._cancelled:
            self._task = self._loop.create_task(self._run())
            self._task.add_done_callback(self._end)

    async def _run(self) -> T:
        _waiter_calls.set(self._waiter_calls)
        return await self._make()

    def _end(self, task: asyncio.Task[T]) -> None:
        self._task, self._outcome = None, TaskOutcome(task)
        self._waiter_calls.put(None)

    def cancel(self) -> None:
        """Cancel the task, because the caller stopped waiting. Runs in the loop."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    @property
    def has_succeeded(self) -> bool:
        """True when the call has a result that nobody has taken. False also if it raised an exception."""
        return self._outcome is not None and self._outcome.error is None

    def result(self) -> T:
        """Wait for the call, and run its errands. Raises the errors of the errands and of the call."""
        while (run_here := self._waiter_calls.get()) is not None:
            run_here()
        if self._outcome is None:
            raise concurrent.futures.CancelledError
        return self._outcome.get()


async def call_in_waiting_thread(function: Callable[[], Any]) -> None:
    """Make the thread that waits for the current call run `function`.

    Runs in the loop. Raises the function's errors.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def end(error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run_here() -> None:
        """Raise KeyboardInterrupt and SystemExit in the waiting thread, and pass other errors to the loop."""
        error: Exception | None = None
        try:
            function()
        except Exception as raised:  # noqa: BLE001 (handed to the core)
            error = raised
        loop.call_soon_threadsafe(end, error)

    _waiter_calls.get().put(run_here)
    await done


class IoThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = new_event_loop()
        self._open: dict[int, Leaving] = {}
        self._leaving: set[concurrent.futures.Future[None]] = set()
        self._left: set[int] = set()  # ids of the cores that `_leaving` closes
        self._ended = False
        self._thread = threading.Thread(target=self._serve, name="fencepost-io", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        ended = False
        while not ended:
            try:
                self.loop.run_forever()
                ended = True
            except BaseException:  # SystemExit and similar, from a function of the application
                log.exception(
                    "a function of the application raised an exception that ends threads; the I/O thread continues"
                )
        self.loop.close()

    def stop(self) -> None:
        """End a thread that no client has used."""
        self.call_soon(self.loop.stop)

    def is_this_process(self) -> bool:
        """Return false in a forked child."""
        return os.getpid() == self.pid

    def check_process(self) -> None:
        """Raise ForkedError in a forked child."""
        if not self.is_this_process():
            raise ForkedError("this client was made before fork(); make a new client in this process")

    def is_current(self) -> bool:
        """Return true in the I/O thread itself, as in a callback, where blocking would deadlock."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and wait for it. A KeyboardInterrupt cancels it, and is raised here."""
        self._refuse_here(coroutine)
        return self.call(lambda: coroutine)

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine like `run`, but create it in the loop. Python warns of a coroutine that was never started."""
        self.refuse_to_wait()
        call = IoCall(self.loop, make)
        try:
            self.loop.call_soon_threadsafe(call.start)
            return call.result()
        except concurrent.futures.CancelledError:
            self._refuse_after_end()
            raise
        except BaseException:
            self.loop.call_soon_threadsafe(call.cancel)
            raise

    def run_through(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine like `run`.

        After an interruption, wait for its clean-up before raising KeyboardInterrupt here.
        """
        self._refuse_here(coroutine)
        tasks: list[asyncio.Task[T]] = []  # empty when it is done
        outcomes: list[TaskOutcome[T]] = []
        ended = Latch()

        def start() -> None:
            tasks.append(self.loop.create_task(coroutine))
            tasks[0].add_done_callback(end)

        def end(task: asyncio.Task[T]) -> None:
            tasks.clear()
            outcomes.append(TaskOutcome(task))
            ended.set()

        self.loop.call_soon_threadsafe(start)
        try:
            ended.wait()
        except BaseException:
            self.loop.call_soon_threadsafe(
                lambda: [task.cancel() for task in tasks]
            )  # started by then: calls keep their order
            ended.wait()
            log.debug("after an interruption: %r", outcomes[0].error)
            raise
        try:
            return outcomes[0].get()
        except concurrent.futures.CancelledError:
            self._refuse_after_end()
            raise

    def refuse_to_wait(self) -> None:
        """Raise ForkedError, UsageError or ClosedError if a wait for the loop would never end."""
        self.check_process()
        if self.is_current():
            raise UsageError("a blocking call of a client from its I/O thread would wait for itself")
        if sys.is_finalizing():
            raise ClosedError("the program has ended, and with it the thread of all clients; close clients before")

    def _refuse_after_end(self) -> None:
        """Raise ClosedError if the end of the program has cancelled all calls."""
        if self._ended:
            raise ClosedError(
                "the program ended before this call, whose request may have taken effect; end threads and close "
                "clients before the program ends",
                outcome_unknown=True,
            ) from None

    def _refuse_here(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            self.refuse_to_wait()
        except UsageError:
            coroutine.close()
            raise

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run a plain function in the loop, without waiting."""
        self.loop.call_soon_threadsafe(callback)

    # --- clients that the application does not close ---

    def keep(self, core: Leaving) -> None:
        """Register an open client. It is closed when it is collected, and at the end of the program."""
        self._open[id(core)] = core

    def forget(self, core: Leaving) -> None:
        """Remove a client that was closed."""
        self._open.pop(id(core), None)

    def leave(self, core: Leaving, timeout_ms: int) -> None:
        """Close a client's core in the background, unless that is done or in progress. Any thread may call it."""
        if id(core) not in self._open or id(core) in self._left:
            return
        self._left.add(id(core))

        async def run() -> None:
            try:
                await leave_quietly(core, timeout_ms)
            finally:
                self.forget(core)
                self._left.discard(id(core))

        future = asyncio.run_coroutine_threadsafe(run(), self.loop)
        self._leaving.add(future)
        future.add_done_callback(self._leaving.discard)

    def end(self, timeout_ms: int) -> None:
        """Close all open clients, and end every task of the loop."""
        for core in list(self._open.values()):
            self.leave(core, timeout_ms)
        concurrent.futures.wait(list(self._leaving), timeout=timeout_ms / 1000 + GRACE_S)
        for core in list(self._open.values()):
            log_lost_work(core)
        self._ended = True
        ended = asyncio.run_coroutine_threadsafe(_cancel_tasks(), self.loop)
        concurrent.futures.wait([ended], timeout=GRACE_S)


async def _cancel_tasks() -> None:
    """Cancel and await all tasks, because asyncio warns of pending tasks when their loop is collected."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
