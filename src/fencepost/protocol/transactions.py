"""Numbers of the transaction protocol that brokers and clients share."""

from __future__ import annotations

from typing import Final

__all__ = ["FIRST_ENLISTING_PRODUCE", "LAST_EPOCH", "NO_TIMEOUT_MS"]

FIRST_ENLISTING_PRODUCE: Final = 12
"""From this version on, Produce adds its partition to the transaction (KIP-890)."""

LAST_EPOCH: Final = 2**15 - 1
"""The highest producer epoch. Only markers carry it: a client gets at most the epoch before, so it can be fenced."""

NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout that brokers store and report for a transaction that never times out (KIP-939)."""
