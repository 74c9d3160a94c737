"""Settings of share groups (KIP-932), of the broker and of each group, with Kafka's names and defaults."""

from __future__ import annotations

import re
from typing import Final

from fencepost.arguments import MAX_INT32 as _I32
from fencepost.arguments import brief_repr
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
_HOUR_MS = 3_600_000


def _broker(key: str, default: int, doc: str, low: int = 1, high: int = _I32) -> Setting:
    return Setting(key, Kind.INT, str(default), doc, low, high)


SHARE_BROKER_SETTINGS = (
    _broker("group.share.delivery.count.limit", 5, "Maximum number of deliveries of a record.", 2, 10),
    _broker("group.share.heartbeat.interval.ms", 5000, "Heartbeat interval of share group members."),
    _broker("group.share.max.share.sessions", 2000, "Maximum number of share sessions."),
    _broker("group.share.max.size", 200, "Maximum number of members of a share group.", 1, 1000),
    _broker(
        "group.share.partition.max.record.locks",
        2000,
        "Maximum number of locked records of a group in a partition.",
        100,
        10_000,
    ),
    _broker("group.share.record.lock.duration.ms", 30_000, "Duration of a record lock.", 1000, _HOUR_MS),
    _broker("group.share.session.timeout.ms", 45_000, "Session timeout of share groups."),
    _broker("share.coordinator.state.topic.num.partitions", 50, "Partitions of __share_group_state."),
)
_BY_KEY = {setting.key: setting for setting in SHARE_BROKER_SETTINGS}


def _group(key: str) -> Setting:
    """Return a group setting whose default is a broker setting."""
    broker = _BY_KEY[f"group.{key}"]
    return Setting(
        key, Kind.INT, broker.default, broker.doc, broker.low, broker.high, broker_key=broker.key, dynamic=True
    )


SHARE_GROUP_SETTINGS = (
    Setting(
        AUTO_OFFSET_RESET,
        Kind.STRING,
        "latest",
        "Start in a new partition: earliest, latest, or by_duration:<ISO 8601 duration> ago.",
        dynamic=True,
    ),
    _group("share.delivery.count.limit"),
    _group("share.heartbeat.interval.ms"),
    Setting(
        "share.isolation.level",
        Kind.STRING,
        "read_uncommitted",
        "Isolation level: read_committed excludes records of open and aborted transactions.",
        choices=("read_committed", "read_uncommitted"),
        dynamic=True,
    ),
    _group("share.partition.max.record.locks"),
    _group("share.record.lock.duration.ms"),
    Setting("share.renew.acknowledge.enable", Kind.BOOLEAN, "true", "Allow members to renew locks.", dynamic=True),
    _group("share.session.timeout.ms"),
)


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration of days and smaller units. Raises InvalidSetting."""
    match = _ISO_8601.fullmatch(text.strip())
    parts = {name: value for name, value in match.groupdict().items() if value} if match else {}
    if not parts:
        raise InvalidSetting(f"{brief_repr(text)} is not an ISO 8601 duration")
    return round(sum(float(value) * _UNITS_MS[name] for name, value in parts.items()))


def check_auto_offset_reset(text: str) -> str:
    """Return the value in its usual spelling. Raises InvalidSetting."""
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
