"""ListConfigResources, v0-1 (KIP-1000, KIP-1142): resources with settings.

v0 lists client metrics, v1 the requested kinds, or all. Groups and client metrics are listed if they have settings of
their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.broker.api.common import BROKER_ID
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

__all__ = ["HANDLER"]

_TOPIC, _BROKER, _LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_KINDS = frozenset({_TOPIC, _BROKER, _LOGGER, _CLIENT_METRICS, _GROUP})


def _handle(call: Call, now_ms: int, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """List the resources."""
    kinds = {_CLIENT_METRICS} if call.version == 0 else set(request.resource_types) or _KINDS
    if not kinds <= _KINDS:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = [ConfigResource(resource_type=kind, resource_name=name) for kind, name in _all(call) if kind in kinds]
    return ListConfigResourcesResponse(config_resources=found)


def _all(call: Call) -> Iterator[tuple[int, str]]:
    yield _BROKER, str(BROKER_ID)
    yield _LOGGER, str(BROKER_ID)
    yield from ((_TOPIC, topic.name) for topic in call.core.topics)
    yield from ((_CLIENT_METRICS, name) for name in call.core.settings.client_metrics)
    yield from ((_GROUP, name) for name in call.core.settings.groups)


HANDLER = Handler(_handle)
