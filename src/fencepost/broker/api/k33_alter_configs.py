"""AlterConfigs, v0-2: replace all settings of a topic by the given ones.

Settings of the broker are given at its start and refused here.
"""

from __future__ import annotations

from fencepost.broker.api.configs import TOPIC, Refused, change_topic, refuse_other
from fencepost.broker.connection import Call
from fencepost.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

__all__ = ["handle"]


def handle(call: Call, now_ms: int, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Change the resources one by one; each has its own result."""
    responses = []
    for resource in request.resources:
        response = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            if resource.resource_type != TOPIC:
                refuse_other(resource.resource_type, resource.resource_name)
            given = {config.name: config.value for config in resource.configs}
            change_topic(call.core, resource.resource_name, given, request.validate_only)
        except Refused as refused:
            response.error_code, response.error_message = refused.code, refused.message
        responses.append(response)
    return AlterConfigsResponse(responses=responses)
