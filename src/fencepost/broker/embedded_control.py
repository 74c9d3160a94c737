"""Control the clock and the faults of an embedded broker, from any thread."""

from __future__ import annotations

import re
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from fencepost.arguments import Int16, checked
from fencepost.broker.api.apis import SERVED
from fencepost.broker.faults.table import DiskFault, DiskOperation, FaultAction, FaultTable, RequestFault
from fencepost.broker.server import BrokerServer
from fencepost.broker.timing.clock import Clock
from fencepost.counted import counted_noun
from fencepost.errors import ConfigurationError
from fencepost.protocol.codes import ErrorCode

__all__ = ["BrokerClock", "BrokerDisk", "BrokerFaults", "Fault"]

LATEST_MS: Final = 253_402_300_799_000
"""The last second of the year 9999 in ms. A record's timestamp has 64 bits, and a date has four digits."""

_KEYS = {api.name: api.key for api in SERVED.values()}

Result = TypeVar("Result")


class RunInBroker(Protocol):
    """A function that runs an action in the broker's thread and returns its result.

    Raises RuntimeError if no broker runs.
    """

    def __call__(self, action: Callable[[BrokerServer], Awaitable[Result]]) -> Result: ...


class BrokerClock:
    """The broker's time. It is the system's time until it is moved, and keeps the difference over a restart.

    Timeouts of transactions and sessions, expiry of transactional ids, producer ids and offsets, retention, segment.ms
    and append times use this clock. The wait of a Fetch uses real time, as the client does.
    """

    def __init__(self, clock: Clock, run: RunInBroker, is_running: Callable[[], bool]) -> None:
        self._clock = clock
        self._run = run
        self._is_running = is_running

    @property
    def now_ms(self) -> int:
        """The broker's time in ms since 1970."""
        return self._clock.now_ms()

    @property
    def frozen(self) -> bool:
        """True while the time is frozen."""
        return self._clock.frozen

    @checked
    def advance(self, seconds: float) -> None:
        """Move the time forward by this number of seconds.

        When this returns, the broker has done all due work in order, and its results are durable and visible. Clients
        use real time and send no heartbeats in between. If the time moves by more than the session timeout, their group
        sessions expire.

        Raises:
            ConfigurationError: `seconds` is negative, or the time would be after the year 9999.
        """
        duration_ms = round(seconds * 1000)
        if self._clock.now_ms() + duration_ms > LATEST_MS:
            raise ConfigurationError(f"seconds is {seconds!r}; the broker's time ends with the year 9999")
        if self._is_running():
            self._run(lambda server: server.advance(duration_ms))
        else:
            self._clock.move_by(duration_ms)

    def freeze(self) -> None:
        """Freeze the time until `thaw`; `advance` still moves it."""
        if self._is_running():
            self._run(BrokerServer.freeze)
        else:
            self._clock.freeze()

    def thaw(self) -> None:
        """Continue from the frozen time."""
        if self._is_running():
            self._run(BrokerServer.thaw)
        else:
            self._clock.thaw()


