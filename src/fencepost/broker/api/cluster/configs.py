"""Settings of topics, of this broker and of groups as the configuration APIs see them.

Refusals are Kafka's, code and words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from fencepost.broker.api.common import BROKER_ID
from fencepost.broker.api.pieces import in_pieces
from fencepost.broker.connection import Call
from fencepost.broker.parts import BrokerParts
from fencepost.broker.settings.dynamic import ALL_BROKERS
from fencepost.broker.settings.table import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    InvalidSetting,
    Kind,
    check_value,
)
from fencepost.broker.settings.values import check_group_config, check_topic_config
from fencepost.broker.topics.catalogue import Topic, invalid_topic_name
from fencepost.protocol.codes import ErrorCode

__all__ = ["BROKER", "GROUP", "TOPIC", "Refused", "change_each", "find_topic", "is_list", "own_settings"]

TOPIC, BROKER, GROUP = 2, 4, 32
_TABLES = {TOPIC: TOPIC_SETTINGS, BROKER: BROKER_SETTINGS, GROUP: GROUP_SETTINGS}


_AT_ONCE: Final = 10  # resources; each change of a topic writes all topics down


class _Resource(Protocol):
    resource_type: int
    resource_name: str


class _Result(Protocol):
    error_code: int
    error_message: str | None


Resource = TypeVar("Resource", bound=_Resource)
Result = TypeVar("Result", bound=_Result)


class Refused(Exception):
    """A change or a question that is answered with an error code and a message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def find_topic(core: BrokerParts, name: str, missing: str) -> Topic:
    """The topic of that name. Raises Refused; `missing` is the message when there is none."""
    why = invalid_topic_name(name)
    if why is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    topic = core.topics.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing)
    return topic


def is_list(resource_type: int, key: str) -> bool:
    """Whether the setting is a list."""
    setting = _TABLES[resource_type].get(key)
    return setting is not None and setting.kind is Kind.LIST


def own_settings(core: BrokerParts, resource_type: int, name: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """(the settings that the resource itself has, the values that count of the lists). Raises Refused."""
    if resource_type == TOPIC:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        topic = find_topic(core, name, f"The topic '{name}' does not exist.")
        lists = {key: topic.config.text(key) for key, each in TOPIC_SETTINGS.items() if each.kind is Kind.LIST}
        return topic.given, lists
    if resource_type == BROKER:
        if name != ALL_BROKERS and not name.removeprefix("-").isdecimal():
            raise Refused(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        if name not in (ALL_BROKERS, str(BROKER_ID)):
            message = f"Unexpected broker id, expected {BROKER_ID}, but received {name}"
            raise Refused(ErrorCode.INVALID_REQUEST, message)
        lists = {key: core.config.text(key) for key, each in BROKER_SETTINGS.items() if each.kind is Kind.LIST}
        return core.settings.of_broker(name), lists
    if resource_type == GROUP:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        return core.settings.of_group(name).given, {}
    raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def change_each(
    call: Call,
    now_ms: int,
    request: Any,
    given: Callable[[Resource], Mapping[str, str]],
    result: Callable[..., Result],
    response: Callable[..., object],
) -> None:
    """Change the request's resources one by one, and reply with a result for each, others being served in between.

    `given` says what a resource's own settings are to be, or raises Refused; `result` and `response` are the API's
    messages.
    """
    named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    results: list[Result] = []

    def change_some(now_ms: int, resources: Sequence[Resource]) -> None:
        for resource in resources:
            kind, name = resource.resource_type, resource.resource_name
            done = result(resource_type=kind, resource_name=name)
            try:
                if named[kind, name] > 1:
                    raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                _change(call.core, now_ms, kind, name, given(resource), validate_only=request.validate_only)
            except Refused as refused:
                done.error_code, done.error_message = refused.code, refused.message
            results.append(done)

    def finish(_now_ms: int) -> None:
        call.reply(response(responses=results))

    in_pieces(call, now_ms, request, request.resources, change_some, finish, size=_AT_ONCE)


def _change(
    core: BrokerParts, now_ms: int, resource_type: int, name: str, given: Mapping[str, str], *, validate_only: bool
) -> None:
    """Make these the resource's own settings; they count at once. Raises Refused."""
    if resource_type == BROKER:
        _change_broker(core, name, given, validate_only)
    else:
        try:
            checked = check_topic_config(given) if resource_type == TOPIC else check_group_config(given)
        except InvalidSetting as error:
            raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error
        topic = core.topics.get(name)
        if validate_only:
            return
        if resource_type == GROUP:
            core.settings.set_group(name, checked)
        elif topic is not None:
            core.topics.set_configs(topic, checked)
    if not validate_only:
        core.settings_changed(now_ms)


def _change_broker(core: BrokerParts, name: str, given: Mapping[str, str], validate_only: bool) -> None:
    before = core.settings.of_broker(name)
    fixed = [
        key
        for key, value in given.items()
        if key in BROKER_SETTINGS and not BROKER_SETTINGS[key].dynamic and before.get(key) != value
    ]
    if fixed:
        message = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    try:
        # Kafka takes names that it does not know: a plugin might.
        checked = {
            key: check_value(BROKER_SETTINGS[key], value) if key in BROKER_SETTINGS else value
            for key, value in given.items()
        }
    except InvalidSetting as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from error
    if not validate_only:
        core.settings.set_broker(name, checked)
