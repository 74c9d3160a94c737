"""Settings of groups that are stored and shown, and make no difference here: assignments are made at once, on one node.

An administrator who sets one is not refused. Names, defaults and bounds are Apache Kafka 4.4's.
"""

from __future__ import annotations

from fencepost.broker.settings.setting import Kind, Setting

__all__ = ["STORED_GROUP_SETTINGS"]

_LONGEST_INTERVAL_MS = 15_000
_KINDS = ("consumer", "share", "streams")

STORED_GROUP_SETTINGS = (
    *(
        Setting(
            f"{kind}.assignment.interval.ms",
            Kind.INT,
            "0",
            "Kept for clients; assignments are made at once.",
            0,
            _LONGEST_INTERVAL_MS,
            dynamic=True,
        )
        for kind in _KINDS
    ),
    *(
        Setting(
            f"{kind}.assignor.offload.enable",
            Kind.BOOLEAN,
            "true",
            "Kept for clients; the one coordinator makes assignments itself.",
            dynamic=True,
        )
        for kind in _KINDS
    ),
    Setting(
        "streams.initial.rebalance.delay.ms",
        Kind.INT,
        "0",
        "Kept for clients; an empty group does not wait for more members.",
        0,
        2**31 - 1,
        dynamic=True,
    ),
)
