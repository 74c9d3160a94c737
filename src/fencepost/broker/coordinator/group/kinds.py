"""The table of group kinds: one row per kind."""

from __future__ import annotations

from typing import Any, Final

from fencepost.broker.coordinator.group.base.kind import DefaultKind, GroupKind
from fencepost.broker.coordinator.group.classic.membership import ClassicGroups
from fencepost.broker.coordinator.group.consumer.membership import ConsumerGroups
from fencepost.broker.coordinator.group.share.membership import ShareGroups
from fencepost.broker.coordinator.group.streams.membership import StreamsGroups

__all__ = ["DEFAULT_KIND", "KINDS", "OTHER_KINDS"]

DEFAULT_KIND: Final[type[DefaultKind[Any]]] = ClassicGroups
OTHER_KINDS: Final[tuple[type[GroupKind[Any]], ...]] = (
    ConsumerGroups,
    ShareGroups,
    StreamsGroups,
)
KINDS: Final[tuple[type[GroupKind[Any]], ...]] = (DEFAULT_KIND, *OTHER_KINDS)
