"""Base of the client cores, which report their metrics to the application and to brokers."""

from __future__ import annotations

from typing import Any, ClassVar

from fencepost.arguments import Milliseconds
from fencepost.client.net.cluster import Cluster
from fencepost.client.telemetry.pushing import Telemetry
from fencepost.client.telemetry.standard_names import Role

__all__ = ["ReportingCore"]


class ReportingCore:
    """A core with a cluster and `metrics`.

    Attributes:
        ROLE: The kind of client.
        telemetry: Its pushes to brokers.
    """

    ROLE: ClassVar[Role]
    cluster: Cluster
    telemetry: Telemetry

    def metrics(self) -> dict[str, float]:
        """Return counters and gauges. Any thread may call it."""
        raise NotImplementedError

    def _start_reports(self) -> None:
        """Start to call `on_statistics` and to push metrics."""
        self.cluster.callbacks.start(self.metrics)
        self.telemetry = Telemetry(self.cluster, self.ROLE, self.metrics)

    async def _disconnect(self, deadline_ms: int | None) -> None:
        """Close the connections, and wait for `on_error` and `on_statistics` until the deadline."""
        self.telemetry.stop()
        self.cluster.close()
        await self.cluster.callbacks.end(deadline_ms)

    async def client_instance_id(self: Any, timeout_ms: Milliseconds | None = None) -> str:
        """Return the id that a broker gave to this client, under which it pushes metrics (KIP-714).

        Args:
            timeout_ms: Maximum wait in ms; None: default_api_timeout_ms.

        Returns:
            The id as Kafka's tools print it.

        Raises:
            UsageError: enable_metrics_push is off.
            UnsupportedVersionError: The broker does not serve telemetry, or has no subscription.
            KafkaTimeoutError: No response in time.
            FatalError: The broker has refused telemetry.
        """
        telemetry: Telemetry = self.telemetry  # `self` is Any, so that each client has the method of its own core
        return await telemetry.instance_id(timeout_ms)
