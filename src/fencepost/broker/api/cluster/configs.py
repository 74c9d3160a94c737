"""Settings of topics, of this broker, its loggers, groups and client metrics, for the configuration APIs.

Error codes and messages are Kafka's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from fencepost.broker.api.common import BROKER_ID, absent_topic
from fencepost.broker.connection import Call
from fencepost.broker.disk.changes import Change
from fencepost.broker.parts import BrokerParts
from fencepost.broker.settings import loggers
from fencepost.broker.settings.client_metrics import InvalidSubscription
from fencepost.broker.settings.dynamic import ALL_BROKERS
from fencepost.broker.settings.table import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    InvalidSetting,
    Kind,
    Setting,
    check_value,
)
from fencepost.broker.settings.values import (
    TopicConfig,
    check_client_metrics,
    check_group_config,
    check_topic_config,
)
from fencepost.broker.topics.names import invalid_topic_name
from fencepost.broker.topics.topic import Topic
from fencepost.protocol.codes import ErrorCode

__all__ = [
    "BROKER",
    "CLIENT_METRICS",
    "GROUP",
    "LOGGER",
    "TOPIC",
    "ConfigRefused",
    "change_each",
    "check_logger_broker",
    "find_topic",
    "is_list",
    "own_settings",
]

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
_TABLES: Mapping[int, Mapping[str, Setting]] = {
    TOPIC: TOPIC_SETTINGS,
    BROKER: BROKER_SETTINGS,
    LOGGER: {},
    CLIENT_METRICS: {},  # Kafka does not treat their lists as lists
    GROUP: GROUP_SETTINGS,
}


_AT_ONCE: Final = 200  # number of resources whose changes are written together


class _Resource(Protocol):
    resource_type: int
    resource_name: str


class _Result(Protocol):
    error_code: int
    error_message: str | None


Resource = TypeVar("Resource", bound=_Resource)
Result = TypeVar("Result", bound=_Result)


class ConfigRefused(Exception):
    """A change or a query is answered with an error code and a message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def find_topic(core: BrokerParts, name: str, missing: str) -> Topic:
    """Return the topic of that name. Raises ConfigRefused; `missing` is the message if it does not exist."""
    topic = core.topics.get(name)
    if topic is None:
        code, why = absent_topic(name)
        raise ConfigRefused(code, why or missing)
    return topic


def is_list(resource_type: int, key: str) -> bool:
    """Return true if the setting is a list."""
    setting = _TABLES[resource_type].get(key)
    return setting is not None and setting.kind is Kind.LIST


def own_settings(core: BrokerParts, resource_type: int, name: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the resource's own settings, and the effective values of list settings.

    Raises ConfigRefused.

    A missing topic is refused only after its new settings were checked (`_Changes.add`), as in Kafka.
    """
    if resource_type == TOPIC:
        topic = core.topics.get(name)
        config = TopicConfig({}, core.config) if topic is None else topic.config
        lists = {key: config.text(key) for key, each in TOPIC_SETTINGS.items() if each.kind is Kind.LIST}
        return {} if topic is None else topic.given, lists
    if resource_type == BROKER:
        if name != ALL_BROKERS and not name.removeprefix("-").isdecimal():
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        if name not in (ALL_BROKERS, str(BROKER_ID)):
            message = f"Unexpected broker id, expected {BROKER_ID}, but received {name}"
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)
        lists = {key: core.config.text(key) for key, each in BROKER_SETTINGS.items() if each.kind is Kind.LIST}
        return core.settings.of_broker(name), lists
    if resource_type == LOGGER:
        check_logger_broker(name)
        return loggers.own_levels(), {}
    if resource_type == GROUP:
        return core.settings.of_group(name).given, {}
    if resource_type == CLIENT_METRICS:
        return core.settings.of_client_metrics(name).given, {}
    raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def check_logger_broker(name: str) -> None:
    """Check that a logger's resource names this broker. Raises ConfigRefused."""
    if not name.removeprefix("-").isdecimal():
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if name != str(BROKER_ID):
        message = f"Unexpected node id. Expected {BROKER_ID}, but received {name}"
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)


