"""Settings of share groups (KIP-932), Kafka's names and defaults: of the broker, and of each group over these."""

from __future__ import annotations

import re
from typing import Final

from fencepost.broker.settings.setting import InvalidSetting, Kind, Setting

__all__ = [
    "AUTO_OFFSET_RESET",
    "BY_DURATION",
    "SHARE_BROKER_SETTINGS",
    "SHARE_GROUP_SETTINGS",
    "check_auto_offset_reset",
    "duration_ms",
]

AUTO_OFFSET_RESET = "share.auto.offset.reset"
BY_DURATION = "by_duration:"
_ISO_8601: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_I32 = 2**31 - 1
_HOUR_MS = 3_600_000


def _broker(key: str, default: int, doc: str, low: int = 1, high: int = _I32) -> Setting:
    return Setting(key, Kind.INT, str(default), doc, low, high)


SHARE_BROKER_SETTINGS = (
    _broker("group.share.delivery.count.limit", 5, "How often a record is handed out before it is given up.", 2, 10),
    _broker("group.share.heartbeat.interval.ms", 5000, "How often members of share groups send heartbeats."),
    _broker("group.share.max.share.sessions", 2000, "Most sessions of members of share groups at a time."),
    _broker("group.share.max.size", 200, "Most members of a share group.", 1, 1000),
    _broker(
        "group.share.partition.max.record.locks",
        2000,
        "Most records a group has and has not answered for.",
        100,
        10_000,
    ),
    _broker("group.share.record.lock.duration.ms", 30_000, "How long a record is a member's.", 1000, _HOUR_MS),
    _broker("group.share.session.timeout.ms", 45_000, "Session timeout of share groups."),
    _broker("share.coordinator.state.topic.num.partitions", 50, "Partitions of __share_group_state."),
)
_BY_KEY = {setting.key: setting for setting in SHARE_BROKER_SETTINGS}


def _group(key: str) -> Setting:
    """A setting that the broker has a default for."""
    broker = _BY_KEY[f"group.{key}"]
    return Setting(
        key, Kind.INT, broker.default, broker.doc, broker.low, broker.high, broker_key=broker.key, dynamic=True
    )


SHARE_GROUP_SETTINGS = (
    Setting(
        AUTO_OFFSET_RESET,
        Kind.STRING,
        "latest",
        "Where a group begins in a partition: earliest, latest, or by_duration:<ISO 8601 duration> ago.",
        dynamic=True,
    ),
    _group("share.delivery.count.limit"),
    _group("share.heartbeat.interval.ms"),
    Setting(
        "share.isolation.level",
        Kind.STRING,
        "read_uncommitted",
        "Whether records of open and aborted transactions are handed out.",
        choices=("read_committed", "read_uncommitted"),
        dynamic=True,
    ),
    _group("share.partition.max.record.locks"),
    _group("share.record.lock.duration.ms"),
    Setting(
        "share.renew.acknowledge.enable", Kind.BOOLEAN, "true", "Whether a member may ask for more time.", dynamic=True
    ),
    _group("share.session.timeout.ms"),
)


def duration_ms(text: str) -> int:
    """The milliseconds of an ISO 8601 duration of days and smaller units. Raises InvalidSetting."""
    match = _ISO_8601.fullmatch(text.strip())
    parts = {name: value for name, value in match.groupdict().items() if value} if match else {}
    if not parts:
        raise InvalidSetting(f"{text!r} is no ISO 8601 duration")
    return round(sum(float(value) * _UNITS_MS[name] for name, value in parts.items()))


def check_auto_offset_reset(text: str) -> str:
    """The setting in its usual spelling. Raises InvalidSetting."""
    usual = text.strip().lower()
    if usual.startswith(BY_DURATION):
        duration_ms(usual.removeprefix(BY_DURATION))
    elif usual not in ("earliest", "latest"):
        raise InvalidSetting(
            f"Invalid value {text} for configuration {AUTO_OFFSET_RESET}: Invalid value `{text}` for configuration "
            f"{AUTO_OFFSET_RESET}. The value must be either 'earliest', 'latest' or of the format "
            "'by_duration:<PnDTnHnMn.nS>'."
        )
    return usual
