"""Base of the blocking clients. Every call runs a method of an async core in the process's I/O thread."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar

from fencepost.arguments import checked, prepared
from fencepost.client.blocking.own_thread import OwnThread
from fencepost.client.calling import is_asynchronous
from fencepost.client.configured import Configured
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.io_thread import io_thread, notify_when_forked
from fencepost.client.net.open_clients import LEAVING_MS, Leaving, report_close_failure, warn_unclosed
from fencepost.config import CommonConfig
from fencepost.errors import ClosedError, ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=Leaving)
C_co = TypeVar("C_co", bound=Leaving, covariant=True)  # a client of a core is also a client of the core's base class


def cluster_for(config: CommonConfig) -> Cluster:
    """Create a blocking client's view of the cluster, in the I/O thread. Raises ConfigurationError."""
    for name in ("on_error", "on_statistics"):
        if is_asynchronous(getattr(config, name)):
            raise ConfigurationError(f"{name}: coroutine functions are for the clients for asyncio, as AsyncProducer")
    waits = "no other callback of this client runs meanwhile, and its close() waits"
    return Cluster(runtime_for(config), config, OwnThread(io_thread().call_soon, "fencepost-events", waits))


class BlockingClient(Configured, Generic[C_co]):
    """Holds a core that runs in the I/O thread.

    Calls after close raise ClosedError, calls in a forked child ForkedError. Closing it in a forked child does nothing.
    """

    _warns_unclosed = True  # false for a client that belongs to an object which needs no close()

    def __init__(self, make: Callable[[], C_co]) -> None:
        """Create the core with `make`, which runs in the I/O thread."""
        self._io = io_thread()
        self._closed = False
        self._ending: int | None = None  # the thread that closes the client

        async def start() -> C_co:
            return make()

        self._core: C_co = self._io.call(start)
        self._io.keep(self._core)
        notify_when_forked(self)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled; make it where it is used")

    def __del__(self) -> None:
        if self._is_left():
            if self._warns_unclosed:
                warn_unclosed(self)
            self._io.leave(self._core, LEAVING_MS)

    def _is_left(self) -> bool:
        """Return true, once, if the client is open in this process. It counts as closed from now on."""
        if not hasattr(self, "_core") or self._closed or not self._io.is_this_process():
            return False
        self._closed = True
        return True

    @property
    def closed(self) -> bool:
        """True after close."""
        return self._closed

    def metrics(self) -> dict[str, float]:
        """Return counters and gauges by Kafka's names in snake_case (see client.metrics).

        Any thread may call it, also after close.
        """
        return self._core.metrics()

    def _is_here(self) -> bool:
        return self._io.is_this_process()

    def _forked(self) -> None:
        """Prepare for use in a forked child, where every call raises ForkedError."""

    def _run(self, call: Callable[[C_co], Coroutine[Any, Any, R]]) -> R:
        self._check()
        self._before_waiting()
        return self._io.call(lambda: call(self._core))

    def _before_waiting(self) -> None:
        """Raise UsageError if waiting here could never end."""

    def _check(self) -> None:
        self._io.check_process()
        if self._closed:
            raise ClosedError(f"this {type(self).__name__} is closed")

    def _end(self, close: Callable[[C_co], Coroutine[Any, Any, None]]) -> None:
        """Close once. Does nothing in a forked child, or inside a close of this thread, as in a signal handler."""
        here = threading.get_ident()
        if self._closed or self._ending == here or not self._io.is_this_process():
            return
        self._io.refuse_to_wait()
        self._before_waiting()
        if self._ending is not None:
            self._io.call(lambda: close(self._core))
            return
        self._close_core(lambda: close(self._core))

    def _close_core(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close the core.

        If a signal handler interrupts this thread, the I/O thread closes the core in the background.
        """

        async def close_and_forget() -> None:
            await close()
            self._io.forget(self._core)  # here, where no signal handler can interrupt it

        try:
            self._ending = threading.get_ident()
            self._io.call(close_and_forget)
            self._closed = True
        except BaseException:
            self._closed = True
            self._io.leave(self._core, LEAVING_MS)  # has no effect if the core is closed
            raise

    @checked
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with another user name or password from now on.

        New connections use them, and so does the next login of connections whose sessions are limited (KIP-368).
        Other connections stay as they are. A producer without transactions that a broker has refused works again.

        Args:
            username: The user name.
            password: The password.

        Raises:
            UsageError: The client does not log in with PLAIN or SCRAM.
            ConfigurationError: One of them cannot be written in UTF-8.
        """
        self._check()

        async def change() -> None:
            from fencepost.client.net.sasl_login import change_credentials  # loaded by clients that log in

            change_credentials(self._core.cluster, username, password)

        self._io.call(change)

    def close(self, timeout_ms: int | None = None) -> None:
        """Release all resources. `timeout_ms` limits the wait for brokers. It may be called again."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            report_close_failure(error, failure)


def blocking(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingClient[C], P], R]:
    """Return the blocking variant of a core's async method."""
    ready = prepared(method)

    def call(self: BlockingClient[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check()
        self._before_waiting()
        return self._io.call(ready(self._core, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call
