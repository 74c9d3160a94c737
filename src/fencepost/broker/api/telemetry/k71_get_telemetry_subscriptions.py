"""GetTelemetrySubscriptions, v0 (KIP-714): the metrics that a client is to push, and how often.

ApiVersions lists this API while there is any subscription. It is served without one, too, for clients that have seen it
before. Sums are asked for as totals (no delta temporality): Prometheus needs them, and a lost push then costs nothing.
"""

from __future__ import annotations

from uuid import UUID

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.telemetry.clients import attributes_of
from fencepost.broker.client_instances import COMPRESSIONS
from fencepost.broker.connection import Call
from fencepost.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

__all__ = ["HANDLER"]

_NO_ID = UUID(int=0)


def _handle(call: Call, now_ms: int, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    """Answer with the client's subscription, or 89 before the interval has passed."""
    core = call.core
    given = request.client_instance_id
    instance = core.telemetry.get(core.new_uuid() if given in (None, _NO_ID) else given, attributes_of(call))
    code = instance.ask(core.steady_ms())
    if code:
        return GetTelemetrySubscriptionsResponse(error_code=code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=COMPRESSIONS,
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=core.config.number("telemetry.max.bytes"),
        delta_temporality=False,
        requested_metrics=instance.metrics,
    )


HANDLER = Handler(_handle)
