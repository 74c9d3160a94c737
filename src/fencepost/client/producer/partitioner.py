"""The choice of a record's partition, as in Kafka's Java producer.

With a key: murmur2(key), sign bit cleared, modulo the number of partitions. Without a key: the topic's sticky
partition, changed at random after `batch_size` bytes (KIP-480, KIP-794). A partition with fewer waiting batches is more
likely. librdkafka's clients hash keys with CRC-32 instead, as `partitioner="consistent_random"` does. `BY_NAME` has all
of librdkafka's names.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.protocol.records import engine

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

UNDECIDED: Final = -1  # neither a requested partition nor a key determines it
SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995


def murmur2(data: bytes | bytearray | memoryview) -> int:
    """Return Kafka's 32-bit murmur2 hash of a key, unsigned."""
    length = len(data)
    h = (SEED ^ length) & 0xFFFFFFFF
    whole = length & ~3
    for at in range(0, whole, 4):
        k = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        k = (k * _M) & 0xFFFFFFFF
        k ^= k >> 24
        k = (k * _M) & 0xFFFFFFFF
        h = ((h * _M) & 0xFFFFFFFF) ^ k
    rest = length - whole
    if rest >= 3:
        h ^= data[whole + 2] << 16
    if rest >= 2:
        h ^= data[whole + 1] << 8
    if rest >= 1:
        h = ((h ^ data[whole]) * _M) & 0xFFFFFFFF
    h ^= h >> 13
    h = (h * _M) & 0xFFFFFFFF
    return h ^ (h >> 15)


def partition_for_key(key: bytes | bytearray | memoryview, partitions: int) -> int:
    """Return the partition of a key in Java's default partitioner."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def librdkafka_partition_for_key(key: bytes | bytearray | memoryview, partitions: int) -> int:
    """Return the partition of a non-empty key in librdkafka's default partitioner, `consistent_random`."""
    return zlib.crc32(key) % partitions


def librdkafka_partitions(keys: Sequence[bytes], partitions: int) -> list[int]:
    """Return the partition of each key in librdkafka's default partitioner. An empty key counts as none: UNDECIDED."""
    return [librdkafka_partition_for_key(key, partitions) if key else UNDECIDED for key in keys]


def partitions_for_keys(keys: Sequence[bytes], partitions: int) -> list[int]:
    """Return `partition_for_key` of every key."""
    if engine.is_native:
        return engine.native.partitions_of_keys(keys, partitions)
    return [partition_for_key(key, partitions) for key in keys]


def partitions_for_blob(
    blob: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], partitions: int
) -> npt.NDArray[np.int32]:
    """Return `partition_for_key` of keys stored one after another in `blob`. `ends` has the end of each."""
    import numpy as np

    if engine.is_native:
        return np.frombuffer(engine.native.partitions_of_blob(blob, np.ascontiguousarray(ends), partitions), np.int32)
    whole, bounds = blob.tobytes(), [0, *ends.tolist()]
    chosen = (partition_for_key(whole[start:end], partitions) for start, end in pairwise(bounds))
    return np.fromiter(chosen, np.int32, len(ends))


def fnv1a(data: bytes | bytearray | memoryview) -> int:
    """Return the 32-bit FNV-1a hash of a key as in librdkafka and Sarama: the absolute value of a signed number."""
    h = 0x811C9DC5
    for byte in data:
        h = ((h ^ byte) * 0x01000193) & 0xFFFFFFFF
    return h if h < 0x80000000 else 0x100000000 - h


def fnv1a_partitions(keys: Sequence[bytes], partitions: int) -> list[int]:
    """Return the partition of each key in librdkafka's `fnv1a`."""
    return [fnv1a(key) % partitions for key in keys]


def crc32_partitions(keys: Sequence[bytes], partitions: int) -> list[int]:
    """Return the partition of each key in librdkafka's `consistent`."""
    return [librdkafka_partition_for_key(key, partitions) for key in keys]


class ByKey(NamedTuple):
    """A choice of partitions by keys.

    Attributes:
        partitions: Returns the partition of each key for a number of partitions. UNDECIDED: the key counts as none.
        hashes_none: Records without a key go to the partition of an empty key; otherwise to the sticky partition.
        is_native: The native module makes the same choice.
    """

    partitions: Callable[[Sequence[bytes], int], list[int]]
    hashes_none: bool = False
    is_native: bool = False


BY_NAME: Final[dict[str, ByKey | None]] = {
    "murmur2_random": ByKey(partitions_for_keys, is_native=True),
    "murmur2": ByKey(partitions_for_keys, hashes_none=True),
    "consistent_random": ByKey(librdkafka_partitions),
    "consistent": ByKey(crc32_partitions, hashes_none=True),
    "fnv1a_random": ByKey(fnv1a_partitions),
    "fnv1a": ByKey(fnv1a_partitions, hashes_none=True),
    "random": None,
}


def by_key(partitioner: str | Callable[..., object], *, ignore_keys: bool) -> ByKey | None:
    """Return the choice by keys for the settings `partitioner` and `partitioner_ignore_keys`; None: ignore keys.

    If a partitioner function returns no partition, the default applies.
    """
    if ignore_keys:
        return None
    return BY_NAME[partitioner] if isinstance(partitioner, str) else BY_NAME["murmur2_random"]


def split(chosen: Sequence[int]) -> dict[int, list[int]]:
    """Return the rows of each partition in order. `chosen` has the partition of each row."""
    if engine.is_native:
        return engine.native.split_rows(chosen)
    rows_of: defaultdict[int, list[int]] = defaultdict(list)
    for row, partition in enumerate(chosen):
        rows_of[partition].append(row)
    return dict(rows_of)


class Sticky:
    """The partition for records without a key, per topic."""

    def __init__(
        self, bytes_per_turn: int, random: Callable[[], float], waiting: Callable[[str, int], int] | None = None
    ) -> None:
        """Create a choice without a history.

        Args:
            bytes_per_turn: Bytes after which a topic's partition changes.
            random: Returns a random number in [0, 1).
            waiting: Returns the number of batches in a partition's queue; None: all partitions are equally likely.
        """
        self._bytes_per_turn = bytes_per_turn
        self._random = random
        self._waiting = waiting
        self._turns: dict[str, tuple[int, int]] = {}  # topic -> (partition, bytes sent to it this turn)

    def choose(self, topic: str, size: int, candidates: Sequence[int]) -> int:
        """Return the partition for `size` bytes. `candidates` are the topic's partitions with a leader (not empty)."""
        partition, taken = self._turns.get(topic, (-1, 0))
        if partition not in candidates or taken >= self._bytes_per_turn:
            others = [candidate for candidate in candidates if candidate != partition] or list(candidates)
            partition, taken = self._pick(topic, others), 0
        self._turns[topic] = (partition, taken + size)
        return partition

    def _pick(self, topic: str, candidates: Sequence[int]) -> int:
        """Return a random candidate. Its weight is the length of the longest queue + 1, less its own (KIP-794)."""
        if self._waiting is None:
            return candidates[int(self._random() * len(candidates))]
        queued = [self._waiting(topic, candidate) for candidate in candidates]
        bounds = list(accumulate(max(queued) + 1 - count for count in queued))
        return candidates[bisect_right(bounds, int(self._random() * bounds[-1]))]