def change_each(
    call: Call,
    request: Any,
    changes_of: Callable[[Resource], Mapping[str, str]],
    result: Callable[..., Result],
    response: Callable[..., object],
) -> None:
    """Change the request's resources, serving other requests in between.

    Reply with a result for each.

    `changes_of` returns a resource's new own settings, or raises ConfigRefused. `result` and `response` are the API's
    messages.
    """
    named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    results: list[Result] = []

    def change_some(resources: Sequence[Resource]) -> Change[None]:
        changes = _Changes(call.core)
        for resource in resources:
            kind, name = resource.resource_type, resource.resource_name
            done = result(resource_type=kind, resource_name=name)
            try:
                if named[kind, name] > 1:
                    raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                changes.add(kind, name, changes_of(resource))
            except ConfigRefused as refused:
                done.error_code, done.error_message = refused.code, refused.message
            results.append(done)
        if not request.validate_only:
            yield from changes.make()

    def change_all() -> Change[object]:
        resources = request.resources
        for start in range(0, len(resources), _AT_ONCE):
            if start:
                yield _pass  # other requests are served even if no file was written
            yield from change_some(resources[start : start + _AT_ONCE])
        return response(responses=results)

    call.change(request, change_all())


def _pass() -> None:
    """Do nothing, as a step without a write."""


class _Changes:
    """Checked settings of resources, to be applied together: each file is written once."""

    def __init__(self, core: BrokerParts) -> None:
        self._core = core
        self._topics: dict[Topic, Mapping[str, str]] = {}
        self._groups: dict[str, Mapping[str, str]] = {}
        self._client_metrics: dict[str, Mapping[str, str]] = {}
        self._brokers: dict[str, Mapping[str, str]] = {}
        self._levels: Mapping[str, str] | None = None

    def add(self, resource_type: int, name: str, settings: Mapping[str, str]) -> None:
        """Check and add a resource's new settings. Raises ConfigRefused."""
        if resource_type == BROKER:
            self._brokers[name] = _checked_of_broker(self._core, name, settings)
            return
        if resource_type == LOGGER:
            self._levels = _checked_levels(settings)
            return
        if resource_type == CLIENT_METRICS:
            self._client_metrics[name] = _checked_client_metrics(name, settings)
            return
        if not name:
            what = "topic" if resource_type == TOPIC else "group"
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Default {what} resources are not allowed.")
        why = invalid_topic_name(name) if resource_type == TOPIC else None
        if why is not None:
            raise ConfigRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
        try:
            if resource_type == TOPIC:
                checked = check_topic_config(settings)
            else:
                checked = check_group_config(settings, self._core.config)
        except InvalidSetting as error:
            raise ConfigRefused(ErrorCode.INVALID_CONFIG, str(error)) from error
        if resource_type == GROUP:
            self._groups[name] = checked
        else:
            self._topics[find_topic(self._core, name, f"The topic '{name}' does not exist.")] = checked

    def make(self) -> Change[None]:
        """Apply the changes. They take effect at once. Raises OSError."""
        core = self._core
        if self._levels is not None:
            loggers.set_levels(self._levels)
        try:
            for name, given in self._brokers.items():
                yield from core.settings.set_broker(name, given)
            if self._groups:
                yield from core.settings.set_groups(self._groups)
            if self._client_metrics:
                yield from core.settings.set_client_metrics(self._client_metrics)
            if self._topics:
                yield from core.topics.set_configs(self._topics)
        finally:  # changes made before the disk refused the rest are in effect, too
            if self._brokers or self._groups or self._topics:
                core.settings_changed(core.now.ms)


def _checked_levels(given: Mapping[str, str]) -> Mapping[str, str]:
    """Check the levels of loggers. Raises ConfigRefused."""
    try:
        return loggers.check_levels(given)
    except InvalidSetting as error:
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, str(error)) from error


def _checked_client_metrics(name: str, given: Mapping[str, str]) -> Mapping[str, str]:
    """Check the settings of a subscription to client metrics. Raises ConfigRefused."""
    if not name:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    try:
        return check_client_metrics(given)
    except InvalidSubscription as error:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, str(error)) from error
    except InvalidSetting as error:
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, str(error)) from error


def _checked_of_broker(core: BrokerParts, name: str, settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings as they are stored. Raises ConfigRefused."""
    before = core.settings.of_broker(name)
    fixed = [
        key
        for key, value in settings.items()
        if key in BROKER_SETTINGS and not BROKER_SETTINGS[key].dynamic and before.get(key) != value
    ]
    if fixed:
        message = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)
    try:
        # Kafka accepts unknown names, because a plugin may use them.
        return {
            key: check_value(BROKER_SETTINGS[key], value) if key in BROKER_SETTINGS else value
            for key, value in settings.items()
        }
    except InvalidSetting as error:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, str(error)) from error
