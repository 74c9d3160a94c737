"""Features of the cluster: supported levels, current levels, and updates (KIP-584).

The code is pure. Texts are Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = [
    "METADATA_VERSION",
    "STREAMS_VERSION",
    "SUPPORTED",
    "TRANSACTION_VERSION",
    "InvalidUpdate",
    "Update",
    "updated",
]

METADATA_VERSION, TRANSACTION_VERSION = "metadata.version", "transaction.version"
STREAMS_VERSION = "streams.version"
# Level 33 of metadata.version is the last of Apache Kafka 4.4: some admin tools read a cluster's age from it.
SUPPORTED: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (7, 33),
    TRANSACTION_VERSION: (0, 2),
    STREAMS_VERSION: (0, 1),
    "group.version": (0, 1),
    "share.version": (0, 2),
    "kraft.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
}

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
_FIXED = SUPPORTED.keys() - {TRANSACTION_VERSION}
"""Always at their highest level: on one node they are always supported or have no effect."""
_DOWNGRADE_MEANT = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
)


class InvalidUpdate(Exception):
    """An update is invalid; none is carried out."""


class Update(NamedTuple):
    """A feature's new level. `kind` 1 allows only upgrades, 2 and 3 also downgrades."""

    feature: str
    level: int
    kind: int


def updated(levels: Mapping[str, int], updates: Sequence[Update]) -> dict[str, int]:
    """Return the levels after all updates. Raises InvalidUpdate."""
    result = dict(levels)
    for update in updates:
        reason = _refusal(levels, update)
        if reason is not None:
            what = f"Invalid update version {update.level} for feature {update.feature}. {reason}"
            raise InvalidUpdate(f"The update failed for all features since the following feature had an error: {what}")
        result[update.feature] = update.level
    return result


def _refusal(levels: Mapping[str, int], update: Update) -> str | None:
    if update.kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    supported = SUPPORTED.get(update.feature)
    if supported is None:
        return "Local controller 1 does not support this feature."
    low, high = supported
    if not low <= update.level <= high:
        return f"Local controller 1 only supports versions {low}-{high}"
    current = levels[update.feature]
    if update.level < current:
        if update.kind == UPGRADE:
            return f"{_DOWNGRADE_MEANT} downgrade."
        if update.feature in _FIXED:
            return f"Level {current} of this feature is the only one here."
    if update.level > current and update.kind != UPGRADE:
        return "Can't downgrade to a newer version."
    return None
