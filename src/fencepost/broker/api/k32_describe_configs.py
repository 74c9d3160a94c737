"""DescribeConfigs, v1-4: settings of topics (2), of this broker (4), and of nothing else. v3 adds types and
documentation.

Where a value comes from: 1 the topic, 4 the broker's start, 5 the default; synonyms list the same in the order in
which they count.
"""

from __future__ import annotations

from fencepost.broker.api.configs import BROKER, GROUP, TOPIC, Refused, is_this_broker
from fencepost.broker.config import BrokerConfig
from fencepost.broker.connection import Call
from fencepost.broker.settings import BROKER_SETTINGS, TOPIC_SETTINGS, Setting
from fencepost.broker.topics import Topic
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

__all__ = ["handle"]

_FROM_TOPIC, _FROM_BROKER, _DEFAULT = 1, 4, 5


def handle(call: Call, now_ms: int, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource."""
    results = []
    for wanted in request.resources:
        result = DescribeConfigsResult(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
        try:
            result.configs = _describe(call, wanted, request)
        except Refused as refused:
            result.error_code, result.error_message = refused.code, refused.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describe(
    call: Call, wanted: DescribeConfigsResource, request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    core = call.core
    keys = wanted.configuration_keys
    if wanted.resource_type == TOPIC:
        topic = core.topics.get(wanted.resource_name)
        if topic is None:
            message = f"The topic '{wanted.resource_name}' does not exist."
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        found = [
            _of_topic(topic, core.config, setting)
            for key, setting in TOPIC_SETTINGS.items()
            if keys is None or key in keys
        ]
    elif wanted.resource_type == BROKER and is_this_broker(wanted.resource_name):
        found = [
            _of_broker(core.config, setting) for key, setting in BROKER_SETTINGS.items() if keys is None or key in keys
        ]
    elif wanted.resource_type == GROUP:
        found = []
    else:
        message = f"Resource type {wanted.resource_type} with name {wanted.resource_name!r} is not known here."
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    for result in found:
        if not request.include_synonyms:
            result.synonyms = ()
        if not request.include_documentation:
            result.documentation = None
    return found


def _of_topic(topic: Topic, broker: BrokerConfig, setting: Setting) -> DescribeConfigsResourceResult:
    synonyms = []
    if setting.key in topic.given:
        synonyms.append(DescribeConfigsSynonym(name=setting.key, value=topic.given[setting.key], source=_FROM_TOPIC))
    if setting.broker_key:
        synonyms += _synonyms_of_broker(broker, BROKER_SETTINGS[setting.broker_key])
    else:
        synonyms.append(DescribeConfigsSynonym(name=setting.key, value=setting.default, source=_DEFAULT))
    return DescribeConfigsResourceResult(
        name=setting.key,
        value=topic.config.text(setting.key),
        config_source=synonyms[0].source,
        synonyms=synonyms,
        config_type=setting.kind,
        documentation=setting.doc,
    )


def _of_broker(broker: BrokerConfig, setting: Setting) -> DescribeConfigsResourceResult:
    synonyms = _synonyms_of_broker(broker, setting)
    return DescribeConfigsResourceResult(
        name=setting.key,
        value=broker.text(setting.key),
        read_only=True,
        config_source=synonyms[0].source,
        synonyms=synonyms,
        config_type=setting.kind,
        documentation=setting.doc,
    )


def _synonyms_of_broker(broker: BrokerConfig, setting: Setting) -> list[DescribeConfigsSynonym]:
    synonyms = [DescribeConfigsSynonym(name=setting.key, value=setting.default, source=_DEFAULT)]
    if setting.key in broker.given:
        synonyms.insert(
            0, DescribeConfigsSynonym(name=setting.key, value=broker.given[setting.key], source=_FROM_BROKER)
        )
    return synonyms
