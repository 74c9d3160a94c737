"""A broker in this process, in its own thread: `with Broker() as broker: ... broker.bootstrap_servers ...`."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import NoReturn, Self, TypeVar

from fencepost.arguments import checked
from fencepost.broker.embedded_control import BrokerClock, BrokerFaults
from fencepost.broker.faults.table import FaultTable
from fencepost.broker.metrics.counters import Snapshot
from fencepost.broker.security.listeners import Listener, with_users
from fencepost.broker.server import BrokerServer, new_event_loop, system_clock
from fencepost.broker.settings.values import BrokerConfig
from fencepost.process.at_exit import CloseOrder, at_exit
from fencepost.process.signal_waits import join, result_of, wait_for_event

__all__ = ["Broker"]

Result = TypeVar("Result")
_running: set[Broker] = set()


def _stop_all() -> None:
    """Stop all brokers at the end of the program: close their logs and remove temporary directories."""
    for broker in list(_running):
        broker.stop()


class Broker:
    """A broker for tests, notebooks and demos.

    It runs from `start` (or entering `with`) to `stop`, or to the end of the program, and can be started again. Errors
    at start-up are raised by `start`: OSError, InvalidSetting, DirectoryInUse. A forked child can connect to it as a
    client. There `stop` does nothing, and all other methods raise RuntimeError.

    Args:
        config: Broker settings by Kafka's dotted names.
        data_dir: Data directory; None: a temporary one, removed at the end.
        fsync: "never" (data survives the death of the process, not of the machine), "interval" or "commit".
        host: Address to bind.
        port: Port to bind; 0: any free port.
        users: Passwords by user. Clients must then authenticate with SASL PLAIN or SCRAM, on the SASL listeners in
            `listeners`, or without that setting on the only listener.

    Attributes:
        clock: Controls the broker's time (`fencepost.broker.embedded_control`).
        faults: Injects faults (`fencepost.broker.embedded_control`).
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
        self._pid = -1  # the process in which it runs
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

    def __repr__(self) -> str:
        if self._thread is None or not self._listeners:
            return "<fencepost.Broker stopped>"
        if self._pid != os.getpid():
            state = "running in the parent process"
        else:
            state = "running" if self._error is None else f"failed: {type(self._error).__name__}"
        return f"<fencepost.Broker {self._listeners[0].address}, {state}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Broker cannot be copied or pickled; give other processes its bootstrap_servers")

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for clients. Raises RuntimeError if the broker does not run."""
        if self._thread is None:
            raise RuntimeError("the broker does not run")
        return self._listeners[0].address

    @checked
    def listener(self, name: str) -> str:
        """Return HOST:PORT of the listener with this name.

        Raises:
            RuntimeError: The broker does not run.
            KeyError: There is no such listener.
        """
        if self._thread is None:
            raise RuntimeError("the broker does not run")
        return {listener.name: listener for listener in self._listeners}[name].address

    @property
    def data_dir(self) -> str:
        """The data directory. Raises RuntimeError if none was given and the broker does not run."""
        directory = self._data_dir or self._own_directory
        if directory is None:
            raise RuntimeError("the broker does not run")
        return directory

    def start(self) -> Self:
        """Start the broker, and return when it accepts connections."""
        if self._thread is not None:
            raise RuntimeError("the broker runs already")
        if self._data_dir is None:
            self._own_directory = tempfile.mkdtemp(prefix="fencepost-")
        self._listeners = ()
        self._start_on(self._wanted)
        return self

    def stop(self) -> None:
        """Stop the broker, and return when its logs are closed. Raises the error that ended it before, if any."""
        if self._thread is None or self._pid != os.getpid():  # in a forked child the parent's broker continues
            return
        self._end_thread(clean=True)
        self._remove_directory()
        if self._error is not None:
            raise self._error

    @checked
    def restart(self, *, clean: bool = True) -> BaseException | None:
        """Stop and start the broker with the same port and data.

        Args:
            clean: False: stop as with kill -9, so that it recovers at the start.

        Returns:
            The error that had ended the broker before, or None.

        Raises:
            RuntimeError: The broker was not started.
        """
        self._check_runs_here()
        self._end_thread(clean=clean)
        error = self._error
        self._start_on(self._address)
        return error

    def metrics(self) -> Snapshot:
        """Return the broker's counters since its start, and its gauges.

        Raises:
            RuntimeError: The broker does not run.
        """
        return self._run_inside(BrokerServer.snapshot)

    def settle(self) -> None:
        """Return when everything answered so far is durable and complete, including the markers of ended transactions.

        As in Kafka, EndTxn is answered when the decision is durable; the records become visible a moment later.
        """
        self._run_inside(BrokerServer.settle)

    @checked
    def wait_for_failure(self, timeout_s: float = 60.0) -> BaseException:
        """Wait until the broker ends because of an error, such as a failed sync, and return the error.

        Raises:
            TimeoutError: It has not failed within `timeout_s` seconds.
            RuntimeError: The broker does not run, or was stopped meanwhile.
        """
        self._check_runs_here()
        if not wait_for_event(self._stopped, timeout_s):
            raise TimeoutError(f"the broker has not failed in {timeout_s} s")
        error = self._error
        if error is None:
            raise RuntimeError("the broker was stopped before it failed")
        return error

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
        wait_for_event(self._started)
        _running.add(self)
        at_exit(CloseOrder.BROKERS, _stop_all)
        if self._error is not None:
            join(self._thread)
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
        join(thread)

    def _remove_directory(self) -> None:
        if self._own_directory is not None:
            shutil.rmtree(self._own_directory, ignore_errors=True)
            self._own_directory = None

    def _run_inside(self, action: Callable[[BrokerServer], Awaitable[Result]]) -> Result:
        """Run something in the broker's thread, and return its result.

        Raises RuntimeError if the broker does not run.
        """
        self._check_runs_here()
        server, loop = self._server, self._loop
        if server is None or loop is None:
            raise RuntimeError("the broker does not run")

        async def run() -> Result:
            return await action(server)

        return result_of(asyncio.run_coroutine_threadsafe(run(), loop))

    def _run(self, address: tuple[str, int]) -> None:
        loop = new_event_loop()
        try:
            loop.run_until_complete(self._serve(address))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
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
