"""A broker in this process, in its own thread: `with Broker() as broker: ... broker.bootstrap_servers ...`."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import NoReturn, Self, TypeVar

from fencepost.arguments import checked
from fencepost.broker.embedded_control import BrokerClock, BrokerFaults
from fencepost.broker.embedded_thread import BrokerThread
from fencepost.broker.faults.table import FaultTable
from fencepost.broker.metrics.counters import Snapshot
from fencepost.broker.security.listeners import Listener, with_users
from fencepost.broker.server import BrokerServer, system_clock
from fencepost.broker.settings.values import BrokerConfig
from fencepost.process.at_exit import CloseOrder, at_exit

__all__ = ["Broker"]

log = logging.getLogger("fencepost.broker")

Result = TypeVar("Result")

_open: set[Broker] = set()  # started, and not yet stopped


def _stop_all() -> None:
    """Stop all brokers at the end of the program: close their logs and remove temporary directories."""
    for broker in list(_open):
        try:
            broker.stop()
        except Exception:
            log.exception("%r did not end cleanly", broker)


class Broker:
    """A broker for tests, notebooks and demos.

    It runs from `start` (or entering `with`) to `stop`, or to the end of the program, and can be started again. Errors
    at start-up are raised by `start`. Any thread may call its methods. A forked child can connect to it as a client.
    There `stop` does nothing, and all other methods raise RuntimeError.

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
        self._data_dir = None if data_dir is None else os.fspath(data_dir)
        self._address = host, port
        self._thread = self._new_thread()
        self._thread.ask_to_stop()  # none runs
        self._clock, self._faults = system_clock(), FaultTable()
        self.clock = BrokerClock(self._clock, self._run_inside, lambda: self._latest().run.server is not None)
        self.faults = BrokerFaults(self._faults, self._run_inside)

    def __repr__(self) -> str:
        thread = self._latest()
        if thread.is_stopping or not thread.listeners:
            return "<fencepost.Broker stopped>"
        if thread.pid != os.getpid():
            state = "running in the parent process"
        else:
            error = thread.run.error
            state = "running" if error is None else f"failed: {type(error).__name__}"
        return f"<fencepost.Broker {thread.listeners[0].address}, {state}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Broker cannot be copied or pickled; give other processes its bootstrap_servers")

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for clients. Raises RuntimeError if the broker does not run."""
        return self._listeners()[0].address

    @checked
    def listener(self, name: str) -> str:
        """Return HOST:PORT of the listener with this name.

        Raises:
            RuntimeError: The broker does not run.
            KeyError: There is no such listener.
        """
        return {listener.name: listener for listener in self._listeners()}[name].address

    @property
    def data_dir(self) -> str:
        """The data directory. Raises RuntimeError if none was given and the broker does not run."""
        directory = self._data_dir or self._latest().data_dir
        if directory is None:
            raise RuntimeError("the broker does not run")
        return directory

    def start(self) -> Self:
        """Start the broker, and return when it accepts connections.

        If a signal handler interrupts the call with an exception, the broker is stopped.

        Raises:
            RuntimeError: The broker runs already, or was stopped before it had started.
            OSError: The port is in use, or the directory cannot be used.
            InvalidSetting: Settings contradict each other.
            DirectoryInUse: Another broker uses the directory.
        """
        thread = self._new_thread()
        try:
            self._claim(thread)
            order = thread.start()
        except BaseException:
            thread.ask_to_stop()
            raise
        if order.error is not None:
            _open.discard(self)
            raise order.error
        if not order.was_followed:
            raise RuntimeError("the broker was stopped before it had started")
        return self

    def stop(self) -> None:
        """Stop the broker, and return when its logs are closed. Raises the error that ended it before, if any.

        If a signal handler interrupts the call with an exception, the broker stops nevertheless.
        """
        thread = self._latest()
        if thread.pid != os.getpid():  # in a forked child the parent's broker continues
            return
        thread.stop()
        _open.discard(self)
        if thread.failures:
            raise thread.failures.pop()

    @checked
    def restart(self, *, clean: bool = True) -> BaseException | None:
        """Stop and start the broker with the same port and data.

        If a signal handler interrupts the call with an exception, the broker starts again nevertheless.

        Args:
            clean: False: stop as with kill -9, so that it recovers at the start.

        Returns:
            The error that had ended the broker before, or None.

        Raises:
            RuntimeError: The broker was not started, or was stopped meanwhile.
        """
        order = self._running_here().restart(clean=clean)
        if order.error is not None:
            _open.discard(self)
            raise order.error
        if not order.was_followed:
            raise RuntimeError("the broker was stopped before it had started again")
        return order.failure

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
        run = self._running_here().run
        if not run.ended.wait(timeout_s):
            raise TimeoutError(f"the broker has not failed in {timeout_s} s")
        if run.error is None:
            raise RuntimeError("the broker was stopped before it failed")
        return run.error

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _new_thread(self) -> BrokerThread:
        def make_server(directory: str) -> BrokerServer:
            return BrokerServer(self._config, directory, *self._address, clock=self._clock, faults=self._faults)

        return BrokerThread(make_server, self._data_dir)

    def _latest(self) -> BrokerThread:
        """Return the thread that was started last."""
        thread = self._thread
        while (following := thread.next.get("thread")) is not None:
            thread = following
        self._thread = thread
        return thread

    def _claim(self, thread: BrokerThread) -> None:
        """Let `thread` follow the last thread of this broker, which has ended. Raises RuntimeError if it runs."""
        last = self._latest()
        while True:
            if not last.is_stopping:
                failed = last.run.error
                raise RuntimeError(
                    "the broker runs already"
                    if failed is None
                    else f"the broker has failed, call stop() or restart(): {failed!r}"
                )
            last.ended.wait()
            if last.next.setdefault("thread", thread) is thread:
                _open.add(self)
                at_exit(CloseOrder.BROKERS, _stop_all)
                return
            last = self._latest()

    def _listeners(self) -> Sequence[Listener]:
        thread = self._latest()
        if thread.is_stopping or not thread.listeners:
            raise RuntimeError("the broker does not run")
        return thread.listeners

    def _running_here(self) -> BrokerThread:
        thread = self._latest()
        if thread.is_stopping:
            raise RuntimeError("the broker does not run")
        if thread.pid != os.getpid():
            raise RuntimeError("the broker runs in the process that started it")
        return thread

    def _run_inside(self, action: Callable[[BrokerServer], Awaitable[Result]]) -> Result:
        """Run something in the broker's thread, and return its result.

        Raises RuntimeError if the broker does not run.
        """
        return self._running_here().call(action)
