"""The reasons why a query cannot be moved."""

from __future__ import annotations

from fencepost.errors import ConfigurationError

__all__ = ["AdoptionRefusedError", "UndecidedBatchError"]


class AdoptionRefusedError(ConfigurationError):
    """The query cannot be moved in its present state. Nothing was written; the message says what to do."""


class UndecidedBatchError(AdoptionRefusedError):
    """A batch was begun, and the output proves neither all nor none of its rows. A person must choose."""
