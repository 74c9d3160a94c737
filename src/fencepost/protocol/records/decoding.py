"""Decode fetched record batches into columns (columns.py), with or without the native loops (engine.py)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from fencepost.protocol.cursor import Buffer
from fencepost.protocol.errors import CompressionError, CorruptBatch, DecompressionLimit, WireError
from fencepost.protocol.records import engine, native_loops
from fencepost.protocol.records.aborted import AbortedFilter
from fencepost.protocol.records.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    iter_batches,
    verify_crc,
)
from fencepost.protocol.records.columns import COLUMN_BYTES, Columns, Description
from fencepost.protocol.records.compression import MAX_DECOMPRESSED_BYTES, decompress
from fencepost.protocol.records.spans import decode_sections

__all__ = ["DecodedRecords", "Unreadable", "decode_batches", "decode_readable"]

_MIN_RECORD_BYTES: Final = 7  # one byte each: length, attributes, two deltas, two lengths, header count
_FEW: Final = 2  # up to this number of records, plain Python is as fast
_OFFSET: Final = struct.Struct(">q")
_BATCH_START: Final = struct.Struct(">qii")  # base offset, length, partition leader epoch
_LAST: Final = 2**63 - 1  # the largest offset


class Unreadable(NamedTuple):
    """A batch that cannot be read: its offset, the offset after it, and the error."""

    offset: int
    next_offset: int
    error: WireError


class DecodedRecords(NamedTuple):
    """The records up to the first unreadable batch, or up to the limit of a call.

    `columns.next_offset` is the offset at which to go on. `decoded_bytes` counts decompressed bytes and columns.
    `epochs` has the base offset and leader epoch of the first batch, and of each batch at which the epoch changes.
    """

    columns: Columns
    unreadable: Unreadable | None
    decoded_bytes: int
    epochs: Sequence[tuple[int, int]]


def decode_batches(
    buffer: Buffer,
    *,
    start_offset: int | None = None,
    aborted: Sequence[tuple[int, int]] | None = None,
    skip_control: bool = True,
    check_crc: bool = True,
    max_batch_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> Columns:
    """Decode like `decode_readable`, but raise if any batch is unreadable.

    Raises:
        CorruptBatch: CRC, lengths, varints or counts are wrong (UnsupportedMagic before Kafka 0.11).
        CompressionError: The records cannot be decompressed.
    """
    decoded = decode_readable(
        buffer,
        start_offset=start_offset,
        aborted=aborted,
        skip_control=skip_control,
        check_crc=check_crc,
        max_batch_bytes=max_batch_bytes,
    )
    if decoded.unreadable is not None:
        raise decoded.unreadable.error
    return decoded.columns


def decode_readable(
    buffer: Buffer,
    *,
    start_offset: int | None = None,
    aborted: Sequence[tuple[int, int]] | None = None,
    skip_control: bool = True,
    check_crc: bool = True,
    max_batch_bytes: int = MAX_DECOMPRESSED_BYTES,
    room_bytes: int | None = None,
) -> DecodedRecords:
    """Decode the records of one or more batches. A truncated last batch is ignored.

    Args:
        buffer: Batches, one after the other.
        start_offset: Drop records below it; a fetch response contains whole batches.
        aborted: (producer id, first offset) of aborted transactions, from a read_committed fetch; None reads
            uncommitted. A transactional batch is dropped from its producer's first aborted offset to the producer's
            ABORT marker, as in Kafka's consumer.
        skip_control: Drop control batches.
        check_crc: Verify the CRC of each batch.
        max_batch_bytes: Limit for the decompressed bytes and columns of one batch, in bytes. Columns are several times
            larger than tiny records.
        room_bytes: Stop after the batch that exceeds this total, in bytes; None: decode all. The first batch is always
            decoded.

    Returns:
        The records. `columns.next_offset` is after the last whole batch that was read, even if all its records were
        dropped.
    """
    first_offset = -1 if start_offset is None else start_offset
    if engine.is_native and skip_control and not aborted:
        plain = native_loops.decode_fetched_batches(
            memoryview(buffer),
            first_offset,
            checks_markers=aborted is not None,
            checks_crc=check_crc,
            batch_bytes=max_batch_bytes,
            room_bytes=room_bytes,
        )
        if plain is not None:
            return DecodedRecords(plain[0], None, *plain[1:])
    walk = _Walk(buffer, first_offset, AbortedFilter(aborted) if aborted is not None else None, skip_control, check_crc)
    chosen = list(walk)
    opened = _open(chosen, max_batch_bytes, room_bytes)
    is_compressed = any(header.codec for header, _, _ in chosen)
    sections = opened.sections if is_compressed else None  # else they are read where they lie
    columns, bad = _columns(buffer, chosen[: len(opened.sections)], sections, first_offset)
    stopped_at = opened.stopped_at
    # The first flaw in the order of offsets.
    flaw = bad or (walk.unreadable if stopped_at is None else opened.unreadable)
    next_offset = walk.next_offset if stopped_at is None else stopped_at
    if flaw is not None:
        flaw = flaw._replace(offset=max(flaw.offset, first_offset), next_offset=max(flaw.next_offset, first_offset + 1))
        next_offset = flaw.offset
    columns.next_offset = max(first_offset, next_offset)
    return DecodedRecords(columns, flaw, opened.decoded_bytes, epochs_of(buffer))


def epochs_of(records: Buffer) -> list[tuple[int, int]]:
    """Return (base offset, leader epoch) of the first batch, and of each batch at which the epoch changes."""
    found: list[tuple[int, int]] = []
    at, last = 0, None
    while at + HEADER_BYTES <= len(records):
        base_offset, length, epoch = _BATCH_START.unpack_from(records, at)
        if epoch != last:
            found.append((base_offset, epoch))
            last = epoch
        at += LENGTH_PREFIX_BYTES + max(length, HEADER_BYTES - LENGTH_PREFIX_BYTES)
    return found


# A batch to decode, and its position in the buffer.
_Chosen = tuple[BatchHeader, memoryview, int]


class _Walk:
    """Iterates over the batches to decode.

    Afterwards it holds the error that ended it early, and the next fetch offset.
    """

    def __init__(
        self, buffer: Buffer, first_offset: int, is_aborted: AbortedFilter | None, skip_control: bool, check_crc: bool
    ) -> None:
        self.unreadable: Unreadable | None = None
        self.next_offset = first_offset
        self._buffer = buffer
        self._first_offset = first_offset
        self._is_aborted = is_aborted
        self._skip_control = skip_control
        self._check_crc = check_crc
        self._behind = 0

    def __iter__(self) -> Iterator[_Chosen]:
        at = 0
        try:
            for header, batch in iter_batches(self._buffer, allow_partial=True):
                at, self._behind = self._behind, self._behind + header.size_bytes
                if self._wants(header, batch):
                    yield header, batch, at
                self.next_offset = max(self.next_offset, header.last_offset + 1)
                at = self._behind
        except WireError as error:
            (offset,) = _OFFSET.unpack_from(self._buffer, at)
            self.unreadable = _unreadable(offset, max(_last_delta(self._buffer, at), 0), error)

    def _wants(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return true if records of this batch are wanted.

        Raises:
            CorruptBatch: The header or the CRC is wrong.
        """
        if (
            header.record_count < 0
            or header.last_offset_delta < 0
            or not 0 <= header.base_offset <= _LAST - header.last_offset_delta
        ):
            raise CorruptBatch(
                f"batch at offset {header.base_offset} with {header.record_count} records, "
                f"last offset delta {header.last_offset_delta}"
            )
        if self._check_crc and not verify_crc(batch):
            raise CorruptBatch(f"CRC of the batch at offset {header.base_offset} does not match")
        if self._is_aborted is not None and self._is_aborted(header, batch):
            return False
        if not header.record_count or (self._skip_control and header.is_control):
            return False
        return header.last_offset >= self._first_offset


