"""PushTelemetry, v0 (KIP-714): a client's metrics, in OTLP and compressed, for the metrics endpoint."""

from __future__ import annotations

import logging
from uuid import UUID

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.telemetry.clients import attributes_of
from fencepost.broker.client_instances import Instance, id_text
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from fencepost.protocol.records.batch import CODECS
from fencepost.protocol.records.compression import decompress

__all__ = ["HANDLER"]

_RESERVED = (None, UUID(int=0), UUID(int=1))
_MOST_RATIO = 8  # of decompressed metrics to telemetry.max.bytes
_log = logging.getLogger("fencepost.broker.telemetry")


def _handle(call: Call, now_ms: int, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Take the metrics. Those that are no OTLP are INVALID_RECORD."""
    core, instance_id = call.core, request.client_instance_id
    if instance_id is None or instance_id in _RESERVED:
        return PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
    client = attributes_of(call)
    instance = core.telemetry.get(instance_id, client)
    code = instance.push(
        core.steady_ms(),
        request.subscription_id,
        request.compression_type,
        len(request.metrics),
        core.config.number("telemetry.max.bytes"),
        request.terminating,
    )
    if not code and request.metrics:
        code = _take(call, instance, client, request)
    core.metrics.count("telemetry_refused" if code else "telemetry_pushes")
    return PushTelemetryResponse(error_code=code)


def _take(call: Call, instance: Instance, client: dict[str, str], request: PushTelemetryRequest) -> ErrorCode:
    core = call.core
    most_bytes = _MOST_RATIO * core.config.number("telemetry.max.bytes")
    try:
        data = decompress(CODECS[request.compression_type], request.metrics, most_bytes)
        whole = core.pushed_metrics.take(
            core.steady_ms(),
            instance.instance_id,
            {**client, "client_instance_id": id_text(instance.instance_id), "principal": call.connection.principal},
            bytes(data),
            instance.interval_ms,
            core.config.number("telemetry.max.series"),
        )
    except ProtocolError as error:
        if times := core.unread_telemetry.hit(core.now.ms):
            _log.warning(
                "cannot read the metrics of %s: %s; %d times since the last such message", call.connection, error, times
            )
        return ErrorCode.INVALID_RECORD
    if not whole:
        core.metrics.count("telemetry_cut_pushes")
    return ErrorCode.NONE


HANDLER = Handler(_handle)
