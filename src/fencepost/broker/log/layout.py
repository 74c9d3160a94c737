"""Names and small text files of a partition's directory, in Apache Kafka's layout.

`partition.metadata` has one line more than Kafka's, because a flipped bit would give the directory to another topic.
`log-start-offset` is our own (Kafka stores that number in one file for all partitions): version, offset, CRC-32C of the
offset's digits. So is `clean-offset`: version, first dirty offset, the offset below which compaction may have left
gaps, CRC-32C of the two. Compaction writes a segment's files under names that end in .cleaned, and renames them to
.swap when they become valid.
"""

from __future__ import annotations

import base64
import uuid
from typing import Final, NamedTuple

from fencepost.protocol.crc import crc32c

__all__ = [
    "CLEANED",
    "CLEAN_POINT",
    "EPOCH_CHECKPOINT",
    "EPOCH_CHECKPOINT_TEXT",
    "INDEX",
    "LOG",
    "LOG_START",
    "METADATA",
    "SNAPSHOT",
    "SWAP",
    "TIME_INDEX",
    "TXN_INDEX",
    "CleanPoint",
    "decode_clean_point",
    "decode_log_start",
    "decode_metadata",
    "encode_clean_point",
    "encode_log_start",
    "encode_metadata",
    "file_name",
    "offset_of",
]

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
METADATA: Final = "partition.metadata"
EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
EPOCH_CHECKPOINT_TEXT: Final = b"0\n1\n0 0\n"  # version, number of entries, then leader epoch and its first offset
LOG_START: Final = "log-start-offset"
CLEAN_POINT: Final = "clean-offset"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"


class CleanPoint(NamedTuple):
    """Progress of a log's compaction. `gaps_below` is on disk before the first record is removed."""

    dirty_offset: int
    gaps_below: int


def file_name(offset: int, suffix: str) -> str:
    """Return the 20 digits of the offset and the suffix."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """Return the offset in a file's name; None if the name has another form."""
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != 20 or not stem.isascii() or not stem.isdigit():
        return None
    return int(stem)


def encode_metadata(topic_id: uuid.UUID) -> bytes:
    """Return Kafka's two lines, and a third one with the CRC-32C of the id's text, which Kafka does not read."""
    text = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=")
    return b"version: 0\ntopic_id: %s\ncrc: %08x\n" % (text, crc32c(text))


def decode_metadata(data: bytes) -> uuid.UUID:
    """Return the topic id in a `partition.metadata` file. Its third line, the CRC, is checked only if the file has one.

    Raises:
        ValueError: The file is not of version 0, or the CRC is wrong.
    """
    first, *more = data.decode("utf-8").splitlines() or [""]
    names = [line.partition(": ")[0] for line in more]
    values = [line.partition(": ")[2] for line in more]
    if first != "version: 0" or names not in (["topic_id"], ["topic_id", "crc"]):
        raise ValueError(f"not a partition metadata file of version 0: {data[:100]!r}")
    if len(values) > 1 and values[1] != f"{crc32c(values[0].encode()):08x}":
        raise ValueError(f"a partition metadata file with a wrong CRC: {data[:100]!r}")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(values[0] + "=="))


def encode_log_start(offset: int) -> bytes:
    digits = str(offset).encode()
    return b"0 %s %08x\n" % (digits, crc32c(digits))


def decode_log_start(data: bytes) -> int:
    """Decode the file. Raises ValueError for a wrong version or CRC."""
    parts = data.split()
    if len(parts) != 3 or parts[0] != b"0" or int(parts[2], 16) != crc32c(parts[1]):
        raise ValueError(f"not a log start offset file of version 0: {data[:100]!r}")
    return int(parts[1])


def encode_clean_point(point: CleanPoint) -> bytes:
    text = b"%d %d" % point
    return b"0 %s %08x\n" % (text, crc32c(text))


def decode_clean_point(data: bytes) -> CleanPoint:
    """Decode the file. Raises ValueError for a wrong version or CRC."""
    parts = data.split()
    if len(parts) != 4 or parts[0] != b"0" or int(parts[3], 16) != crc32c(b" ".join(parts[1:3])):
        raise ValueError(f"not a clean offset file of version 0: {data[:100]!r}")
    return CleanPoint(int(parts[1]), int(parts[2]))
