"""Partitions as Kafka's Java client chooses them, and group assignments as its assignors make them."""

from __future__ import annotations

import random
import struct

import pytest

from fencepost.client.assignors import (
    assignor,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    range_assignor,
    round_robin_assignor,
)
from fencepost.client.partitioner import Sticky, murmur2, partition_for_key, partitions_for_keys
from fencepost.client.types import TopicPartition
from fencepost.errors import ConfigurationError, ProtocolError


def places(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


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


def test_compiled_and_plain_hashes_agree() -> None:
    source = random.Random(5)
    keys = [source.randbytes(source.randrange(40)) for _ in range(500)]
    for partitions in (1, 7, 100):
        assert partitions_for_keys(keys, partitions).tolist() == [partition_for_key(key, partitions) for key in keys]


def test_sticky_changes_after_its_bytes() -> None:
    sticky = Sticky(100, lambda: 0.0)
    assert [sticky.choose("t", 60, [0, 1, 2]) for _ in range(5)] == [0, 0, 1, 1, 0]
    assert sticky.choose("t", 1, [2]) == 2


def test_range_as_documented() -> None:
    """RangeAssignor's javadoc: two consumers, two topics of three partitions."""
    assigned = range_assignor({"C0": ["t0", "t1"], "C1": ["t0", "t1"]}, {"t0": 3, "t1": 3})
    assert assigned == {
        "C0": places("t0", 0, 1) + places("t1", 0, 1),
        "C1": places("t0", 2) + places("t1", 2),
    }


def test_round_robin_as_documented() -> None:
    """RoundRobinAssignor's javadoc, both examples."""
    both = {"C0": ["t0", "t1"], "C1": ["t0", "t1"]}
    assert round_robin_assignor(both, {"t0": 3, "t1": 3}) == {
        "C0": places("t0", 0, 2) + places("t1", 1),
        "C1": places("t0", 1) + places("t1", 0, 2),
    }
    unequal = {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}
    assert round_robin_assignor(unequal, {"t0": 1, "t1": 2, "t2": 3}) == {
        "C0": places("t0", 0),
        "C1": places("t1", 0),
        "C2": places("t1", 1) + places("t2", 0, 1, 2),
    }


def test_a_topic_that_does_not_exist_is_assigned_to_nobody() -> None:
    assert range_assignor({"a": ["nope"]}, {}) == {"a": []}
    assert round_robin_assignor({"a": ["nope"]}, {}) == {"a": []}


def test_protocol_data_is_kafkas() -> None:
    """ConsumerProtocolSubscription and ConsumerProtocolAssignment, version 0, spelled by hand."""
    assert encode_subscription(["ab"]) == b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x02ab" + b"\xff\xff\xff\xff"
    expected = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01t" + struct.pack(">iii", 2, 0, 5) + b"\xff\xff\xff\xff"
    assert encode_assignment(places("t", 0, 5)) == expected


def test_newer_protocol_data_is_read_as_far_as_known() -> None:
    newer = b"\x00\x03" + encode_subscription(["a", "b"])[2:] + b"more"
    assert decode_subscription(newer) == ["a", "b"]
    assert decode_assignment(encode_assignment(places("a", 1) + places("b", 0))) == places("a", 1) + places("b", 0)
    assert decode_assignment(b"") == []
    with pytest.raises(ProtocolError):
        decode_assignment(b"\x00\x00\x00\x00\x00\x01\x00")


def test_unknown_strategies_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="range"):
        assignor("sticky-ish")