def _unreadable(offset: int, last_delta: int, error: WireError) -> Unreadable:
    return Unreadable(offset, offset + last_delta + 1, error)


def _last_delta(buffer: Buffer, at: int) -> int:
    """Return the header's last offset delta; 0 if there is no header of magic 2."""
    view = memoryview(buffer)[at:]
    if len(view) < HEADER_BYTES or view[16] != 2:
        return 0
    return int.from_bytes(view[23:27], "big", signed=True)


_Sections = list[Buffer]


class _Opened(NamedTuple):
    """Decompressed records sections; the error that ended this early, and the first offset that was not processed."""

    sections: _Sections
    unreadable: Unreadable | None
    stopped_at: int | None
    decoded_bytes: int


def _open(chosen: Sequence[_Chosen], max_batch_bytes: int, room_bytes: int | None) -> _Opened:
    sections: _Sections = []
    decoded_bytes = 0
    for header, batch, _ in chosen:
        if room_bytes is not None and sections and decoded_bytes >= room_bytes:
            return _Opened(sections, None, header.base_offset, decoded_bytes)
        try:
            section, size = _opened(header, batch, max_batch_bytes)
        except CompressionError as error:
            named = type(error)(f"batch at offset {header.base_offset}: {error}")
            named.__cause__ = error
            flaw = _unreadable(header.base_offset, header.last_offset_delta, named)
            return _Opened(sections, flaw, header.base_offset, decoded_bytes)
        sections.append(section)
        decoded_bytes += size
    return _Opened(sections, None, None, decoded_bytes)


