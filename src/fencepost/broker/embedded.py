"""A broker inside this process, in a thread of its own: `with Broker() as broker: ... broker.bootstrap_servers ...`."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from fencepost.arguments import checked
from fencepost.at_exit import Turn, at_exit
from fencepost.broker.embedded_control import BrokerClock, BrokerFaults
from fencepost.broker.faults.table import FaultTable
from fencepost.broker.metrics.counters import Snapshot
from fencepost.broker.security.listeners import Listener, with_users
from fencepost.broker.server import BrokerServer, new_event_loop, system_clock
from fencepost.broker.settings.values import BrokerConfig

__all__ = ["Broker"]

Result = TypeVar("Result")
_running: set[Broker] = set()


def _stop_all() -> None:
    """At the end of the program: logs are closed, and no temporary directory stays."""
    for broker in list(_running):
        broker.stop()


class Broker:
    """A broker for tests, notebooks and demos.

    `config`: Kafka's broker settings by their dotted names. `data_dir`: None for a new directory that is removed at
    the end. `fsync`: "never" (what is written survives the death of the process, not of the machine), "interval" or
    "commit". `port`: 0 for any free port. The broker runs from `start` (or entering `with`) to `stop`, or to the end of
    the program, and may be started again. What goes wrong at the start is raised there: OSError, InvalidSetting,
    DirectoryInUse.

    `users`: names and passwords. Clients then have to authenticate with SASL PLAIN or SCRAM: on the listeners of the
    setting `listeners` that ask for it, or, without that setting, on the one that there is.

    `clock` moves its time, `faults` makes it do wrong on purpose (`fencepost.broker.embedded_control`).

    A forked child may use it as a client does; `stop` does nothing there, all else raises RuntimeError.
    """

    @checked
    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        fsync: str = "never",
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        users: Mapping[str, str] | None = None,
    ) -> None:
        given = {"fsync": fsync, **(config or {})}
        self._config = BrokerConfig(given if users is None else with_users(given, users, host, port))
        self._listeners: Sequence[Listener] = ()
        self._data_dir = None if data_dir is None else os.fspath(data_dir)
        self._wanted = (host, port)
        self._address = self._wanted
        self._own_directory: str | None = None
        self._thread: threading.Thread | None = None
        self._pid = -1  # the process that it runs in
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._server: BrokerServer | None = None
        self._started = threading.Event()
        self._stopped = threading.Event()
        self._clean = True
        self._error: BaseException | None = None
        self._clock, self._faults = system_clock(), FaultTable()
        self.clock = BrokerClock(self._clock, self._run_inside, lambda: self._server is not None)
        self.faults = BrokerFaults(self._faults, self._run_inside)

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for clients. Raises RuntimeError when the broker does not run."""
        if self._thread is None:
            raise RuntimeError("the broker does not run")
        return self._listeners[0].address

    @checked
    def listener(self, name: str) -> str:
        """HOST:PORT of the listener of that name. Raises RuntimeError when the broker does not run, KeyError."""
        if self._thread is None:
            raise RuntimeError("the broker does not run")
        return {listener.name: listener for listener in self._listeners}[name].address

    @property
    def data_dir(self) -> str:
        """The data directory. Raises RuntimeError when there is none: neither given nor running."""
        directory = self._data_dir or self._own_directory
        if directory is None:
            raise RuntimeError("the broker does not run")
        return directory

    def start(self) -> Self:
        """Start, and return when the broker answers."""
        if self._thread is not None:
            raise RuntimeError("the broker runs already")
        if self._data_dir is None:
            self._own_directory = tempfile.mkdtemp(prefix="fencepost-")
        self._listeners = ()
        self._start_on(self._wanted)
        return self

    def stop(self) -> None:
        """Stop, and return when the logs are closed. Raises what ended the broker before, if something did."""
        if self._thread is None or self._pid != os.getpid():  # a forked child's copy: its parent's goes on
            return
        self._end_thread(clean=True)
        self._remove_directory()
        if self._error is not None:
            raise self._error

    @checked
    def restart(self, *, clean: bool = True) -> BaseException | None:
        """Stop and start again, with the same port and data. Not `clean`: as after kill -9, so that it recovers.

        Returns what had ended the broker before, None if nothing had. Raises RuntimeError when it was not started.
        """
        self._check_runs_here()
        self._end_thread(clean=clean)
        error = self._error
        self._start_on(self._address)
        return error

    def metrics(self) -> Snapshot:
        """What the broker has counted since it started, and its present state: transactions, connections, losses.

        Raises RuntimeError when it does not run.
        """
        return self._run_inside(BrokerServer.snapshot)

    def settle(self) -> None:
        """Return when all that was answered so far is durable and done, markers of ended transactions included.

        EndTxn is answered when the decision is durable; the records become visible a moment later, as in Kafka.
        """
        self._run_inside(BrokerServer.settle)

    @checked
    def wait_for_failure(self, timeout_s: float = 60.0) -> BaseException:
        """Return what ended the broker once it has ended by itself (a sync that failed). Raises TimeoutError."""
        self._check_runs_here()
        if not self._stopped.wait(timeout_s) or self._error is None:
            raise TimeoutError(f"the broker has not failed in {timeout_s} s")
        return self._error

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _start_on(self, address: tuple[str, int]) -> None:
        self._forget_failure()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, args=(address,), name="fencepost-broker", daemon=True)
        self._thread.start()
        self._started.wait()
        _running.add(self)
        at_exit(Turn.BROKERS, _stop_all)
        if self._error is not None:
            self._thread.join()
            self._thread = None
            _running.discard(self)
            self._remove_directory()
            raise self._error

    def _check_runs_here(self) -> None:
        if self._thread is None:
            raise RuntimeError("the broker does not run")
        if self._pid != os.getpid():
            raise RuntimeError("the broker runs in the process that started it")

    def _forget_failure(self) -> None:
        self._started.clear()
        self._stopped.clear()
        self._error = None

    def _end_thread(self, *, clean: bool) -> None:
        thread, self._thread = self._thread, None
        _running.discard(self)
        if thread is None:
            return
        self._clean = clean
        if self._loop is not None and self._end is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end.set)
        thread.join()

    def _remove_directory(self) -> None:
        if self._own_directory is not None:
            shutil.rmtree(self._own_directory, ignore_errors=True)
            self._own_directory = None

    def _run_inside(self, action: Callable[[BrokerServer], Awaitable[Result]]) -> Result:
        """Run something in the broker's thread and return its result. Raises RuntimeError when there is none."""
        self._check_runs_here()
        server, loop = self._server, self._loop
        if server is None or loop is None:
            raise RuntimeError("the broker does not run")

        async def run() -> Result:
            return await action(server)

        return asyncio.run_coroutine_threadsafe(run(), loop).result()

    def _run(self, address: tuple[str, int]) -> None:
        loop = new_event_loop()
        try:
            loop.run_until_complete(self._serve(address))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
            self._error = error
        finally:
            self._server = None
            self._started.set()
            self._stopped.set()
            loop.close()

    async def _serve(self, address: tuple[str, int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        server = BrokerServer(self._config, self.data_dir, *address, clock=self._clock, faults=self._faults)
        if self._listeners:
            server.listeners = list(self._listeners)
        await server.start()
        self._server, self._address, self._listeners = server, server.address, server.listeners
        self._started.set()
        end = asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait((end, server.failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            end.cancel()
            await server.stop(clean=self._clean)
        if server.failed.done():
            server.failed.result()
