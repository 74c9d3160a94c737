"""Values of the broker's, topics' and groups' settings, with defaults."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import NamedTuple

from fencepost.arguments import did_you_mean
from fencepost.broker.settings.client_metrics import (
    CLIENT_METRICS_SETTINGS,
    InvalidSubscription,
    check_interval,
    subscription_of,
)
from fencepost.broker.settings.kafka_only import is_without_effect, refusal_reason
from fencepost.broker.settings.table import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    LISTENER_SETTINGS,
    TOPIC_SETTINGS,
    InvalidSetting,
    Setting,
    broker_setting,
    check_value,
)

__all__ = [
    "FROM_ALL_BROKERS",
    "FROM_DEFAULT",
    "FROM_GROUP",
    "FROM_START",
    "FROM_THIS_BROKER",
    "FROM_TOPIC",
    "BrokerConfig",
    "ClientMetricsSettings",
    "GroupSettings",
    "Origin",
    "TopicConfig",
    "check_client_metrics",
    "check_group_config",
    "check_topic_config",
]

_log = logging.getLogger("fencepost.broker")

# Sources of values, as numbered by DescribeConfigs.
FROM_TOPIC, FROM_THIS_BROKER, FROM_ALL_BROKERS, FROM_START, FROM_DEFAULT = 1, 2, 3, 4, 5
FROM_CLIENT_METRICS, FROM_GROUP = 7, 8


_PROTOCOLS = ("consumer", "share", "streams")
_QUEUED, _LARGEST = "queued.max.request.bytes", "socket.request.max.bytes"


class Origin(NamedTuple):
    """A candidate value of a setting. `source` is numbered as by DescribeConfigs."""

    key: str
    value: str
    source: int


class _Values:
    """Checked text values over the defaults of some settings, read by type."""

    __slots__ = ("_settings", "given")

    def __init__(self, settings: Mapping[str, Setting], given: Mapping[str, str]) -> None:
        self._settings = settings
        self.given = dict(given)

    def value(self, key: str) -> str | None:
        """Return the value as text, or None."""
        value = self.given.get(key)
        return self._default(self._settings[key]) if value is None else value

    def text(self, key: str) -> str:
        """Return the value as text, or ""."""
        return self.value(key) or ""

    def number(self, key: str) -> int:
        """Return the value of an integer setting."""
        return int(self.text(key))

    def flag(self, key: str) -> bool:
        """Return the value of a boolean setting."""
        return self.text(key) == "true"

    def _default(self, setting: Setting) -> str | None:
        return setting.default


_BOUND = re.compile(r"group\.(consumer|share|streams)\.(min|max)\.(.+)")


def _effect(key: str) -> str:
    """Return a description of the effect of a setting that this broker does not have."""
    bound = _BOUND.fullmatch(key)
    setting = GROUP_SETTINGS.get(f"{bound[1]}.{bound[3]}") if bound is not None else None
    if bound is None or setting is None:
        return "makes no difference to this broker"
    which, limit = ("lower", setting.low) if bound[2] == "min" else ("upper", setting.high)
    return f"is not needed: {setting.key} has no {which} bound here but {limit}"


class BrokerConfig(_Values):
    """The broker's settings by Kafka's names. The constructor raises InvalidSetting.

    `given` has the settings from the start. `changed` has those changed at run time for this broker, `changed_default`
    for all brokers, and `features` the levels of the cluster; these override the given ones.
    """

    __slots__ = ("changed", "changed_default", "features")

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        checked = {}
        for key, value in (given or {}).items():
            setting = broker_setting(key)
            if setting is None and is_without_effect(key, _spell(value)):
                _log.warning("Kafka's setting %s %s", key, _effect(key))
                continue
            if setting is None:
                reason = refusal_reason(key)
                if not reason:
                    raise InvalidSetting(f"there is no broker setting {key!r}{did_you_mean(key, BROKER_SETTINGS)}")
                raise InvalidSetting(f"Kafka's setting {key!r} cannot be honoured here: {reason}")
            checked[key] = check_value(setting, _spell(value))
        super().__init__(BROKER_SETTINGS, checked)
        self.changed: dict[str, str] = {}
        self.changed_default: dict[str, str] = {}
        self.features: dict[str, str] = {}
        self._check_queued_requests()
        for protocol in _PROTOCOLS:
            heartbeat, session = f"group.{protocol}.heartbeat.interval.ms", f"group.{protocol}.session.timeout.ms"
            if self.number(heartbeat) >= self.number(session):
                raise InvalidSetting(f"{heartbeat} must be less than {session}, which is {self.text(session)}")

    def value(self, key: str) -> str | None:
        """Return the value as text, or None."""
        for layer in (self.changed, self.changed_default, self.features):
            if key in layer:
                return layer[key]
        return super().value(key)

    def origins(self, key: str) -> list[Origin]:
        """Return all candidate values of the setting, the effective one first."""
        layers = (
            (FROM_THIS_BROKER, self.changed),
            (FROM_ALL_BROKERS, self.changed_default),
            (FROM_ALL_BROKERS, self.features),
            (FROM_START, self.given),
        )
        found = [Origin(key, layer[key], source) for source, layer in layers if key in layer]
        setting = BROKER_SETTINGS.get(key)
        if setting is not None and setting.default is not None:
            found.append(Origin(key, setting.default, FROM_DEFAULT))
        return found

    def of_listener(self, name: str, key: str) -> str:
        """Return a listener's setting: its own value, or the one for all listeners."""
        own = self.given.get(f"listener.name.{name.lower()}.{key}")
        return own if own is not None else self.given.get(key, LISTENER_SETTINGS[key].default or "")

    @property
    def most_queued_request_bytes(self) -> int:
        """Memory limit for incomplete and waiting requests in bytes; -1: no limit. One request always fits."""
        most = self.number(_QUEUED)
        return most if most < 0 else max(most, self.number(_LARGEST))

    def _check_queued_requests(self) -> None:
        most, largest = self.given.get(_QUEUED), self.number(_LARGEST)
        if most is not None and 0 <= int(most) < largest:
            raise InvalidSetting(f"{_QUEUED} ({most}) must be larger or equal to {_LARGEST} ({largest})")

    @property
    def waits_for_fsync(self) -> bool:
        """True if responses that promise durability wait for an fsync."""
        return self.text("fsync") == "commit"


