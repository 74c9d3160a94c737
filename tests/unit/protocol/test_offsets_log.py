"""Records of __consumer_offsets. The bytes were written by the generated classes of Apache Kafka 4.3.1
(kafka-group-coordinator-4.3.1.jar, MessageUtil.toVersionPrefixedByteBuffer), the hashes by Java and its Utils.abs.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.logs.offsets_log import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    StoredMember,
    UnknownKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
)
from fencepost.protocol.logs.partitioning import coordinator_partition, java_string_hash

OFFSET_KEY = OffsetCommitKey("grüppe", "t-1", 7)
OFFSET_KEY_V0 = bytes.fromhex("000000076772c3bc7070650003742d3100000007")
OFFSET_KEY_V1 = bytes.fromhex("000100076772c3bc7070650003742d3100000007")
GROUP_KEY_V2 = bytes.fromhex("000200076772c3bc707065")

OFFSET = OffsetCommitValue(1234567890123, 5, "méta", 1700000000000)
OFFSETS = {
    0: ("00000000011f71fb04cb00056dc3a974610000018bcfe56800", replace(OFFSET, leader_epoch=-1)),
    1: (
        "00010000011f71fb04cb00056dc3a974610000018bcfe568000000018bcfe65260",
        replace(OFFSET, leader_epoch=-1, expire_timestamp_ms=1700000060000),
    ),
    2: ("00020000011f71fb04cb00056dc3a974610000018bcfe56800", replace(OFFSET, leader_epoch=-1)),
    3: ("00030000011f71fb04cb0000000500056dc3a974610000018bcfe56800", OFFSET),
    4: ("00040000011f71fb04cb00000005066dc3a974610000018bcfe5680000", OFFSET),
}
OFFSET_WITH_ID = OffsetCommitValue(1, -1, "", 2, topic_id=UUID("01020304-0506-0708-090a-0b0c0d0e0f10"))
OFFSET_WITH_ID_V4 = bytes.fromhex(
    "00040000000000000001ffffffff0100000000000000020100100102030405060708090a0b0c0d0e0f10"
)

FIRST = StoredMember("m-1", "inst", "c", "/127.0.0.1", 60000, 10000, b"\x01\x02", b"\x03")
SECOND = StoredMember("m-2", None, "", "h", 1, 2, b"", b"")
GROUP = GroupMetadataValue("consumer", 3, "range", "m-1", 1700000000000, (FIRST, SECOND))
WITHOUT_INSTANCE = (replace(FIRST, group_instance_id=None), SECOND)
GROUPS = {
    0: (
        (
            "00000008636f6e73756d657200000003000572616e676500036d2d310000000200036d2d31000163000a2f3132372e302e302e3100002710"
            "000000020102000000010300036d2d320000000168000000020000000000000000"
        ),
        replace(
            GROUP,
            current_state_timestamp_ms=-1,
            members=(replace(WITHOUT_INSTANCE[0], rebalance_timeout_ms=10000), replace(SECOND, rebalance_timeout_ms=2)),
        ),
    ),
    1: (
        (
            "00010008636f6e73756d657200000003000572616e676500036d2d310000000200036d2d31000163000a2f3132372e302e302e310000ea60"
            "00002710000000020102000000010300036d2d32000000016800000001000000020000000000000000"
        ),
        replace(GROUP, current_state_timestamp_ms=-1, members=WITHOUT_INSTANCE),
    ),
    2: (
        (
            "00020008636f6e73756d657200000003000572616e676500036d2d310000018bcfe568000000000200036d2d31000163000a2f3132372e30"
            "2e302e310000ea6000002710000000020102000000010300036d2d32000000016800000001000000020000000000000000"
        ),
        replace(GROUP, members=WITHOUT_INSTANCE),
    ),
    3: (
        (
            "00030008636f6e73756d657200000003000572616e676500036d2d310000018bcfe568000000000200036d2d310004696e7374000163000a"
            "2f3132372e302e302e310000ea6000002710000000020102000000010300036d2d32ffff0000000168000000010000000200000000000000"
            "00"
        ),
        GROUP,
    ),
    4: (
        (
            "000409636f6e73756d6572000000030672616e6765046d2d310000018bcfe5680003046d2d3105696e737402630b2f3132372e302e302e31"
            "0000ea6000002710030102020300046d2d3200010268000000010000000201010000"
        ),
        GROUP,
    ),
}
NEVER_JOINED = GroupMetadataValue("", 0, None, None)
NEVER_JOINED_BYTES = {
    3: bytes.fromhex("0003000000000000ffffffffffffffffffffffff00000000"),
    4: bytes.fromhex("000401000000000000ffffffffffffffff0100"),
}


def test_keys_are_kafkas() -> None:
    assert encode_key(OFFSET_KEY) == OFFSET_KEY_V1
    assert encode_key(GroupMetadataKey("grüppe")) == GROUP_KEY_V2
    assert decode_key(OFFSET_KEY_V1) == OFFSET_KEY
    assert decode_key(OFFSET_KEY_V0) == OFFSET_KEY
    assert decode_key(memoryview(GROUP_KEY_V2)) == GroupMetadataKey("grüppe")


def test_keys_of_newer_group_types_are_named_not_read() -> None:
    assert decode_key(b"\x00\x03anything") == UnknownKey(3)


@pytest.mark.parametrize("version", range(5))
def test_offset_values_are_kafkas(version: int) -> None:
    text, read = OFFSETS[version]
    written = replace(OFFSET, expire_timestamp_ms=1700000060000 if version == 1 else -1)
    assert encode_offset_value(written, version).hex() == text
    assert decode_offset_value(bytes.fromhex(text)) == read


def test_a_topic_id_is_a_tagged_field() -> None:
    assert encode_offset_value(OFFSET_WITH_ID, 4) == OFFSET_WITH_ID_V4
    assert decode_offset_value(OFFSET_WITH_ID_V4) == OFFSET_WITH_ID


def test_an_expiry_time_chooses_version_1_as_in_kafka() -> None:
    """GroupCoordinatorRecordHelpers.offsetCommitValueVersion of 4.3.1: 1 with an expire timestamp, else 4."""
    assert encode_offset_value(OFFSET)[:2] == b"\0\x04"
    assert encode_offset_value(replace(OFFSET, expire_timestamp_ms=5))[:2] == b"\0\x01"


@pytest.mark.parametrize("version", range(5))
def test_group_values_are_kafkas(version: int) -> None:
    text, read = GROUPS[version]
    assert encode_group_value(GROUP, version).hex() == text
    assert decode_group_value(bytes.fromhex(text)) == read


@pytest.mark.parametrize("version", NEVER_JOINED_BYTES)
def test_a_group_without_members_is_kafkas(version: int) -> None:
    assert encode_group_value(NEVER_JOINED, version) == NEVER_JOINED_BYTES[version]
    assert decode_group_value(NEVER_JOINED_BYTES[version]) == NEVER_JOINED


def test_group_values_are_written_as_version_3_as_kafka_does() -> None:
    assert encode_group_value(GROUP)[:2] == b"\0\x03"


def test_every_truncation_is_malformed() -> None:
    tried = 0
    for version in range(5):
        whole = bytes.fromhex(GROUPS[version][0])
        for size in range(len(whole)):
            with pytest.raises(MalformedMessage):
                decode_group_value(whole[:size])
            tried += 1
        whole = bytes.fromhex(OFFSETS[version][0])
        for size in range(len(whole)):
            with pytest.raises(MalformedMessage):
                decode_offset_value(whole[:size])
            tried += 1
    assert tried > 500


@pytest.mark.parametrize(
    "data",
    [
        OFFSET_KEY_V1 + b"\0",  # too long
        b"\x00\x02\xff\xff",  # a null group id
        b"\x00\x02\x00\x01\xff",  # not UTF-8
        b"",
    ],
)
def test_damaged_keys_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_key(data)


def test_versions_that_do_not_exist_are_refused() -> None:
    with pytest.raises(MalformedMessage):
        decode_offset_value(b"\0\x05" + bytes(30))
    with pytest.raises(MalformedMessage):
        decode_group_value(b"\0\x05" + bytes(30))
    with pytest.raises(ValueError, match="no version 5"):
        encode_offset_value(OFFSET, 5)
    with pytest.raises(ValueError, match="no version 5"):
        encode_group_value(GROUP, 5)


def test_a_huge_member_count_is_malformed_at_once() -> None:
    with pytest.raises(MalformedMessage, match="count"):
        decode_group_value(NEVER_JOINED_BYTES[3][:-4] + b"\x7f\xff\xff\xff")


@pytest.mark.parametrize(
    ("text", "hashed", "partition_of_50"),
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("my-group", -1906497762, 12),
        ("grüppe", -1233264812, 12),
        ("polygenelubricants", -2147483648, 0),  # whose absolute value does not fit
        ("connect-sink-😀", -1630356230, 30),
        ("console-consumer-12345", 158455506, 6),
    ],
)
def test_a_key_belongs_to_the_partition_that_kafka_gives_it(text: str, hashed: int, partition_of_50: int) -> None:
    assert java_string_hash(text) == hashed
    assert coordinator_partition(text, 50) == partition_of_50


def test_no_partitions_no_coordinator() -> None:
    with pytest.raises(ValueError, match="0 partitions"):
        coordinator_partition("g", 0)
