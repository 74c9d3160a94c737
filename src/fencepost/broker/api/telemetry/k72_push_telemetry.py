"""PushTelemetry, v0 (KIP-714): a client's metrics, in OTLP and compressed, for the metrics endpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from uuid import UUID

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.telemetry.clients import attributes_of
from fencepost.broker.api.time_slices import Resume, in_turns
from fencepost.broker.client_instances import Instance
from fencepost.broker.connection import Call
from fencepost.broker.metrics.pushed import PushedSeries
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.errors import WireError
from fencepost.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from fencepost.protocol.records.batch import CODECS
from fencepost.protocol.records.compression import decompress
from fencepost.protocol.wire import uuid_text

__all__ = ["HANDLER"]

_RESERVED = (None, UUID(int=0), UUID(int=1))
_MOST_RATIO = 8  # of decompressed metrics to telemetry.max.bytes
_log = logging.getLogger("fencepost.broker.telemetry")


def _handle(call: Call, now_ms: int, request: PushTelemetryRequest) -> PushTelemetryResponse | None:
    """Take the metrics, serving other requests in between. Those that are no OTLP are INVALID_RECORD."""
    core, instance_id = call.core, request.client_instance_id
    if instance_id is None or instance_id in _RESERVED:
        return _response(call, ErrorCode.INVALID_REQUEST)
    client = attributes_of(call)
    instance = core.telemetry.get(instance_id, client)
    most_bytes = core.config.number("telemetry.max.bytes")
    size = len(request.metrics)
    code = instance.push(
        core.steady_ms(), request.subscription_id, request.compression_type, size, most_bytes, request.terminating
    )
    if code or not request.metrics:
        return _response(call, code)
    try:
        data = decompress(CODECS[request.compression_type], request.metrics, _MOST_RATIO * most_bytes)
    except WireError as error:
        return _unread(call, error)
    series = PushedSeries(bytes(data))

    def turn(_now_ms: int) -> Resume | None:
        try:
            if series.step():
                return core.soon
        except WireError as error:
            call.reply(_unread(call, error))
            return None
        _show(call, instance, client, series)
        call.reply(_response(call, ErrorCode.NONE))
        return None

    in_turns(call, now_ms, request, turn)
    return None


def _show(call: Call, instance: Instance, client: Mapping[str, str], series: PushedSeries) -> None:
    core = call.core
    core.pushed_metrics.replace(
        core.steady_ms(),
        instance.instance_id,
        {**client, "client_instance_id": uuid_text(instance.instance_id), "principal": call.connection.principal},
        series,
        instance.interval_ms,
        core.config.number("telemetry.max.series"),
    )
    if not series.whole:
        core.metrics.count("telemetry_cut_pushes")


def _unread(call: Call, error: WireError) -> PushTelemetryResponse:
    if times := call.core.unread_telemetry.hit(call.core.now.ms):
        why = "cannot read the metrics of %s: %s; %d times since the last such message"
        _log.warning(why, call.connection, error, times)
    return _response(call, ErrorCode.INVALID_RECORD)


def _response(call: Call, code: ErrorCode) -> PushTelemetryResponse:
    call.core.metrics.count("telemetry_refused" if code else "telemetry_pushes")
    return PushTelemetryResponse(error_code=code)


HANDLER = Handler(_handle)
