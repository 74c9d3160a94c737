"""The result of comparing a begun batch with the output. A separate module, because the comparison needs numpy."""

from __future__ import annotations

from enum import Enum

__all__ = ["BatchVerdict"]


class BatchVerdict(Enum):
    """The part of a begun batch that is in the output. UNDECIDED: the records do not prove it."""

    NOTHING = "nothing"
    WHOLE = "whole"
    PARTLY = "partly"
    UNDECIDED = "undecided"
