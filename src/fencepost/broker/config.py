"""Values of the broker's settings, and of a topic's, with defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.broker.settings import (
    BROKER_SETTINGS,
    LISTENER_SETTINGS,
    TOPIC_SETTINGS,
    InvalidSetting,
    Setting,
    broker_setting,
    check_value,
)

__all__ = ["BrokerConfig", "TopicConfig", "check_topic_config"]


class _Values:
    """Checked text values over the defaults of some settings, read by type."""

    __slots__ = ("_settings", "given")

    def __init__(self, settings: Mapping[str, Setting], given: Mapping[str, str]) -> None:
        self._settings = settings
        self.given = dict(given)

    def text(self, key: str) -> str:
        """The value as it is written."""
        value = self.given.get(key)
        return self._default(self._settings[key]) if value is None else value

    def number(self, key: str) -> int:
        """The value of a whole number."""
        return int(self.text(key))

    def flag(self, key: str) -> bool:
        """The value of a boolean."""
        return self.text(key) == "true"

    def _default(self, setting: Setting) -> str:
        return setting.default


class BrokerConfig(_Values):
    """The broker's settings. Keys are Kafka's; `given` are the ones that were set. Raises InvalidSetting."""

    __slots__ = ()

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        checked = {}
        for key, value in (given or {}).items():
            setting = broker_setting(key)
            if setting is None:
                raise InvalidSetting(f"there is no broker setting {key!r}")
            checked[key] = check_value(setting, _spell(value))
        super().__init__(BROKER_SETTINGS, checked)

    def of_listener(self, name: str, key: str) -> str:
        """A listener's setting: its own value, or the one for all listeners."""
        own = self.given.get(f"listener.name.{name.lower()}.{key}")
        return own if own is not None else self.given.get(key, LISTENER_SETTINGS[key].default)

    @property
    def waits_for_fsync(self) -> bool:
        """Whether a promise of durability waits until the bytes are synced."""
        return self.text("fsync") == "commit"


class TopicConfig(_Values):
    """A topic's settings over the broker's defaults."""

    __slots__ = ("_broker",)

    def __init__(self, given: Mapping[str, str], broker: BrokerConfig) -> None:
        super().__init__(TOPIC_SETTINGS, given)
        self._broker = broker

    def _default(self, setting: Setting) -> str:
        return self._broker.text(setting.broker_key) if setting.broker_key else setting.default

    @property
    def compacted(self) -> bool:
        """Whether only the last record of each key has to be kept."""
        return "compact" in self.text("cleanup.policy").split(",")


def check_topic_config(given: Mapping[str, str | None]) -> dict[str, str]:
    """The given topic settings in their usual spelling; None values are left out. Raises InvalidSetting."""
    checked = {}
    for key, value in given.items():
        setting = TOPIC_SETTINGS.get(key)
        if setting is None:
            raise InvalidSetting(f"Unknown topic config name: {key}")
        if value is not None:
            checked[key] = check_value(setting, value)
    return checked


def _spell(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
