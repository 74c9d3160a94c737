"""Assignment of groups and transactional ids to the partitions of the internal topics."""

from __future__ import annotations

import struct
from functools import lru_cache
from operator import mul

__all__ = ["coordinator_partition", "java_string_hash"]

_INT32_MIN = -(2**31)
_POWERS = [pow(31, exponent, 2**32) for exponent in range(256)]
_LONGEST_REMEMBERED = 256


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode()`, over UTF-16 code units, as a signed 32-bit number."""
    encoded = text.encode("utf-16-be", "surrogatepass")
    units = struct.unpack(f">{len(encoded) // 2}H", encoded)
    value = 0
    for start in range(0, len(units), len(_POWERS)):
        piece = units[start : start + len(_POWERS)]
        value = value * 31 ** len(piece) + sum(map(mul, reversed(piece), _POWERS))
    value &= 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def _absolute_hash(text: str) -> int:
    hashed = java_string_hash(text)
    return 0 if hashed == _INT32_MIN else abs(hashed)


_remembered = lru_cache(4096)(_absolute_hash)  # asked for several times for the id of one transaction


def coordinator_partition(key: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` or `__transaction_state` for a group id or transactional id.

    This is Kafka's `Utils.abs(hash) % partitions`, where `abs` maps the lowest int to 0.

    Raises:
        ValueError: `partitions` is less than 1.
    """
    if partitions < 1:
        raise ValueError(f"a topic of {partitions} partitions has no coordinator partition")
    return (_remembered(key) if len(key) <= _LONGEST_REMEMBERED else _absolute_hash(key)) % partitions
