"""The reasons why a query cannot be moved."""

from __future__ import annotations

from fencepost.errors import ConfigurationError

__all__ = ["AdoptionRefusedError", "UndecidedBatchError"]


class AdoptionRefusedError(ConfigurationError):
    """The query cannot be moved as it is. Nothing was written; the message says what to do."""


class UndecidedBatchError(AdoptionRefusedError):
    """A batch was begun, and nothing proves that the output has all of it, or nothing of it. A person has to choose."""
