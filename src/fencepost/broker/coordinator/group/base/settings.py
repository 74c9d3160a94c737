"""The settings that the group coordinator reads, under Kafka's names."""

from __future__ import annotations

from typing import Protocol

__all__ = ["CoordinatorSettings", "Numbers"]


class Numbers(Protocol):
    """Settings with numbers. Sizes are bytes or counts, times are in the unit of the name."""

    def number(self, key: str) -> int:
        """Return the value of a setting."""


class CoordinatorSettings(Numbers, Protocol):
    """The settings of the broker, and of each group.

    The coordinator and the kinds read the broker's settings once, when they are created. They read a group's settings
    each time.
    """

    def text(self, key: str) -> str:
        """Return the value of a setting as text."""

    def of_group(self, group_id: str) -> Numbers:
        """Return the settings of a group, with the broker's as defaults."""
