"""AlterConfigs, v0-2: replace all own settings of a topic, the broker or a group."""

from __future__ import annotations

from fencepost.broker.api.cluster.configs import LOGGER, ConfigRefused, change_each, own_settings
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

__all__ = ["HANDLER"]


def _handle(call: Call, now_ms: int, request: AlterConfigsRequest) -> None:
    def given(resource: AlterConfigsResource) -> dict[str, str]:
        settings = _given(resource)
        if resource.resource_type == LOGGER:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {LOGGER}")
        own_settings(call.core, resource.resource_type, resource.resource_name)  # refuses an unknown kind of resource
        return settings

    change_each(call, request, given, AlterConfigsResourceResponse, AlterConfigsResponse)


def _given(resource: AlterConfigsResource) -> dict[str, str]:
    given: dict[str, str] = {}
    for config in resource.configs:
        if config.name in given:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        if config.value is None:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
        given[config.name] = config.value
    return given


HANDLER = Handler(_handle)
