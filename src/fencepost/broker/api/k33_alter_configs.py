"""AlterConfigs, v0-2: replace all settings that a topic, the broker or a group has of its own by the given ones."""

from __future__ import annotations

from collections import Counter

from fencepost.broker.api.configs import Refused, change, own_settings
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

__all__ = ["handle"]


def handle(call: Call, now_ms: int, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Change the resources one by one; each has its own result."""
    named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        response = AlterConfigsResourceResponse(resource_type=kind, resource_name=name)
        try:
            if named[kind, name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            given = _given(resource)
            own_settings(call.core, kind, name)
            change(call.core, now_ms, kind, name, given, validate_only=request.validate_only)
        except Refused as refused:
            response.error_code, response.error_message = refused.code, refused.message
        responses.append(response)
    return AlterConfigsResponse(responses=responses)


def _given(resource: AlterConfigsResource) -> dict[str, str]:
    given: dict[str, str] = {}
    for config in resource.configs:
        if config.name in given:
            raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        if config.value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
        given[config.name] = config.value
    return given
