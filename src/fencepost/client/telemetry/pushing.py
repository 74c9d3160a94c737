"""Pushes one client's metrics in a task of its own (KIP-714).

The task starts with the first connection to a broker that supports telemetry. It uses connections that the client has
opened, and opens none. So it has no cost with other brokers, and cannot disturb a client whose brokers are unreachable.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from fencepost.client.net.cluster import Cluster
from fencepost.client.net.connection import BrokerConnection
from fencepost.client.net.runtime import TaskHandle
from fencepost.client.telemetry.reporter import Reporter, TelemetrySubscription
from fencepost.client.telemetry.standard_names import Role, chosen
from fencepost.client.telemetry.states import TelemetryState
from fencepost.errors import FatalError, KafkaError, KafkaTimeoutError, UnsupportedVersionError, UsageError
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from fencepost.protocol.messages.push_telemetry import PushTelemetryRequest
from fencepost.protocol.telemetry.otlp_writing import encode_data, encode_metric
from fencepost.protocol.wire import uuid_text

__all__ = ["Telemetry"]

log = logging.getLogger("fencepost.client.telemetry")

LAST_PUSH_MS: Final = 1_000  # maximum wait of close() for the last push
_ASK: Final = GetTelemetrySubscriptionsRequest.API_KEY
_PUSH: Final = PushTelemetryRequest.API_KEY
_TURN: Final = 200  # number of values to encode before other tasks run
_NS_PER_MS: Final = 1_000_000
# Settings that are pushed as attributes.
_ATTRIBUTES: Final = ("client_rack", "group_id", "group_instance_id", "transactional_id")


class Telemetry:
    """The telemetry of one client."""

    def __init__(self, cluster: Cluster, role: Role, metrics: Callable[[], Mapping[str, float]]) -> None:
        """Prepare for pushes, unless the settings forbid them.

        Args:
            cluster: The client's connections.
            role: The kind of client.
            metrics: Returns a snapshot of the client's metrics.
        """
        runtime = cluster.runtime
        self._runtime = runtime
        self._cluster = cluster
        self._config = cluster.config
        self._role = role
        self._metrics = metrics
        self._reporter = Reporter()
        self._before: Mapping[str, float] = {}  # the metrics of the last push that was not refused
        self._begun_ms = self._before_ms = runtime.wall_ms()
        self._broker = ""  # address of the broker of the last request
        self._task: TaskHandle | None = None
        self._connected = runtime.event()
        self._identified = runtime.event()
        self._answered = runtime.event()
        self._closing = False
        if self._config.enable_metrics_push:
            cluster.links.connected = self._is_connected

    def _is_connected(self, connection: BrokerConnection) -> None:
        if self._closing or not connection.offers(_PUSH, 0):
            return
        self._connected.set()
        if self._task is None:
            self._task = self._runtime.spawn(self._run())

    async def instance_id(self, timeout_ms: int | None) -> str:
        """Return the id that a broker gave to this client. See `ReportingCore.client_instance_id`."""
        if not self._config.enable_metrics_push:
            raise UsageError("client_instance_id() needs enable_metrics_push=True")
        patience_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._runtime.now_ms() + patience_ms
        if self._reporter.instance_id is None and self._task is None:
            await self._cluster.reached("the client's instance id", deadline_ms)
            if self._task is None:
                raise UnsupportedVersionError("no broker serves client telemetry, so this client has no instance id")
        while self._reporter.instance_id is None:
            if self._reporter.error:
                raise FatalError("the broker has refused client telemetry", code=self._reporter.error)
            left_ms = deadline_ms - self._runtime.now_ms()
            self._identified.clear()
            if not await self._identified.wait(max(left_ms, 0)):
                raise KafkaTimeoutError(f"no broker has named this client's instance id within {patience_ms} ms")
        return uuid_text(self._reporter.instance_id)

    async def end(self, deadline_ms: int | None) -> None:
        """Push for the last time, if brokers want metrics and are connected.

        Waits until the deadline, but at most `LAST_PUSH_MS`.
        """
        if self._closing:
            return
        self._closing = True
        latest_ms = self._runtime.now_ms() + LAST_PUSH_MS
        ends_ms = latest_ms if deadline_ms is None else min(latest_ms, deadline_ms)
        if self._reporter.state is TelemetryState.PUSH_IN_PROGRESS:  # a broker refuses a push after the last one
            self._answered.clear()
            await self._answered.wait(max(ends_ms - self._runtime.now_ms(), 0))
        self.stop()
        left_ms, connection = ends_ms - self._runtime.now_ms(), self._usable()
        if self._reporter.state is TelemetryState.TERMINATING_PUSH_NEEDED and connection is not None and left_ms > 0:
            await self._guarded(self._push(connection, left_ms))
        self.stop()

    def stop(self) -> None:
        """Stop all requests except the last push. A second call stops that, too."""
        self._closing = True
        self._reporter.close()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while not (self._closing or self._reporter.is_over):
            wait_ms = self._reporter.due_ms - self._runtime.now_ms()
            if wait_ms > 0:
                await self._runtime.sleep_ms(wait_ms)
                continue
            connection = self._usable()
            if connection is None:
                self._connected.clear()
                await self._connected.wait()
                continue
            timeout_ms = self._config.request_timeout_ms
            needs_subscription = self._reporter.needs_subscription
            if not await self._guarded((self._ask if needs_subscription else self._push)(connection, timeout_ms)):
                return

    def _usable(self) -> BrokerConnection | None:
        """Return an open connection to a broker that supports telemetry, if possible to that of the last request.

        Prefers connections with few requests in flight. A broker processes the requests of a connection one after
        another, so a push would wait for a fetch that the broker holds.
        """
        serving = [connection for connection in self._cluster.links.open_connections() if connection.offers(_PUSH, 0)]
        found = min(
            serving, key=lambda connection: (connection.name != self._broker, connection.in_flight), default=None
        )
        if found is not None:
            self._broker = found.name
        return found

    async def _guarded(self, request: Awaitable[None]) -> bool:
        """Await a request. Return true if the next one may be sent. The application never sees its errors."""
        try:
            await request
        except KafkaError as error:
            log.debug("client %r: telemetry: %s", self._config.client_id, error)
            self._reporter.unanswered(self._runtime.now_ms())
        except Exception:
            log.exception("client %r: telemetry ends, because of a defect", self._config.client_id)
            return False
        finally:
            self._answered.set()
        return True

    async def _ask(self, connection: BrokerConnection, timeout_ms: float) -> None:
        reply = await connection.request(self._reporter.ask(), connection.version(_ASK, 0, 0), timeout_ms=timeout_ms)
        self._reporter.subscribed(reply, self._runtime.now_ms(), self._runtime.random())
        self._log_refusal(reply.error_code)
        self._identified.set()

    async def _push(self, connection: BrokerConnection, timeout_ms: float) -> None:
        subscription = self._reporter.subscription
        if subscription is None:
            return
        metrics, wall_ms = self._metrics(), self._runtime.wall_ms()
        data = await self._encoded(subscription, metrics, wall_ms)
        request = self._reporter.push(data)
        if request is None:
            code = int(ErrorCode.TELEMETRY_TOO_LARGE)
        else:
            # A push without a response counts as accepted: its growth may be lost, but is never pushed twice.
            previous = self._before, self._before_ms
            self._before, self._before_ms = metrics, wall_ms
            reply = await connection.request(request, connection.version(_PUSH, 0, 0), timeout_ms=timeout_ms)
            code = reply.error_code
            if code:
                self._before, self._before_ms = previous
        self._reporter.pushed(code, self._runtime.now_ms())
        self._log_refusal(code)

    async def _encoded(self, subscription: TelemetrySubscription, metrics: Mapping[str, float], wall_ms: int) -> bytes:
        """Return the wanted metrics as OTLP. Other tasks can run meanwhile."""
        begun_ms = self._before_ms if subscription.is_delta else self._begun_ms
        times = begun_ms * _NS_PER_MS, wall_ms * _NS_PER_MS
        passed_ms = wall_ms - self._before_ms
        encoded: list[bytes] = []
        values = 0
        wanted = chosen(
            self._role, subscription.wants, metrics, self._before, passed_ms, is_delta=subscription.is_delta
        )
        for name, kind, points in wanted:
            for first in range(0, len(points), _TURN):
                encoded.append(encode_metric(name, kind, points[first : first + _TURN], *times))
                values += len(points[first : first + _TURN])
                if values >= _TURN:
                    values = 0
                    await self._runtime.sleep_ms(0)
        return encode_data(self._attributes(), encoded)

    def _attributes(self) -> dict[str, str]:
        found = {name: getattr(self._config, name, None) for name in _ATTRIBUTES}
        return {name: value for name, value in found.items() if value}

    def _log_refusal(self, code: int) -> None:
        if not code:
            return
        if self._reporter.error:
            words = "client %r: the broker refuses telemetry (error code %d), which ends"
            log.warning(words, self._config.client_id, code)
        else:
            log.info("client %r: telemetry was not taken (error code %d)", self._config.client_id, code)
