"""Finish a batch whose records are written: compress it, if that makes it smaller, and write the header."""

from __future__ import annotations

from typing import Final

from fencepost.protocol.records.batch import HEADER_BYTES, Stamp, seal, seal_in_place
from fencepost.protocol.records.compression import compress

__all__ = ["MAX_BATCH_BYTES", "finish"]

MAX_BATCH_BYTES: Final = 2**31 - 1


def finish(
    output: bytearray,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    compression: str,
    level: int | None,
    stamp: Stamp,
) -> bytearray:
    """Compress and seal a batch. `output` is space for the header, then the records.

    Raises:
        UnsupportedCompression: Kafka does not define the codec.
    """
    if compression != "none":
        section = compress(compression, memoryview(output)[HEADER_BYTES:], level)
        if len(section) + HEADER_BYTES <= len(output):
            return seal(
                section,
                record_count=count,
                base_timestamp=base_timestamp,
                max_timestamp=max_timestamp,
                compression=compression,
                **stamp,
            )
    seal_in_place(output, record_count=count, base_timestamp=base_timestamp, max_timestamp=max_timestamp, **stamp)
    return output
