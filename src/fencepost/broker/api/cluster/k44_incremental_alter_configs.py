"""IncrementalAlterConfigs, v0-1 (KIP-339): change single settings of a topic, the broker, its loggers or a group.

Loggers are KIP-412. Set is 0, delete 1, append 2 and subtract 3; the last two are for lists.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.broker.api.cluster.configs import LOGGER, ConfigRefused, change_each, is_list, own_settings
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.settings import loggers
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

__all__ = ["HANDLER"]

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_NAMES = {_APPEND: "APPEND", _SUBTRACT: "SUBTRACT"}


def _handle(call: Call, now_ms: int, request: IncrementalAlterConfigsRequest) -> None:
    def given(resource: AlterConfigsResource) -> dict[str, str]:
        _check(resource)
        own, lists = own_settings(call.core, resource.resource_type, resource.resource_name)
        settings = dict(own)
        for config in resource.configs:
            _apply(resource.resource_type, config, settings, lists)
        return settings

    change_each(call, request, given, AlterConfigsResourceResponse, IncrementalAlterConfigsResponse)


def _check(resource: AlterConfigsResource) -> None:
    if len({config.name for config in resource.configs}) != len(resource.configs):
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for config in resource.configs:
        if not _SET <= config.config_operation <= _SUBTRACT:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown operation type {config.config_operation}")
        if config.value is None and config.config_operation != _DELETE:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")


def _apply(kind: int, config: AlterableConfig, settings: dict[str, str], lists: Mapping[str, str]) -> None:
    key, operation, value = config.name, config.config_operation, config.value or ""
    if kind == LOGGER:
        _apply_level(key, operation, value, settings)
    elif operation == _DELETE:
        settings.pop(key, None)
    elif operation == _SET:
        settings[key] = value
    elif not is_list(kind, key):
        message = f"Can't {_NAMES[operation]} to key {key} because its type is not LIST."
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, message)
    else:
        current = [part for part in lists.get(key, "").split(",") if part]
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if operation == _APPEND:
            current += [part for part in parts if part not in current]
        else:
            current = [part for part in current if part not in parts]
        settings[key] = ",".join(current)


def _apply_level(logger: str, operation: int, level: str, given: dict[str, str]) -> None:
    if operation in _NAMES:
        message = f"{_NAMES[operation]} operation is not allowed for the BROKER_LOGGER resource"
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)
    if operation == _SET:
        given[logger] = level
    elif logger == loggers.ROOT:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    else:
        given.pop(logger, None)


HANDLER = Handler(_handle)
