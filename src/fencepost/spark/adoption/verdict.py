"""The result of comparing a begun batch with the output. Apart from the comparison, which needs numpy."""

from __future__ import annotations

from enum import Enum

__all__ = ["BatchVerdict"]


class BatchVerdict(Enum):
    """The part of a begun batch that the output has."""

    NOTHING = "nothing"
    WHOLE = "whole"
    PARTLY = "partly"
    UNDECIDED = "undecided"
