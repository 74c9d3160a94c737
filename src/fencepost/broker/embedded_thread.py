"""The thread of an embedded broker, from its start to its stop.

Signal handlers interrupt the main thread at any step, and several threads may call a broker at once. Therefore callers
only give orders. All steps are taken in the broker's own thread, where no signal handler runs: an interrupted call
leaves no half of a start or of a stop behind.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from fencepost.broker.security.listeners import Listener
from fencepost.broker.server import BrokerServer
from fencepost.process.event_loop import new_event_loop
from fencepost.process.signal_waits import LOOK_S, Latch

__all__ = ["BrokerThread", "MakeServer", "Order", "ServerRun"]

Result = TypeVar("Result")

MakeServer = Callable[[str], BrokerServer]
"""Creates a server over a data directory."""


class Order:
    """An order to a broker's thread: to start the server, to start it again, or to stop it.

    Args:
        serve: Start the server, instead of ending the thread.
        clean: Close the logs of the server that runs. False: leave them as kill -9 does.

    Attributes:
        done: Set when the order is carried out, or when the thread has ended.
        was_followed: The server runs.
        error: The error because of which the server did not start.
        failure: The error that had ended the server before.
    """

    def __init__(self, *, serve: bool, clean: bool = True) -> None:
        self.serve = serve
        self.clean = clean
        self.done = Latch()
        self.was_followed = False
        self.error: BaseException | None = None
        self.failure: BaseException | None = None


class ServerRun:
    """One run of the server in its thread, until it is stopped, started again or has failed."""

    def __init__(self, begun_by: Order) -> None:
        self.begun_by = begun_by
        self.server: BrokerServer | None = None  # None before it has started, and when it has ended
        self.loop: asyncio.AbstractEventLoop | None = None
        self.wake: asyncio.Event | None = None  # set when an order has come
        self.calls: set[asyncio.Task[Any] | None] = set()
        self.ended_by: Order | None = None
        self.ended = Latch()
        self.error: BaseException | None = None

    async def cancel_calls(self) -> None:
        """Cancel calls that have not ended, so that their callers learn that the server ends."""
        calls = [task for task in self.calls if task is not None]
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


class BrokerThread:
    """A thread with an event loop that starts and stops the server as it is ordered.

    Attributes:
        pid: The process in which the thread runs.
        next: The thread that the broker starts after this one, by the only key "thread". `setdefault` decides between
            two callers that start the broker at once, without a lock.
        is_stopping: True from the order to stop, or from a failed start.
        ended: Set when the server is closed and a temporary directory is removed.
        failures: The error that ended the last run of the server, until it is raised.
    """

    def __init__(self, make_server: MakeServer, data_dir: str | None) -> None:
        """Prepare the thread. `data_dir` None: a temporary directory, which the thread creates and removes."""
        self.pid = os.getpid()
        self.next: dict[str, BrokerThread] = {}
        self.is_stopping = False
        self.ended = Latch()
        self.failures: list[BaseException] = []
        self.listeners: Sequence[Listener] = ()
        self.data_dir = data_dir
        self.run = ServerRun(Order(serve=True))
        self._make_server = make_server
        self._is_temporary = data_dir is None
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._permits = [True]  # to begin; one caller of `pop` gets it
        self._thread = threading.Thread(target=self._work, name="fencepost-broker", daemon=True)

    # --- called by other threads and signal handlers ---

    def start(self) -> Order:
        """Start the thread and the server. Return when the order is done."""
        order = self.run.begun_by
        self._thread.start()
        order.done.wait()
        return order

    def restart(self, *, clean: bool) -> Order:
        """Start the server again, with the same port and data. Return when the order is done."""
        order = Order(serve=True, clean=clean)
        self._give(order)
        order.done.wait()
        return order

    def ask_to_stop(self) -> None:
        """Order a clean stop, and return at once. A thread that has not begun yet will not begin."""
        self.is_stopping = True
        if self._take_permit():
            self._end()
        else:
            self._give(Order(serve=False))

    def stop(self) -> None:
        """Stop, and return when nothing of it runs any more."""
        self.ask_to_stop()
        self.ended.wait()
        if self._thread.is_alive():
            self._thread.join(LOOK_S)  # it has nothing left to do

    def call(self, action: Callable[[BrokerServer], Awaitable[Result]]) -> Result:
        """Run something in the thread, and return its result. Raises RuntimeError if the server ends before."""
        run = self.run
        server, loop = run.server, run.loop
        if server is None or loop is None:
            raise RuntimeError("the broker does not run")

        async def act() -> Result:
            if run.server is None:
                raise asyncio.CancelledError  # it came while the server ends
            task = asyncio.current_task()
            run.calls.add(task)
            try:
                return await action(server)
            finally:
                run.calls.discard(task)

        work = act()
        try:
            future = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:
            run.ended.wait()  # the loop is closed
        else:
            while not future.done() and not run.ended.is_set:
                concurrent.futures.wait([future], timeout=LOOK_S)
            if future.done() and not future.cancelled():
                return future.result()
        work.close()  # Python warns of a coroutine that never began
        raise RuntimeError("the broker was stopped before the call was done")

    def _give(self, order: Order) -> None:
        self._orders.put(order)
        run = self.run
        if run.wake is not None and run.loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the thread takes the order from the queue
                run.loop.call_soon_threadsafe(run.wake.set)
        if self.ended.is_set:
            order.done.set()

    def _take_permit(self) -> bool:
        try:
            return self._permits.pop()
        except IndexError:
            return False

    # --- in the thread ---

    def _work(self) -> None:
        if not self._take_permit():
            return
        try:
            if self.data_dir is None:
                self.data_dir = tempfile.mkdtemp(prefix="fencepost-")
            while self._serve_once():
                pass
        except BaseException as error:  # noqa: BLE001 (raised by `Broker.start`)
            self.run.begun_by.error = error
        finally:
            self._end()

    def _serve_once(self) -> bool:
        """Run the server once. Return true if it is to be started again. Raises the error of a failed start."""
        run = self.run
        try:
            loop = new_event_loop()
            try:
                loop.run_until_complete(self._serve(run))
            finally:
                loop.close()
        except BaseException as error:
            if not run.begun_by.was_followed:
                raise
            run.error = error
        run.ended.set()
        order = run.ended_by or self._orders.get()
        if not order.serve:
            self.failures += [run.error] if run.error is not None else []
            return False
        order.failure = run.error
        self.run = ServerRun(order)
        return True

    async def _serve(self, run: ServerRun) -> None:
        run.wake = asyncio.Event()
        run.loop = asyncio.get_running_loop()
        if self.data_dir is None:
            raise RuntimeError("a thread has a directory when it serves")
        server = self._make_server(self.data_dir)
        if self.listeners:
            server.listeners = list(self.listeners)
        await server.start()
        self.listeners, run.server = server.listeners, server
        run.begun_by.was_followed = True
        run.begun_by.done.set()
        if not self._orders.empty():
            run.wake.set()  # an order that came before there was an event
        woken = asyncio.ensure_future(run.wake.wait())
        try:
            await asyncio.wait((woken, server.failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            run.server = None
            await run.cancel_calls()
            with suppress(queue.Empty):
                run.ended_by = self._orders.get_nowait()
            await server.stop(clean=run.ended_by is None or run.ended_by.clean)
        if server.failed.done():
            server.failed.result()

    def _end(self) -> None:
        """Remove a temporary directory, and answer all orders."""
        self.is_stopping = True
        if self._is_temporary and self.data_dir is not None:
            shutil.rmtree(self.data_dir, ignore_errors=True)
            self.data_dir = None
        self.run.ended.set()
        self.ended.set()
        self.run.begun_by.done.set()
        with suppress(queue.Empty):
            while True:
                self._orders.get_nowait().done.set()
