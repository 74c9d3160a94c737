"""Which partition a record goes to, as Kafka's Java producer decides it.

With a key: murmur2(key), sign bit cleared, modulo the number of partitions. Without: the sticky partition of the topic,
changed at random after `batch_size` bytes (KIP-480, KIP-794); where fewer batches wait, the chance is greater.
librdkafka's clients hash keys with CRC-32 instead; `partitioner="consistent_random"` goes on with that. `BY_NAME` has
all of librdkafka's names.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.protocol.records import engine

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

UNDECIDED: Final = -1  # neither a partition nor a key says where
SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995


def murmur2(data: bytes | bytearray | memoryview) -> int:
    """Kafka's 32-bit murmur2 of a key, unsigned."""
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
    """The partition that Java's default partitioner gives the key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def librdkafka_partition_for_key(key: bytes | bytearray | memoryview, partitions: int) -> int:
    """The partition that librdkafka's default (`consistent_random`) gives a key that is not empty."""
    return zlib.crc32(key) % partitions


def librdkafka_partitions(keys: Sequence[bytes], partitions: int) -> list[int]:
    """Return librdkafka's default partition of each key. An empty key counts as none: UNDECIDED."""
    return [librdkafka_partition_for_key(key, partitions) if key else UNDECIDED for key in keys]


def partitions_for_keys(keys: Sequence[bytes], partitions: int) -> list[int]:
    """Return `partition_for_key` of every key."""
    if engine.is_native:
        return engine.native.partitions_of_keys(keys, partitions)
    return [partition_for_key(key, partitions) for key in keys]


def partitions_for_blob(
    blob: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], partitions: int
) -> npt.NDArray[np.int32]:
    """Return `partition_for_key` of keys that follow each other in `blob`, each up to its entry of `ends`."""
    import numpy as np

    if engine.is_native:
        return np.frombuffer(engine.native.partitions_of_blob(blob, np.ascontiguousarray(ends), partitions), np.int32)
    whole, bounds = blob.tobytes(), [0, *ends.tolist()]
    chosen = (partition_for_key(whole[start:end], partitions) for start, end in pairwise(bounds))
    return np.fromiter(chosen, np.int32, len(ends))


def fnv1a(data: bytes | bytearray | memoryview) -> int:
    """The 32-bit FNV-1a of a key as librdkafka and Sarama have it: the absolute value of a signed number."""
    h = 0x811C9DC5
    for byte in data:
        h = ((h ^ byte) * 0x01000193) & 0xFFFFFFFF
    return h if h < 0x80000000 else 0x100000000 - h


def fnv1a_partitions(keys: Sequence[bytes], partitions: int) -> list[int]:
    """The partition that librdkafka's `fnv1a` gives each key."""
    return [fnv1a(key) % partitions for key in keys]


def crc32_partitions(keys: Sequence[bytes], partitions: int) -> list[int]:
    """The partition that librdkafka's `consistent` gives each key."""
    return [librdkafka_partition_for_key(key, partitions) for key in keys]


class ByKey(NamedTuple):
    """Choice of partitions by keys.

    Attributes:
        partitions: Returns the partition of each key, of so many; UNDECIDED for one that counts as none.
        hashes_none: A record without a key goes where an empty key goes; otherwise to the sticky partition.
    """

    partitions: Callable[[Sequence[bytes], int], list[int]]
    hashes_none: bool = False


BY_NAME: Final[dict[str, ByKey | None]] = {
    "murmur2_random": ByKey(partitions_for_keys),
    "murmur2": ByKey(partitions_for_keys, hashes_none=True),
    "consistent_random": ByKey(librdkafka_partitions),
    "consistent": ByKey(crc32_partitions, hashes_none=True),
    "fnv1a_random": ByKey(fnv1a_partitions),
    "fnv1a": ByKey(fnv1a_partitions, hashes_none=True),
    "random": None,
}


def by_key(partitioner: str | Callable[..., object], *, ignore_keys: bool) -> ByKey | None:
    """The choice by keys for the settings `partitioner` and `partitioner_ignore_keys`; None: keys do not matter.

    A function that does not choose leaves the choice to the default.
    """
    if ignore_keys:
        return None
    return BY_NAME[partitioner] if isinstance(partitioner, str) else BY_NAME["murmur2_random"]


class Sticky:
    """The partition for records without a key, per topic."""

    def __init__(
        self, bytes_per_turn: int, random: Callable[[], float], waiting: Callable[[str, int], int] | None = None
    ) -> None:
        """`waiting(topic, partition)`: batches in the partition's queue; None: all partitions are equally likely."""
        self._bytes_per_turn = bytes_per_turn
        self._random = random
        self._waiting = waiting
        self._turns: dict[str, tuple[int, int]] = {}  # topic -> (partition, bytes it got this turn)

    def choose(self, topic: str, size: int, candidates: Sequence[int]) -> int:
        """The partition for `size` bytes; `candidates` are the topic's partitions that have a leader (not empty)."""
        partition, taken = self._turns.get(topic, (-1, 0))
        if partition not in candidates or taken >= self._bytes_per_turn:
            others = [candidate for candidate in candidates if candidate != partition] or list(candidates)
            partition, taken = self._pick(topic, others), 0
        self._turns[topic] = (partition, taken + size)
        return partition

    def _pick(self, topic: str, candidates: Sequence[int]) -> int:
        """At random; a partition's weight is the longest queue's length + 1, less its own (KIP-794)."""
        if self._waiting is None:
            return candidates[int(self._random() * len(candidates))]
        queued = [self._waiting(topic, candidate) for candidate in candidates]
        bounds = list(accumulate(max(queued) + 1 - count for count in queued))
        return candidates[bisect_right(bounds, int(self._random() * bounds[-1]))]
