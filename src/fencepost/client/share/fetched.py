"""The records of one partition in a ShareFetch response, by acquired range. Pure.

The data consists of whole batches. This member may read only the offsets in the acquired ranges.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from fencepost.client.records import Fetched, SharedRecord, timestamp_type_of, to_records
from fencepost.client.types import TopicPartition
from fencepost.errors import CorruptRecordError, DecompressionLimitError
from fencepost.protocol.errors import DecompressionLimit
from fencepost.protocol.records.decoding import Unreadable, decode_readable

_BATCH_START: Final = struct.Struct(">qi")  # base offset, length of the rest


class Acquired(Protocol):
    """A range of offsets in a response."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Taken(NamedTuple):
    """The acquired records, offsets without a record, and unreadable offsets with the first reason."""

    records: list[SharedRecord]
    gaps: list[int]
    unreadable: list[int]
    error: CorruptRecordError | None


def take(
    partition: TopicPartition, data: bytes, acquired: Sequence[Acquired], *, check_crcs: bool, max_batch_bytes: int
) -> Taken:
    """Return the acquired records of the batches in `data`. An unreadable batch does not hide later ones."""
    counts = {offset: run.delivery_count for run in acquired for offset in range(run.first_offset, run.last_offset + 1)}
    records: list[SharedRecord] = []
    damaged: list[int] = []
    error: CorruptRecordError | None = None
    kind = timestamp_type_of(data)
    while len(data):
        columns, flaw, _, epochs = decode_readable(
            data,
            start_offset=min(counts, default=0),
            aborted=None,
            check_crc=check_crcs,
            max_batch_bytes=max_batch_bytes,
        )
        for record in to_records(Fetched(partition, columns, columns.next_offset, kind, epochs)):
            count = counts.pop(record.offset, None)
            if count is not None:
                records.append(SharedRecord.of(record, count))
        if flaw is None:
            break
        lost = sorted(offset for offset in counts if flaw.offset <= offset < flaw.next_offset)
        for offset in lost:
            del counts[offset]
        damaged += lost
        if lost and error is None:
            error = _error(partition, flaw)
        data = _behind(data, flaw.next_offset)
    return Taken(records, sorted(counts), damaged, error)


def _behind(data: bytes, offset: int) -> bytes:
    """Return the batches from `offset` on."""
    at = 0
    while at + _BATCH_START.size <= len(data):
        base, length = _BATCH_START.unpack_from(data, at)
        if base >= offset:
            return data[at:]
        at += _BATCH_START.size + max(length, 1)
    return b""


def _error(partition: TopicPartition, flaw: Unreadable) -> CorruptRecordError:
    too_large = isinstance(flaw.error, DecompressionLimit)
    error = (DecompressionLimitError if too_large else CorruptRecordError)(
        f"{partition.topic}-{partition.partition}: the records from offset {flaw.offset} to {flaw.next_offset - 1} "
        f"cannot be read: {flaw.error}; they are released, and come again as often as the group's "
        "share.delivery.count.limit says" + ("; max_decompressed_bytes is the limit" if too_large else ""),
        topic=partition.topic,
        partition=partition.partition,
        offset=flaw.offset,
        next_offset=flaw.next_offset,
    )
    error.__cause__ = flaw.error
    return error
