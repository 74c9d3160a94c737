"""The connections of one client by address: opened when asked for, by one caller at a time, with a back-off."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fencepost.client.net import retry
from fencepost.client.net.connection import Connection
from fencepost.client.net.lasting_errors import LastingErrors
from fencepost.client.net.runtime import Event, Runtime
from fencepost.client.net.topology import Address
from fencepost.config import CommonConfig
from fencepost.errors import ClosedError, KafkaError, KafkaTimeoutError

log = logging.getLogger("fencepost.client")


@dataclass(slots=True)
class Link:
    """The connection to one address, and how connecting went lately."""

    connection: Connection | None = None
    connecting: Event | None = None
    failures: int = 0
    not_before_ms: int = 0
    error: KafkaError | None = None

    @property
    def live(self) -> Connection | None:
        """The connection, if it is open."""
        return None if self.connection is None or self.connection.closed else self.connection


class Links:
    """Each `lane` to an address has a connection of its own."""

    def __init__(
        self,
        runtime: Runtime,
        config: CommonConfig,
        lasting_errors: LastingErrors,
        make: Callable[[Address], Awaitable[Connection]],
    ) -> None:
        """`make` opens a connection; it raises KafkaError."""
        self._runtime = runtime
        self._config = config
        self._lasting_errors = lasting_errors
        self._make = make
        self._links: dict[tuple[Address, str], Link] = {}
        self._closed = False

    def __len__(self) -> int:
        """How many have been asked for."""
        return len(self._links)

    def close(self) -> None:
        """For good: requests in flight fail with DisconnectedError, further requests with ClosedError."""
        self._lasting_errors.end()
        self._closed = True
        for link in self._links.values():
            if link.connection is not None:
                link.connection.close()

    def link(self, address: Address, lane: str = "") -> Link:
        return self._links.setdefault((address, lane), Link())

    def idlest(self) -> Connection | None:
        """The open connection outside of lanes with the fewest requests in flight."""
        live = [self._usable(link) for (_, lane), link in self._links.items() if not lane]
        return min((it for it in live if it is not None), key=lambda connection: connection.in_flight, default=None)

    def is_live(self, address: Address) -> bool:
        """Whether a connection to it is open, in whichever lane."""
        return any(link.live for (other, _), link in self._links.items() if other == address)

    async def connect(self, address: Address, deadline_ms: int, lane: str = "") -> Connection:
        """The open connection, or a new connection. Raises ClosedError, KafkaTimeoutError, and what opening raises."""
        link = self.link(address, lane)
        while True:
            if self._closed:
                raise ClosedError("the client is closed")
            usable = self._usable(link)
            if usable is not None:
                return usable
            left = deadline_ms - self._runtime.now_ms()
            if left <= 0:
                cause = link.error or (link.connection.ended if link.connection is not None else None)
                reason = f": {cause}" if cause else ""
                raise KafkaTimeoutError(f"no connection to {address[0]}:{address[1]} in time{reason}") from cause
            if link.connecting is not None:
                await link.connecting.wait(left)
                if link.connection is None and link.error is not None and link.connecting is None:
                    raise link.error
                continue
            wait = link.not_before_ms - self._runtime.now_ms()
            if wait > 0:
                await self._runtime.sleep_ms(min(wait, left))
                continue
            await self._open(address, link)

    def _usable(self, link: Link) -> Connection | None:
        """The open connection. One that was silent for so long that what lies between may have forgotten it is closed:
        a request would wait in vain for its answer."""
        connection = link.live
        if connection is None or connection.in_flight:
            return connection
        idle_ms = self._runtime.now_ms() - connection.used_ms
        if idle_ms <= self._config.connections_max_idle_ms:
            return connection
        log.debug("%s: closed, it was not used for %d ms", connection.name, idle_ms)
        connection.close()
        return None

    async def _open(self, address: Address, link: Link) -> None:
        link.connecting = self._runtime.event()
        what = f"broker {address[0]}:{address[1]}"
        try:
            link.connection = await self._make(address)
            link.failures, link.error = 0, None
            self._lasting_errors.over(what)
        except KafkaError as error:
            link.connection, link.error = None, error
            self._lasting_errors.met(what, error)
            link.failures += 1
            link.not_before_ms = self._runtime.now_ms() + round(
                retry.backoff_ms(
                    link.failures - 1,
                    self._runtime.random(),
                    first_ms=self._config.reconnect_backoff_ms,
                    most_ms=self._config.reconnect_backoff_max_ms,
                )
            )
            raise
        finally:
            connecting, link.connecting = link.connecting, None
            if connecting is not None:
                connecting.set()
        if self._closed and link.connection is not None:
            link.connection.close()
