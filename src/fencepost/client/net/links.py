"""The connections of one client by address. They are opened on demand, one attempt at a time, with a back-off."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from fencepost.arguments import address_text
from fencepost.client.metrics import CountersByLabel, NodeTraffic
from fencepost.client.net import retry
from fencepost.client.net.connection import SILENCE_MS, BrokerConnection
from fencepost.client.net.lasting_errors import LastingErrors
from fencepost.client.net.runtime import Event, Runtime, TaskHandle
from fencepost.client.net.topology import Address, Node, through
from fencepost.config import CommonConfig
from fencepost.errors import (
    AllBrokersDownError,
    ClosedError,
    ClusterChangedError,
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
    without_traceback,
)
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fencepost.values import MutableValue

log = logging.getLogger("fencepost.client")

STAGGER_MS: Final = 250  # as in RFC 8305 for the addresses of one name
ALL: Final = "all brokers"
LOWEST_METADATA: Final = 4  # from this version on, a request can forbid the creation of topics
HIGHEST_METADATA: Final = 13
PASSING: Final = (DisconnectedError, KafkaTimeoutError, ClusterChangedError)


async def ask_nodes(connection: BrokerConnection, timeout_ms: float) -> MetadataResponse:
    """Request the nodes and the id of the cluster, and no topics. Raises KafkaError."""
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    version = connection.version(retry.METADATA, LOWEST_METADATA, HIGHEST_METADATA)
    reply: MetadataResponse = await connection.request(request, version, timeout_ms=timeout_ms)
    return reply


class Link(MutableValue, kw_only=False):
    """The connection to one address, and the results of recent attempts."""

    connection: BrokerConnection | None = None
    connecting: Event | None = None
    task: TaskHandle | None = None  # the task that connects
    failures: int = 0
    not_before_ms: int = 0
    error: Exception | None = None

    @property
    def live(self) -> BrokerConnection | None:
        """The connection if it is open, or None."""
        return None if self.connection is None or self.connection.closed else self.connection


class Links:
    """The links of one client. Each `lane` to an address has a connection of its own."""

    def __init__(
        self,
        runtime: Runtime,
        config: CommonConfig,
        lasting_errors: LastingErrors,
        make: Callable[[Address], Awaitable[BrokerConnection]],
        nodes: Callable[[], Iterable[Node]],
    ) -> None:
        """Create an empty set of links.

        Args:
            runtime: Clock, tasks and events.
            config: The settings.
            lasting_errors: Records failed and successful attempts.
            make: Opens a connection to an address. Raises KafkaError.
            nodes: Returns the brokers of the last metadata.
        """
        self._runtime = runtime
        self._config = config
        self._lasting_errors = lasting_errors
        self._make = make
        self._nodes = nodes
        self._down: set[Address] = set()  # addresses to which the last attempt failed
        self._links: dict[tuple[Address, str], Link] = {}
        self.traffic: CountersByLabel[Address, NodeTraffic] = CountersByLabel(NodeTraffic, "node", "node_id")
        self._created = 0  # connections
        self.connected: Callable[[BrokerConnection], object] | None = None  # gets each new connection
        self._closed = runtime.event()
        self._sought: set[Address] = set()  # addresses that are being looked for

    def __len__(self) -> int:
        """Return the number of links that were requested."""
        return len(self._links)

    def _traffic_of(self, nodes: Mapping[int, Node]) -> dict[str, float]:
        numbers = {(node.host, node.port): str(number) for number, node in list(nodes.items())}
        return self.traffic.series(numbers.get)

    def metrics(self, nodes: Mapping[int, Node]) -> dict[str, float]:
        """Return the numbers of connections, and the metrics of the requests to each node. Any thread may call it."""
        count = sum(link.live is not None for link in list(self._links.values()))
        return {"connection_creation_total": self._created, "connection_count": count, **self._traffic_of(nodes)}

    def close(self) -> None:
        """Close permanently. Requests in flight fail with DisconnectedError, later requests with ClosedError."""
        self._lasting_errors.end()
        self._closed.set()
        for link in self._links.values():
            if link.connection is not None:
                link.connection.close()
            if link.task is not None:
                link.task.cancel()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ClosedError("the client is closed")

    async def pause(self, ms: float) -> None:
        """Wait before another attempt. Raises ClosedError as soon as the client is closed."""
        await self._closed.wait(ms)
        self._check_open()

    def link(self, address: Address, lane: str = "") -> Link:
        return self._links.setdefault((address, lane), Link())

    def idlest(self) -> BrokerConnection | None:
        """Return the open connection outside of lanes with the fewest requests without a response, or None."""
        live = [self._usable(link) for (_, lane), link in self._links.items() if not lane]
        return min((it for it in live if it is not None), key=lambda connection: connection.unanswered, default=None)

    def open_connections(self) -> list[BrokerConnection]:
        """Return the open connections of all lanes."""
        usable = (self._usable(link) for link in self._links.values())
        return [connection for connection in usable if connection is not None]

    def throttled_since(self, since_ms: int) -> dict[Address, int]:
        """Return the largest throttle time in ms by address, of connections that a quota held back after `since_ms`."""
        found: dict[Address, int] = {}
        for (address, _), link in self._links.items():
            if link.connection is not None and link.connection.throttled_until_ms > since_ms:
                found[address] = max(found.get(address, 0), link.connection.throttle_ms)
        return found

    def is_live(self, address: Address) -> bool:
        """Return true if a connection to the address is open in any lane."""
        return any(link.live for (other, _), link in self._links.items() if other == address)

    async def connect(self, address: Address, deadline_ms: int, lane: str = "") -> BrokerConnection:
        """Return the open connection, or open a new one.

        The attempt continues after the deadline, for the next call. Raises ClosedError, KafkaTimeoutError, and the
        errors of opening.
        """
        link = self.link(address, lane)
        while True:
            self._check_open()
            usable = self._usable(link)
            if usable is not None:
                return usable
            left = deadline_ms - self._runtime.now_ms()
            if left <= 0:
                raise self._late(address, link)
            if link.connecting is None:
                wait = link.not_before_ms - self._runtime.now_ms()
                if wait > 0:
                    await self.pause(min(wait, left))
                    continue
                link.connecting = self._runtime.event()
                link.task = self._runtime.spawn(self._open(address, link, link.connecting))
            await link.connecting.wait(left)
            if link.connection is None and link.error is not None and link.connecting is None:
                raise without_traceback(link.error)

    def _late(self, address: Address, link: Link) -> KafkaTimeoutError:
        cause = link.error or (link.connection.ended if link.connection is not None else None)
        unfinished = ": connecting or logging in has not ended" if link.connecting is not None else ""
        reason = f": {cause}" if cause else unfinished
        where = f"{address_text(*address)}{through(self._config.proxy_url)}"
        late = KafkaTimeoutError(f"no connection to {where} in time{reason}")
        late.__cause__ = cause
        return late

    async def first_of(self, addresses: Sequence[Address], deadline_ms: int) -> BrokerConnection:
        """Return the first connection that opens. The next address is tried in parallel after `STAGGER_MS`.

        Raises an error that rules out all attempts, else the last error that may pass. ClusterChangedError is raised
        only if all attempts end with it.
        """
        if len(addresses) == 1:
            return await self.connect(addresses[0], deadline_ms)
        waiting = deque(addresses)
        ended: deque[BrokerConnection | Exception] = deque()
        news = self._runtime.event()

        async def attempt(address: Address) -> None:
            try:
                ended.append(await self.connect(address, deadline_ms))
            except Exception as failure:  # noqa: BLE001 (judged below)
                ended.append(failure)
            news.set()

        tasks: list[TaskHandle] = []
        failed = 0
        error: KafkaError | None = None
        try:
            while failed < len(addresses):
                if waiting:
                    tasks.append(self._runtime.spawn(attempt(waiting.popleft())))
                news.clear()
                if not ended:
                    await news.wait(STAGGER_MS if waiting else None)
                while ended:
                    outcome = ended.popleft()
                    if isinstance(outcome, BrokerConnection):
                        return outcome
                    if not isinstance(outcome, PASSING):
                        raise outcome
                    failed += 1
                    if error is None or not isinstance(outcome, ClusterChangedError):
                        error = outcome
        finally:
            for task in tasks:
                task.cancel()
        raise error or DisconnectedError("no broker can be reached")

    def _usable(self, link: Link) -> BrokerConnection | None:
        """Return the open connection, if it can be used.

        A connection that was idle too long is closed: a firewall may have dropped it, and a request on it would get no
        response.
        """
        connection = link.live
        if connection is None or connection.in_flight:
            return connection
        idle_ms = self._runtime.now_ms() - connection.used_ms
        if idle_ms <= self._config.connections_max_idle_ms:
            return connection
        log.debug("%s: closed, it was not used for %d ms", connection.name, idle_ms)
        connection.close()
        return None

    async def _open(self, address: Address, link: Link, ended: Event) -> None:
        """Connect, in a task of its own. Set `ended` at the end."""
        operation = f"broker {address[0]}:{address[1]}"
        try:
            link.connection = await self._make(address)
            link.connection.traffic = self.traffic.of(address)
            link.connection.on_silence = self._look_for
            self._created += 1
            if self.connected is not None:
                self.connected(link.connection)
            link.failures, link.error = 0, None
            self._down.discard(address)
            self._lasting_errors.succeeded(operation)
            self._lasting_errors.succeeded(ALL)
        except KafkaError as error:
            link.connection, link.error = None, error
            if not self._closed.is_set():
                self._lasting_errors.record(operation, error)
                self._failed(address, error)
            link.failures += 1
            link.not_before_ms = self._runtime.now_ms() + round(
                retry.backoff_ms(
                    link.failures - 1,
                    self._runtime.random(),
                    first_ms=self._config.reconnect_backoff_ms,
                    most_ms=self._config.reconnect_backoff_max_ms,
                )
            )
        except Exception as error:  # noqa: BLE001 (the waiting callers raise it)
            link.connection, link.error = None, error
        finally:
            link.connecting = link.task = None
            ended.set()
        if self._closed.is_set() and link.connection is not None:
            link.connection.close()

    def _look_for(self, silent: BrokerConnection) -> None:
        """Find out if the cluster still has the node of a connection that does not answer."""
        others = [address for node in self._nodes() if (address := (node.host, node.port)) != silent.address]
        if others and silent.address not in self._sought:
            self._sought.add(silent.address)
            self._runtime.spawn(self._close_if_gone(silent.address, silent.name, others))

    async def _close_if_gone(self, address: Address, name: str, others: list[Address]) -> None:
        """Close the silent connections to an address if another broker does not list it.

        Other nodes have replaced it by then. Otherwise each request to it would wait for `request_timeout_ms`.
        """
        try:
            nodes = await self._nodes_of_another(others)
        except KafkaError as error:
            log.debug("%s does not answer, and nobody says if it is there: %s", name, error)
            return
        finally:
            self._sought.discard(address)
        if not nodes or address in nodes:
            return
        reason = f"{name} has not answered for {SILENCE_MS // 1000} s, and is no longer in the cluster"
        for (where, _), link in list(self._links.items()):
            if where == address and link.live is not None and link.live.is_silent:
                link.live.close(DisconnectedError(reason, sent=True))

    def _unanswered(self, address: Address) -> int:
        """Return the number of requests behind which another one to this address would wait."""
        live = self.link(address).live
        return 0 if live is None else live.unanswered

    async def _nodes_of_another(self, others: list[Address]) -> set[Address]:
        """Return the addresses of the nodes that one of these brokers lists. Raises KafkaError."""
        deadline_ms = self._runtime.now_ms() + SILENCE_MS // 2
        others.sort(key=lambda address: (self._unanswered(address), self._runtime.random()))
        other = await self.first_of(others, deadline_ms)
        reply = await ask_nodes(other, deadline_ms - self._runtime.now_ms())
        return {(broker.host, broker.port) for broker in reply.brokers}

    def _failed(self, address: Address, error: KafkaError) -> None:
        """Record a failed attempt. Report an error if no broker can be reached any more."""
        if not isinstance(error, (DisconnectedError, KafkaTimeoutError)):
            return
        self._down.add(address)
        known = [(node.host, node.port) for node in self._nodes()] or [where for where, _ in self._links]
        if self._down.issuperset(known) and not any(link.live for link in self._links.values()):
            names = ", ".join(address_text(host, port) for host, port in known)
            down = AllBrokersDownError(f"{ALL} are down: {names}; the last error: {error}")
            down.__cause__ = error
            self._lasting_errors.record(ALL, down)
