"""Records sections that lie: sealed as a producer would, so that only a look inside finds what is wrong."""

from __future__ import annotations

import gzip
import struct
from functools import cache
from random import Random

from fencepost.protocol.records.batch import seal
from fencepost.protocol.records.compression import compress
from tests.support.batches import keyed, records_section
from tests.support.fuzz.damage import damaged

__all__ = ["bomb", "lying_batch"]

CODECS = ("gzip", "snappy", "lz4", "zstd")
HEADER_BYTES, CRC_AT, COUNT_AT, LAST_DELTA_AT, MAGIC_AT, ATTRIBUTES_AT = 61, 17, 57, 23, 16, 21
PRODUCERS = ((-1, -1, -1), (-1, -1, -1), (0, 0, 0), (1, 0, 2**31 - 1), (2**62, 32_767, 5), (-5, 3, -9))
COUNTS = (0, 1, -1, 2, 1_000, 2**31 - 1, -(2**31))


def lying_batch(random: Random, now_ms: int) -> bytes:
    """One batch, mostly with the right CRC; a few are true."""
    records = [(None if random.random() < 0.3 else b"k", random.randbytes(random.randrange(60))) for _ in range(3)]
    producer = random.choice(PRODUCERS)
    data = bytearray(
        keyed(
            *records,
            producer_id=producer[0],
            epoch=producer[1],
            sequence=producer[2],
            transactional=random.random() < 0.2,
            timestamp=now_ms,
            compression=random.choice(("none", *CODECS)),
        )
    )
    match random.randrange(9):
        case 0:
            _resize(data, damaged(bytes(data[HEADER_BYTES:]), random))
        case 1:
            data[COUNT_AT : COUNT_AT + 4] = struct.pack(">i", random.choice(COUNTS))
        case 2:
            data[LAST_DELTA_AT : LAST_DELTA_AT + 4] = struct.pack(">i", random.choice(COUNTS))
        case 3:
            data[MAGIC_AT] = random.choice((0, 1, 3, 127, 255))
        case 4:  # codec 5 to 7, a control batch, delete horizon
            data[ATTRIBUTES_AT + 1] ^= random.choice((0x05, 0x07, 0x20, 0x40, 0x80))
        case 5:  # every field of the header but size, magic and CRC
            at = random.choice((*range(12), *range(ATTRIBUTES_AT, HEADER_BYTES)))
            data[at] ^= 1 << random.randrange(8)
        case 6:
            data[8:12] = struct.pack(">i", random.choice((0, -1, 48, 49, len(data), 2**31 - 1)))
        case 7:
            return old_message(random, depth=random.choice((0, 1, 3)))
        case _:
            data *= random.choice((1, 1, 2))
    if random.random() < 0.9:
        seal_again(data)
    return bytes(data) if random.random() < 0.95 else bytes(data[: random.randrange(len(data))])


def _resize(batch: bytearray, section: bytes) -> None:
    batch[HEADER_BYTES:] = section
    batch[8:12] = struct.pack(">i", len(batch) - 12)


def seal_again(batch: bytearray) -> None:
    """Write the CRC that belongs to it."""
    from crc32c import crc32c

    batch[CRC_AT : CRC_AT + 4] = struct.pack(">I", crc32c(bytes(batch[ATTRIBUTES_AT:])))


@cache
def bomb(codec: str, size: int, now_ms: int) -> bytes:
    """A batch that is fine, and `size` bytes when it is decompressed."""
    section = compress(codec, records_section([bytes(size)], [now_ms]))
    return bytes(seal(section, record_count=1, base_timestamp=now_ms, max_timestamp=now_ms, compression=codec))


def old_message(random: Random, depth: int) -> bytes:
    """A message set of magic 0 or 1 (before Kafka 0.11); with `depth`, compressed within compressed."""
    inner = random.randbytes(20) if depth == 0 else gzip.compress(old_message(random, depth - 1) * 50)
    magic = random.choice((0, 1))
    body = bytes([magic, 1 if depth else 0]) + (bytes(8) if magic else b"") + b"\xff\xff\xff\xff"
    body += struct.pack(">i", len(inner)) + inner
    message = bytes(4) + body  # the CRC is looked at by nobody who refuses the magic
    return bytes(8) + struct.pack(">i", len(message)) + message
