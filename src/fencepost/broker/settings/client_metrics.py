"""Settings of subscriptions to client metrics (KIP-714), with Kafka's names, defaults, checks and messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from fencepost.broker.settings.setting import InvalidSetting, Kind, Setting
from fencepost.protocol.re2 import InvalidPattern, Pattern, compile_pattern
from fencepost.protocol.telemetry import DEFAULT_INTERVAL_MS, LEAST_INTERVAL_MS

__all__ = [
    "ALL_METRICS",
    "CLIENT_METRICS_SETTINGS",
    "InvalidSubscription",
    "MetricsSubscription",
    "check_interval",
    "subscription_of",
]

ALL_METRICS: Final = "*"
_HIGHEST_MS: Final = 3_600_000

_INTERVAL = Setting(
    "interval.ms", Kind.INT, str(DEFAULT_INTERVAL_MS), "Metrics push interval in milliseconds", dynamic=True
)
_MATCH = Setting("match", Kind.LIST, "", "Client match criteria", dynamic=True)
_METRICS = Setting("metrics", Kind.LIST, "", "Telemetry metric name prefix list", dynamic=True)
CLIENT_METRICS_SETTINGS: Mapping[str, Setting] = {each.key: each for each in (_INTERVAL, _MATCH, _METRICS)}

_ATTRIBUTES: Final = frozenset(
    (
        *("client_instance_id", "client_id", "client_software_name", "client_software_version"),
        *("client_source_address", "client_source_port"),
    )
)


class InvalidSubscription(InvalidSetting):
    """An unknown setting or an interval out of range, which Kafka answers with another code than other errors."""


class MetricsSubscription(NamedTuple):
    """A subscription.

    Attributes:
        metrics: Prefixes of the metrics' names; "*" for all.
        interval_ms: Time between two pushes of a client.
        match: Patterns of the client's attributes, all of which must match.
    """

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Pattern]

    def is_for(self, client: Mapping[str, str]) -> bool:
        """Return true if the client has all attributes that the subscription asks for."""
        return all(pattern.matches(client[name]) for name, pattern in self.match.items())


def check_interval(settings: Mapping[str, str]) -> None:
    """Check the range of `interval.ms` in checked settings. Raises InvalidSubscription."""
    text = settings.get(_INTERVAL.key, str(DEFAULT_INTERVAL_MS))
    if not LEAST_INTERVAL_MS <= int(text) <= _HIGHEST_MS:
        limits = f"interval must be between {LEAST_INTERVAL_MS} and {_HIGHEST_MS} (1 hour)"
        raise InvalidSubscription(f"Invalid value {text} for interval.ms, {limits}")


def subscription_of(settings: Mapping[str, str]) -> MetricsSubscription:
    """Return the subscription with these checked settings. Raises InvalidSetting for an invalid pattern."""

    def parts(key: str) -> list[str]:
        return [part for part in settings.get(key, "").split(",") if part]

    interval_ms = int(settings.get(_INTERVAL.key, DEFAULT_INTERVAL_MS))
    return MetricsSubscription(tuple(parts(_METRICS.key)), interval_ms, dict(map(_matching, parts(_MATCH.key))))


def _matching(text: str) -> tuple[str, Pattern]:
    """Return attribute and pattern of `client_id=a.*`. Raises InvalidSetting."""
    illegal = InvalidSetting(f"Illegal client matching pattern: {text}")
    name, *patterns = (part.strip() for part in text.split("="))
    if len(patterns) != 1 or name not in _ATTRIBUTES:
        raise illegal
    try:
        return name, compile_pattern(patterns[0])
    except InvalidPattern as error:
        raise illegal from error