class Fault:
    """An injected fault. As a context manager it ends with the block."""

    def __init__(self, table: FaultTable, rule: RequestFault | DiskFault, changed: threading.Condition) -> None:
        self._table = table
        self._rule = rule
        self._changed = changed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    @property
    def hits(self) -> int:
        """Number of times that the fault was applied."""
        return self._rule.hits

    @checked
    def wait(self, hits: int = 1, timeout_s: float = 60.0) -> None:
        """Wait until the fault was applied this many times. Raises TimeoutError after `timeout_s` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._rule.hits >= hits, timeout_s):
                raise TimeoutError(f"struck {counted_noun(self._rule.hits, 'time')} in {timeout_s} s, not {hits}")

    def remove(self) -> None:
        """Remove the fault."""
        with self._changed:
            self._table.remove(self._rule)


class _Adder:
    def __init__(self, table: FaultTable, changed: threading.Condition) -> None:
        self._table = table
        self._changed = changed

    def _add(self, rule: RequestFault | DiskFault) -> Fault:
        if rule.times is not None and rule.times < 1:
            raise ValueError(f"times is {rule.times}; None means always")
        rule.on_hit = self._struck
        with self._changed:
            self._table.add(rule)
        return Fault(self._table, rule, self._changed)

    def _struck(self) -> None:
        with self._changed:
            self._changed.notify_all()


class BrokerDisk(_Adder):
    """Faults of the broker's disk.

    All methods have these arguments: `path` limits the fault to files whose relative path contains it ("orders-0/").
    `times` is the number of times to apply it (None: always), after `after` accesses without it.
    """

    @checked
    def fail_write(self, error: int, *, times: int | None = 1, after: int = 0, path: str = "") -> Fault:
        """Make writes fail with this errno (`errno.ENOSPC`)."""
        return self._disk(DiskOperation.WRITE, error, 0.0, times, after, path)

    @checked
    def fail_sync(self, error: int, *, times: int | None = 1, after: int = 0, path: str = "") -> Fault:
        """Make syncs fail with this errno (`errno.EIO`). Only fsync="commit" and "interval" sync."""
        return self._disk(DiskOperation.SYNC, error, 0.0, times, after, path)

    @checked
    def fail_read(self, error: int, *, times: int | None = 1, after: int = 0, path: str = "") -> Fault:
        """Make reads fail with this errno."""
        return self._disk(DiskOperation.READ, error, 0.0, times, after, path)

    @checked
    def slow_sync(self, seconds: float, *, times: int | None = 1, after: int = 0, path: str = "") -> Fault:
        """Make syncs take this number of seconds."""
        return self._disk(DiskOperation.SYNC, 0, seconds, times, after, path)

    def _disk(
        self, operation: DiskOperation, error: int, delay_s: float, times: int | None, after: int, path: str
    ) -> Fault:
        return self._add(
            DiskFault(operation=operation, error=error, delay_s=delay_s, times=times, after=after, path=path)
        )


class BrokerFaults(_Adder):
    """Faults of requests, connections and the disk.

    All methods have these arguments: `api` is Kafka's name of the request ("Produce", "EndTxn"). `client_id` and
    `topic` limit the fault to requests of this client, or with this topic. `times` is the number of times to apply it
    (None: always), after `after` requests without it. Of several matching faults the first one added applies. An
    unknown name raises ValueError.
    """

    def __init__(self, table: FaultTable, run: RunInBroker) -> None:
        super().__init__(table, threading.Condition())
        self._run = run
        self.disk = BrokerDisk(table, self._changed)

    @checked
    def fail(
        self,
        api: str,
        code: ErrorCode | Int16,
        *,
        times: int | None = 1,
        after: int = 0,
        client_id: str | None = None,
        topic: str | None = None,
    ) -> Fault:
        """Answer with this error code instead of executing the request."""
        return self._request(api, FaultAction.FAIL, times, after, client_id, topic, code=int(code))

    @checked
    def delay(
        self,
        api: str,
        seconds: float,
        *,
        times: int | None = 1,
        after: int = 0,
        client_id: str | None = None,
        topic: str | None = None,
    ) -> Fault:
        """Execute the request after this number of real seconds. Later requests of the connection wait for it."""
        return self._request(api, FaultAction.DELAY, times, after, client_id, topic, delay_ms=round(seconds * 1000))

    @checked
    def delay_reply(
        self,
        api: str,
        seconds: float,
        *,
        times: int | None = 1,
        after: int = 0,
        client_id: str | None = None,
        topic: str | None = None,
    ) -> Fault:
        """Execute the request at once, and delay the response by this number of real seconds."""
        return self._request(
            api, FaultAction.DELAY_REPLY, times, after, client_id, topic, delay_ms=round(seconds * 1000)
        )

    @checked
    def drop_reply(
        self,
        api: str,
        *,
        times: int | None = 1,
        after: int = 0,
        client_id: str | None = None,
        topic: str | None = None,
    ) -> Fault:
        """Execute the request, and reset the connection instead of answering."""
        return self._request(api, FaultAction.DROP_REPLY, times, after, client_id, topic)

    @checked
    def drop_request(
        self,
        api: str,
        *,
        times: int | None = 1,
        after: int = 0,
        client_id: str | None = None,
        topic: str | None = None,
    ) -> Fault:
        """Reset the connection without executing the request."""
        return self._request(api, FaultAction.DROP_REQUEST, times, after, client_id, topic)

    @checked
    def swallow(
        self,
        api: str,
        *,
        times: int | None = 1,
        after: int = 0,
        client_id: str | None = None,
        topic: str | None = None,
    ) -> Fault:
        """Ignore the request, without an answer, and leave the connection open."""
        return self._request(api, FaultAction.SWALLOW, times, after, client_id, topic)

    @checked
    def disconnect(self, client_id: str | None = None) -> int:
        """Reset the connections of this client, or all; return their number.

        Raises RuntimeError if the broker does not run.
        """

        async def reset(server: BrokerServer) -> int:
            return server.disconnect(client_id)

        return self._run(reset)

    def clear(self) -> None:
        """Remove all faults."""
        with self._changed:
            self._table.clear()

    def _request(
        self,
        api: str,
        action: FaultAction,
        times: int | None,
        after: int,
        client_id: str | None,
        topic: str | None,
        *,
        code: int = 0,
        delay_ms: int = 0,
    ) -> Fault:
        return self._add(
            RequestFault(
                api_key=_api_key(api),
                action=action,
                code=code,
                delay_ms=delay_ms,
                times=times,
                after=after,
                client_id=client_id,
                topic=topic,
            )
        )


def _api_key(api: str) -> int:
    """Return the key of an API by Kafka's name. Raises ValueError."""
    key = _KEYS.get(re.sub(r"(?<!^)(?=[A-Z])", "_", api).lower())
    if key is None:
        names = ", ".join("".join(part.capitalize() for part in name.split("_")) for name in _KEYS)
        raise ValueError(f"there is no API {api!r}; there are {names}")
    return key
