"""Settings of streams groups (KIP-1071), of the broker and of each group, with Kafka's names and defaults."""

from __future__ import annotations

from fencepost.arguments import MAX_INT32 as _I32
from fencepost.broker.settings.setting import Kind, Setting

__all__ = ["STREAMS_BROKER_SETTINGS", "STREAMS_GROUP_SETTINGS"]


def _broker(key: str, default: int, doc: str, low: int = 1, high: int = _I32) -> Setting:
    return Setting(key, Kind.INT, str(default), doc, low, high)


STREAMS_BROKER_SETTINGS = (
    _broker("group.streams.heartbeat.interval.ms", 5000, "Heartbeat interval of streams group members."),
    _broker("group.streams.max.size", _I32, "Maximum number of members of a streams group."),
    _broker("group.streams.num.standby.replicas", 0, "Number of standby replicas of each task's state.", 0, 2),
    _broker("group.streams.session.timeout.ms", 45_000, "Session timeout of streams groups."),
)
_BY_KEY = {setting.key: setting for setting in STREAMS_BROKER_SETTINGS}


def _group(key: str) -> Setting:
    """Return a group setting whose default is a broker setting."""
    broker = _BY_KEY[f"group.{key}"]
    return Setting(
        key, Kind.INT, broker.default, broker.doc, broker.low, broker.high, broker_key=broker.key, dynamic=True
    )


STREAMS_GROUP_SETTINGS = (
    _group("streams.heartbeat.interval.ms"),
    _group("streams.num.standby.replicas"),
    _group("streams.session.timeout.ms"),
)
