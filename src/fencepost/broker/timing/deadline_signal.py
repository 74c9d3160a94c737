"""The sign that something is due earlier than the shell knows."""

from __future__ import annotations

__all__ = ["DeadlineSignal"]


class DeadlineSignal:
    """Set by every part that gets an earlier deadline; the shell looks at all deadlines only then.

    A deadline that moves later does not set it: the shell then comes too early once, and looks again.
    """

    __slots__ = ("is_set",)

    def __init__(self) -> None:
        self.is_set = True
