"""DescribeConfigs, v1-4: settings of topics (2), this broker (4), its loggers (8), client metrics (16) and groups (32).

v3 adds types and documentation. Synonyms are all possible values of a setting with their origins, in the order of
precedence. An empty broker name asks only for the settings that were changed for all brokers.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.broker.api.cluster.configs import BROKER, CLIENT_METRICS, GROUP, LOGGER, TOPIC, ConfigRefused, find_topic
from fencepost.broker.api.common import BROKER_ID
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.broker.parts import BrokerParts
from fencepost.broker.settings import loggers
from fencepost.broker.settings.client_metrics import CLIENT_METRICS_SETTINGS
from fencepost.broker.settings.dynamic import ALL_BROKERS
from fencepost.broker.settings.table import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS, Kind, Setting
from fencepost.broker.settings.values import (
    FROM_ALL_BROKERS,
    FROM_DEFAULT,
    ClientMetricsSettings,
    GroupSettings,
    Origin,
    TopicConfig,
)
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

__all__ = ["HANDLER"]

_TYPES = frozenset({TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP})
_FROM_LOGGER = 6


def _handle(call: Call, now_ms: int, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource. An unknown type fails the whole request, as in Kafka."""
    if any(wanted.resource_type not in _TYPES for wanted in request.resources):
        return DescribeConfigsResponse(results=[_unknown_type(wanted) for wanted in request.resources])
    results = []
    for wanted in request.resources:
        result = DescribeConfigsResult(
            resource_type=wanted.resource_type, resource_name=wanted.resource_name, error_message=""
        )
        try:
            result.configs = _describe(call.core, wanted, request)
        except ConfigRefused as refused:
            result.error_code, result.error_message = refused.code, refused.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _unknown_type(wanted: DescribeConfigsResource) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message="Unexpected resource type in the request.",
    )


def _describe(
    core: BrokerParts, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        entries = _of_resource(find_topic(core, name, "").config, TOPIC_SETTINGS.values())
    elif resource.resource_type == BROKER:
        entries = _of_all_brokers(core) if name == ALL_BROKERS else _of_broker(core, name)
    elif resource.resource_type == LOGGER:
        entries = _of_loggers(name)
    elif resource.resource_type == CLIENT_METRICS:
        if not name:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        entries = _of_resource(core.settings.of_client_metrics(name), CLIENT_METRICS_SETTINGS.values())
    else:
        if not name:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        entries = _of_resource(core.settings.of_group(name), GROUP_SETTINGS.values())
    keys = resource.configuration_keys
    shown = [result for result in entries if not keys or result.name in keys]
    for result in shown:
        if not request.include_synonyms:
            result.synonyms = ()
        if not request.include_documentation:
            result.documentation = None
    return shown


def _of_resource(
    config: TopicConfig | GroupSettings | ClientMetricsSettings, settings: Iterable[Setting]
) -> list[DescribeConfigsResourceResult]:
    """Describe the settings. A setting without a value is omitted, as Kafka does with `internal.segment.bytes`."""
    values = [(setting, config.value(setting.key)) for setting in settings]
    return [_result(setting, value, config.origins(setting.key)) for setting, value in values if value is not None]


def _of_broker(core: BrokerParts, name: str) -> list[DescribeConfigsResourceResult]:
    if not name.removeprefix("-").isdecimal():
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if name != str(BROKER_ID):
        message = f"Unexpected broker id, expected {BROKER_ID} or empty string, but received {name}"
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)
    config = core.config
    found = [_result(setting, config.value(key), config.origins(key)) for key, setting in BROKER_SETTINGS.items()]
    unknown = {*config.changed, *config.changed_default} - BROKER_SETTINGS.keys()
    return found + [_hidden(config.origins(key)) for key in sorted(unknown)]


def _of_loggers(name: str) -> list[DescribeConfigsResourceResult]:
    if not name:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if not name.removeprefix("-").isdecimal():
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if name != str(BROKER_ID):
        message = f"Unexpected broker id, expected {BROKER_ID} but received {name}"
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)
    return [
        DescribeConfigsResourceResult(
            name=logger, value=level, read_only=False, config_source=_FROM_LOGGER, documentation=""
        )
        for logger, level in loggers.levels().items()
    ]


def _of_all_brokers(core: BrokerParts) -> list[DescribeConfigsResourceResult]:
    found = []
    for key, value in core.config.changed_default.items():
        origins = [Origin(key, value, FROM_ALL_BROKERS)]
        setting = BROKER_SETTINGS.get(key)
        found.append(_hidden(origins) if setting is None else _result(setting, value, origins))
    return found


def _result(setting: Setting, value: str | None, origins: list[Origin]) -> DescribeConfigsResourceResult:
    secret = setting.kind is Kind.PASSWORD
    return DescribeConfigsResourceResult(
        name=setting.key,
        value=None if secret else value,
        read_only=not setting.dynamic,
        is_sensitive=secret,
        config_source=origins[0].source if origins else FROM_DEFAULT,
        synonyms=[
            DescribeConfigsSynonym(name=each.key, value=None if secret else each.value, source=each.source)
            for each in origins
        ],
        config_type=setting.kind,
        documentation=setting.doc,
    )


def _hidden(origins: list[Origin]) -> DescribeConfigsResourceResult:
    """Describe an unknown setting. Its value is not shown, because it could be a secret."""
    return DescribeConfigsResourceResult(
        name=origins[0].key,
        value=None,
        read_only=True,
        is_sensitive=True,
        config_source=origins[0].source,
        synonyms=[DescribeConfigsSynonym(name=each.key, value=None, source=each.source) for each in origins],
    )


HANDLER = Handler(_handle)
