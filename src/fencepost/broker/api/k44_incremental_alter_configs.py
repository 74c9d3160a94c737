"""IncrementalAlterConfigs, v0-1 (KIP-339): set (0), delete (1), append to (2) or subtract from (3) settings of a topic.

The last two are for lists. Settings of the broker are given at its start and refused here.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.api.configs import TOPIC, Refused, change_topic, refuse_other
from fencepost.broker.connection import Call
from fencepost.broker.settings import TOPIC_SETTINGS, Kind
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

__all__ = ["handle"]

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def handle(call: Call, now_ms: int, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Change the resources one by one; each has its own result."""
    responses = []
    for resource in request.resources:
        response = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            _change(call, resource, request.validate_only)
        except Refused as refused:
            response.error_code, response.error_message = refused.code, refused.message
        responses.append(response)
    return IncrementalAlterConfigsResponse(responses=responses)


def _change(call: Call, resource: AlterConfigsResource, validate_only: bool) -> None:
    if resource.resource_type != TOPIC:
        refuse_other(resource.resource_type, resource.resource_name)
    topic = call.core.topics.get(resource.resource_name)
    given: dict[str, str | None] = dict(topic.given) if topic is not None else {}
    if len({config.name for config in resource.configs}) != len(resource.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for config in resource.configs:
        if config.config_operation == _DELETE:
            given.pop(config.name, None)
        elif config.value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {config.name}")
        elif config.config_operation == _SET:
            given[config.name] = config.value
        else:
            current = topic.config.text(config.name) if topic is not None and config.name in TOPIC_SETTINGS else ""
            given[config.name] = _change_list(config, config.value, [part for part in current.split(",") if part])
    change_topic(call.core, resource.resource_name, given, validate_only)


def _change_list(config: AlterableConfig, value: str, current: Sequence[str]) -> str:
    setting = TOPIC_SETTINGS.get(config.name)
    if config.config_operation not in (_APPEND, _SUBTRACT) or setting is None or setting.kind is not Kind.LIST:
        message = f"Operation {config.config_operation} is not possible on {config.name}."
        raise Refused(ErrorCode.INVALID_CONFIG, message)
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if config.config_operation == _APPEND:
        return ",".join([*current, *(part for part in parts if part not in current)])
    return ",".join(part for part in current if part not in parts)