def _opened(header: BatchHeader, batch: memoryview, max_batch_bytes: int) -> tuple[Buffer, int]:
    """Return the records section and the number of bytes that decoding it produces.

    Raises:
        CompressionError: The section cannot be decompressed, or the limit is exceeded.
    """
    section: Buffer = batch[HEADER_BYTES:]
    size = header.record_count * COLUMN_BYTES
    if header.codec:
        section = decompress(header.compression, section, max_batch_bytes)
        size += len(section)
    is_count_true = header.record_count * _MIN_RECORD_BYTES <= len(section)  # a wrong count is reported as such later
    if size > max_batch_bytes and is_count_true:
        what = f"{header.record_count} records take {size} bytes when decoded"
        raise DecompressionLimit(f"{what}, at most {max_batch_bytes} are allowed")
    return section, size


def _columns(
    buffer: Buffer, chosen: Sequence[_Chosen], sections: _Sections | None, first_offset: int
) -> tuple[Columns, Unreadable | None]:
    """Decode the records of these batches up to the first that does not parse."""
    described: list[Description] = []
    flaw: Unreadable | None = None
    for (header, _, _), (start, end) in zip(chosen, _bounds(chosen, sections), strict=True):
        if header.record_count * _MIN_RECORD_BYTES > end - start:
            flaw = _flaw(header, f"{header.record_count} records in {end - start} bytes")
            break
        _, _, _, _, _, _, last_delta, base_timestamp, max_timestamp, _, _, _, records = header
        append_time = max_timestamp if header.timestamp_type == "log_append_time" else None
        described.append(Description(start, end, records, header.base_offset, base_timestamp, last_delta, append_time))
    if not described:
        return Columns.empty(), flaw
    is_few = sum(batch.records for batch in described) <= _FEW
    decode = native_loops.decode_sections if engine.is_native and not is_few else decode_sections
    blob = memoryview(buffer) if sections is None else memoryview(_joined(sections[: len(described)]))
    columns, found = decode(blob, described, first_offset)
    if found is not None:
        index, what = found
        flaw = _flaw(chosen[index][0], what)
    return columns, flaw


def _bounds(chosen: Sequence[_Chosen], sections: _Sections | None) -> list[tuple[int, int]]:
    """Return the position of each batch's records: in the buffer, or in the concatenated sections."""
    if sections is None:
        return [(at + HEADER_BYTES, at + len(batch)) for _, batch, at in chosen]
    ends = list(accumulate(map(len, sections)))
    return [(end - len(section), end) for section, end in zip(sections, ends, strict=True)]


def _joined(sections: _Sections) -> Buffer:
    return sections[0] if len(sections) == 1 else b"".join(sections)


def _flaw(header: BatchHeader, what: str) -> Unreadable:
    error = CorruptBatch(f"batch at offset {header.base_offset}: {what}")
    return _unreadable(header.base_offset, header.last_offset_delta, error)
