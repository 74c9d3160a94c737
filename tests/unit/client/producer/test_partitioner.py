"""Partitions as Kafka's Java client chooses them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fencepost.client.producer.partitioner import (
    BY_NAME,
    Sticky,
    murmur2,
    partition_for_key,
    partitions_for_blob,
    partitions_for_keys,
)
from fencepost.config import PARTITIONERS
from tests.support.engines import ENGINES, engine


def test_each_name_that_the_setting_takes_has_its_partitioner() -> None:
    assert list(PARTITIONERS) == list(BY_NAME)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    """Values of Kafka's own UtilsTest.testMurmur2."""
    assert murmur2(key) == expected % 2**32


def test_native_and_plain_hashes_agree() -> None:
    source = random.Random(5)
    keys = [source.randbytes(source.randrange(40)) for _ in range(500)]
    for partitions in (1, 7, 100):
        chosen = []
        for name in ENGINES:
            with engine(name):
                chosen.append(partitions_for_keys(keys, partitions))
                blob = np.frombuffer(b"".join(keys), np.uint8)
                ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
                chosen.append(partitions_for_blob(blob, ends, partitions).tolist())
        assert all(each == [partition_for_key(key, partitions) for key in keys] for each in chosen)


def test_sticky_changes_after_its_bytes() -> None:
    sticky = Sticky(100, lambda: 0.0)
    assert [sticky.choose("t", 60, [0, 1, 2]) for _ in range(5)] == [0, 0, 1, 1, 0]
    assert sticky.choose("t", 1, [2]) == 2


def test_sticky_prefers_short_queues_as_java_does() -> None:
    """KIP-794, BuiltInPartitionerTest: queues of 5, 0, 3, 0, 1 batches are chosen 1 : 6 : 3 : 6 : 5."""
    queued = [5, 0, 3, 0, 1]
    draws = iter([number / 21 for number in range(21)])
    chosen = [
        Sticky(1, lambda: next(draws), lambda _, partition: queued[partition]).choose("t", 1, range(5))
        for _ in range(21)
    ]
    assert [chosen.count(partition) for partition in range(5)] == [1, 6, 3, 6, 5]
