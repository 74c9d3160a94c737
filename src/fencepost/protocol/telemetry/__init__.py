"""Metrics that clients push to brokers (KIP-714)."""

from __future__ import annotations

from typing import Final

__all__ = ["DEFAULT_INTERVAL_MS", "LEAST_INTERVAL_MS"]

DEFAULT_INTERVAL_MS: Final = 300_000
"""Time between two pushes if no subscription sets another."""
LEAST_INTERVAL_MS: Final = 100
"""Lowest interval that a subscription can set."""
