"""IncrementalAlterConfigs, v0-1 (KIP-339): change single settings of a topic, of the broker or of a group.

Set is 0, delete 1, append 2 and subtract 3; the last two are for lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from fencepost.broker.api.configs import Refused, change, is_list, own_settings
from fencepost.broker.connection import Call
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
_NAMES = {_APPEND: "APPEND", _SUBTRACT: "SUBTRACT"}


def handle(call: Call, now_ms: int, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Change the resources one by one; each has its own result."""
    named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        response = AlterConfigsResourceResponse(resource_type=kind, resource_name=name)
        try:
            if named[kind, name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check(resource)
            own, lists = own_settings(call.core, kind, name)
            given = dict(own)
            for config in resource.configs:
                _apply(kind, config, given, lists)
            change(call.core, now_ms, kind, name, given, validate_only=request.validate_only)
        except Refused as refused:
            response.error_code, response.error_message = refused.code, refused.message
        responses.append(response)
    return IncrementalAlterConfigsResponse(responses=responses)


def _check(resource: AlterConfigsResource) -> None:
    if len({config.name for config in resource.configs}) != len(resource.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for config in resource.configs:
        if not _SET <= config.config_operation <= _SUBTRACT:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown operation type {config.config_operation}")
        if config.value is None and config.config_operation != _DELETE:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")


def _apply(kind: int, config: AlterableConfig, given: dict[str, str], lists: Mapping[str, str]) -> None:
    key, operation, value = config.name, config.config_operation, config.value or ""
    if operation == _DELETE:
        given.pop(key, None)
    elif operation == _SET:
        given[key] = value
    elif not is_list(kind, key):
        message = f"Can't {_NAMES[operation]} to key {key} because its type is not LIST."
        raise Refused(ErrorCode.INVALID_CONFIG, message)
    else:
        current = [part for part in lists.get(key, "").split(",") if part]
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if operation == _APPEND:
            current += [part for part in parts if part not in current]
        else:
            current = [part for part in current if part not in parts]
        given[key] = ",".join(current)