class _ResourceConfig(_Values):
    """Settings of a resource whose defaults are broker settings."""

    __slots__ = ("_broker", "_source")

    def __init__(self, settings: Mapping[str, Setting], given: Mapping[str, str], broker: BrokerConfig) -> None:
        super().__init__(settings, given)
        self._broker = broker
        self._source = FROM_TOPIC

    def origins(self, key: str) -> list[Origin]:
        """Return all candidate values of the setting, the effective one first."""
        setting = self._settings[key]
        found = [Origin(key, self.given[key], self._source)] if key in self.given else []
        return found + (self._broker.origins(setting.broker_key) if setting.broker_key else [])

    def source(self, key: str) -> int:
        """Return the source of the value."""
        origins = self.origins(key)
        return origins[0].source if origins else FROM_DEFAULT

    def _default(self, setting: Setting) -> str | None:
        value = self._broker.value(setting.broker_key) if setting.broker_key else None
        if value is not None:
            return value
        for key, unit_ms in setting.coarser:
            coarse = self._broker.value(key)
            if coarse is not None:
                return str(int(coarse) * unit_ms) if int(coarse) >= 0 else coarse
        return setting.default


class TopicConfig(_ResourceConfig):
    """A topic's settings over the broker's defaults."""

    __slots__ = ()

    def __init__(self, given: Mapping[str, str], broker: BrokerConfig) -> None:
        super().__init__(TOPIC_SETTINGS, given, broker)

    @property
    def compacted(self) -> bool:
        """True if the topic is compacted."""
        return "compact" in self.text("cleanup.policy").split(",")


class GroupSettings(_ResourceConfig):
    """A group's settings over the broker's defaults."""

    __slots__ = ()

    def __init__(self, given: Mapping[str, str], broker: BrokerConfig) -> None:
        super().__init__(GROUP_SETTINGS, given, broker)
        self._source = FROM_GROUP


class ClientMetricsSettings(_Values):
    """The settings of a subscription to client metrics. Their defaults are fixed."""

    __slots__ = ()

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(CLIENT_METRICS_SETTINGS, given)

    def origins(self, key: str) -> list[Origin]:
        """Return the set value of the setting. Kafka does not name the default as a candidate."""
        return [Origin(key, self.given[key], FROM_CLIENT_METRICS)] if key in self.given else []


def check_topic_config(given: Mapping[str, str]) -> dict[str, str]:
    """Return the given topic settings in their usual spelling. Raises InvalidSetting, in Kafka's words."""
    checked = _check_all(TOPIC_SETTINGS, given, "topic")
    shortest, longest = (checked.get(key) for key in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
    if shortest is not None and longest is not None and int(shortest) > int(longest):
        raise InvalidSetting(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        )
    if checked.get("remote.storage.enable") == "true":
        reason = "Tiered Storage functionality is disabled in the broker."
        raise InvalidSetting(f"{reason} Topic cannot be configured with remote log storage.")
    return checked


def check_group_config(given: Mapping[str, str], broker: BrokerConfig) -> dict[str, str]:
    """Return the given group settings in their usual spelling. Raises InvalidSetting, in Kafka's words.

    `broker` has the values that the group does not set.
    """
    checked = _check_all(GROUP_SETTINGS, given, "group")
    group = GroupSettings(checked, broker)
    for protocol in _PROTOCOLS:
        heartbeat, session = f"{protocol}.heartbeat.interval.ms", f"{protocol}.session.timeout.ms"
        if not checked.keys().isdisjoint((heartbeat, session)) and group.number(session) <= group.number(heartbeat):
            raise InvalidSetting(f"{session} must be greater than {heartbeat}, which is {group.text(heartbeat)}")
    return checked


def check_client_metrics(given: Mapping[str, str]) -> dict[str, str]:
    """Return the given settings of a subscription in their usual spelling.

    Raises InvalidSubscription and InvalidSetting, in Kafka's words.
    """
    for key in given:
        if key not in CLIENT_METRICS_SETTINGS:
            raise InvalidSubscription(f"Unknown client metrics configuration: {key}")
    checked = {key: check_value(CLIENT_METRICS_SETTINGS[key], value) for key, value in given.items()}
    check_interval(checked)
    subscription_of(checked)
    return checked


def _check_all(settings: Mapping[str, Setting], given: Mapping[str, str], what: str) -> dict[str, str]:
    for key in given:
        if key not in settings:
            raise InvalidSetting(f"Unknown {what} config name: {key}")
    return {key: check_value(settings[key], value) for key, value in given.items()}


def _spell(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
