"""SCRAM mechanisms by Kafka's numbers (KIP-554) and names, and the limits that client and broker enforce."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

__all__ = ["FEWEST_ITERATIONS", "MOST_BROKER_ITERATIONS", "MOST_ITERATIONS", "SCRAM_HASHES", "ScramMechanism"]

SCRAM_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
FEWEST_ITERATIONS: Final = 4096  # RFC 7677
MOST_BROKER_ITERATIONS: Final = 16_384  # the most that brokers store
MOST_ITERATIONS: Final = 1_000_000  # limits the work that a hostile server or a wrong number can cause in a client


class ScramMechanism(IntEnum):
    """A mechanism of SCRAM."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The mechanism's SASL name, such as "SCRAM-SHA-256"."""
        return self.name.replace("_", "-")
