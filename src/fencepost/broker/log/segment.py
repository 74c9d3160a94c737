"""One segment: the file of batches, its indexes, and walking over them by headers.

Positions are bytes from the start of the file. A batch is looked at as little as possible: base offset and length to
walk, its CRC to trust it.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.broker.disk.files import File, Files
from fencepost.broker.log.aborted import AbortedIndex
from fencepost.broker.log.index import OffsetIndex, TimeIndex
from fencepost.broker.log.layout import INDEX, LOG, TIME_INDEX, TXN_INDEX, file_name
from fencepost.broker.log.results import CorruptSegment
from fencepost.protocol.crc import crc32c
from fencepost.protocol.errors import CorruptBatch
from fencepost.protocol.records.batch import (
    CRC_FROM,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    PARTITION_LEADER_EPOCH_AT,
    WALK,
    BatchHeader,
    parse_header,
    verify_crc,
)

__all__ = ["ANYWHERE", "Segment", "scan"]

ANYWHERE = 2**63 - 1

_CHUNK_BYTES = 1 << 20
_REBUILD_INTERVAL_BYTES = 4096
_WALK_BYTES = 8192  # enough to step over one interval of the sparse index
_ABORTED_KEPT = 256  # entries of a segment that stay in memory; every read_committed fetch asks all later segments
_LOOKS = bytes([0, 0, 0, 0, MAGIC])  # leader epoch 0 and the magic byte: what every stored batch has at the same place
_LOOKS_FROM = PARTITION_LEADER_EPOCH_AT


def scan(
    file: File, path: str, start: int, end: int, *, expected: int, gaps_below: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, batch) of every batch in start..end. The first one begins at offset `expected`; gaps
    that compaction left are right before batches below `gaps_below`.

    Raises CorruptSegment at the first batch whose CRC, length or base offset is not right."""
    position = start
    want = _CHUNK_BYTES
    while position < end:
        data = memoryview(file.read(position, min(want, end - position)))
        at = 0
        while at + HEADER_BYTES <= len(data):
            header = _header(data, at, path, position)
            size = header.size_bytes
            if at + size > len(data):
                want = max(_CHUNK_BYTES, size)
                break
            batch = data[at : at + size]
            if crc32c(batch[CRC_FROM:]) != header.crc:
                raise CorruptSegment(path, position + at, "the CRC of the batch is wrong")
            if (
                header.base_offset < expected
                or (header.base_offset > expected and header.base_offset >= gaps_below)
                or header.last_offset_delta < 0
            ):
                raise CorruptSegment(path, position + at, f"base offset {header.base_offset}, {expected} is due")
            yield position + at, header, batch
            expected = header.last_offset + 1
            at += size
        if at == 0:
            size = _header(data, 0, path, position).size_bytes if len(data) >= HEADER_BYTES else HEADER_BYTES
            if size > end - position or size <= len(data):
                raise CorruptSegment(path, position, f"{end - position} bytes, a batch needs {size}")
        position += at


def _header(data: bytes | memoryview, at: int, path: str, position: int) -> BatchHeader:
    try:
        return parse_header(data, at)
    except CorruptBatch as error:
        raise CorruptSegment(path, position + at, str(error)) from error


class Segment:
    """`size` and `next_offset` say what belongs to the log; the file may hold more bytes after a failed append."""

    __slots__ = (
        "_aborted_loaded",
        "_files",
        "_loaded",
        "_suffix",
        "aborted",
        "aborted_lost",
        "base_offset",
        "bytes_since_index",
        "first_timestamp",
        "gaps_below",
        "log",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "offsets",
        "path",
        "sealed",
        "sealed_timestamp",
        "size",
        "stem",
        "times",
        "touched_ms",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, suffix: str = "") -> None:
        """Raises OSError. Indexes are loaded when they are first needed. `suffix`: behind the names of its files, while
        they are not part of the log."""
        self._files = files
        self._suffix = suffix
        self.base_offset = base_offset
        self.stem = f"{directory}/{file_name(base_offset, '')}"
        self.path = self.stem + LOG + suffix
        self.log: File = files.open(self.path)
        self.size = self.log.size()
        self.next_offset = base_offset
        self.gaps_below = ANYWHERE  # compaction may have left gaps between batches below it
        self.offsets = OffsetIndex(files, self.stem + INDEX + suffix, base_offset)
        self.times = TimeIndex(files, self.stem + TIME_INDEX + suffix, base_offset)
        self.aborted = AbortedIndex(files, self.stem + TXN_INDEX + suffix)
        self.aborted_lost = False
        self.sealed = (-1, 0)  # what its index of aborted transactions begins with, as far as somebody noted it
        self.sealed_timestamp = -1  # its largest one at least, as far as somebody noted it
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.first_timestamp = -1
        self.bytes_since_index = 0
        self.touched_ms = -1  # when it was last written to, or opened
        self._loaded = self._aborted_loaded = self.size == 0

    def load_indexes(self) -> bool:
        """Read the index files, once. Sparse indexes that cannot be right are rebuilt from the log; an index of
        aborted transactions that cannot be right sets `aborted_lost`. False when either happened. Raises OSError."""
        if self._loaded:
            return True
        whole = self.load_aborted()
        offsets, times = self._bytes(INDEX), self._bytes(TIME_INDEX)
        self._loaded = True
        try:
            sane = self._take_sparse(offsets, times)
        except OSError:
            self._loaded = False
            raise
        return sane and whole

    def _take_sparse(self, offsets: bytes, times: bytes) -> bool:
        sane = self.offsets.load(offsets, self.size) and self.times.load(times)
        if sane and (len(self.times) == 0 or (len(self.offsets) == 0 and self.size > 4 * _CHUNK_BYTES)):
            sane = False  # a segment has entries when it is closed, unless they were lost
        if sane and self.times.last()[0] >= self.sealed_timestamp and self._agrees(*self.times.last()):
            self.max_timestamp, self.max_timestamp_offset = self.times.last()
        else:
            self._rebuild_sparse()
        return sane

    def _agrees(self, timestamp: int, offset: int) -> bool:
        """Whether the batch of that offset has that largest timestamp: searches skip and retention deletes by it."""
        try:
            position, _, size = self.locate(offset)
            return (
                size > 0
                and _header(self.log.read(position, HEADER_BYTES), 0, self.path, position).max_timestamp == timestamp
            )
        except CorruptSegment:
            return True  # the log is damaged there, and not the index

    def load_aborted(self) -> bool:
        """Read the index of aborted transactions alone, once. False when it cannot be right. Raises OSError."""
        if self._aborted_loaded:
            return True
        data = self._bytes(TXN_INDEX)
        self._aborted_loaded = True  # only now: an index that could not be read is not an empty one
        is_sealed = self.sealed[0] < 0 or self.aborted.begins_with(data, self.sealed)
        self.aborted_lost = not (self.aborted.load(data) and is_sealed)
        return not self.aborted_lost

    def aborted_seal(self) -> tuple[int, int]:
        """(entries of the index of aborted transactions, their CRC-32C), -1 entries when nobody has looked."""
        if self._aborted_loaded and not self.aborted_lost:
            self.sealed = self.aborted.seal()
        return self.sealed

    def _bytes(self, suffix: str) -> bytes:
        path = self.stem + suffix + self._suffix
        return self._files.read_bytes(path) if self._files.exists(path) else b""

    def _rebuild_sparse(self) -> None:
        """Index what can be walked, past damage."""
        self._reset_sparse()
        position, expected = 0, self.base_offset
        while position + HEADER_BYTES <= self.size:
            try:
                header = _header(memoryview(self.log.read(position, HEADER_BYTES)), 0, self.path, position)
                whole = header.size_bytes <= self.size - position and header.last_offset_delta >= 0
                whole = whole and self._may_follow(expected, header.base_offset, header.last_offset)
            except CorruptSegment:
                whole = False
            if not whole:
                found = self.next_whole(position, expected)
                if found is None:
                    break
                position, header = found
            self.index_batch(header, position, header.size_bytes, _REBUILD_INTERVAL_BYTES)
            position, expected = position + header.size_bytes, header.last_offset + 1
        self.times.add(self.max_timestamp, self.max_timestamp_offset)

    def _reset_sparse(self) -> None:
        self.offsets.truncate(self.base_offset)
        self.times.truncate(self.base_offset)
        self.max_timestamp, self.max_timestamp_offset, self.bytes_since_index = -1, self.base_offset, 0

    def reset_indexes(self) -> None:
        """Forget all indexes, whatever their files say: a scan from the first byte follows."""
        self._loaded = self._aborted_loaded = True
        self.aborted_lost = False
        self._reset_sparse()
        self.aborted.truncate(self.base_offset)

    def forget_from(self, offset: int, position: int) -> None:
        """Drop index entries at or behind `offset`, whose batch begins at `position`: a scan goes on from there."""
        self.load_indexes()
        self.offsets.truncate(offset)
        self.times.truncate(offset)
        self.aborted.truncate(offset)
        self.max_timestamp, self.max_timestamp_offset = self.times.last()
        last = self.offsets.last()
        self.bytes_since_index = position - (last[1] if last else 0)

    def index_batch(self, header: BatchHeader, position: int, size: int, interval_bytes: int) -> None:
        """Note a batch that is in the log at `position`."""
        self.note(header.base_offset + header.last_offset_delta, header.max_timestamp, position, size, interval_bytes)

    def note(self, last_offset: int, timestamp: int, position: int, size: int, interval_bytes: int) -> None:
        """The same, by its parts."""
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = timestamp, last_offset
        if position == 0:
            self.first_timestamp = timestamp
        if self.bytes_since_index > interval_bytes:
            self.offsets.add(last_offset, position)
            self.times.add(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index = 0
        self.bytes_since_index += size

    def locate(self, offset: int, start: int = 0) -> tuple[int, int, int]:
        """(position, base offset, size) of the first batch that ends at or behind `offset`; (size, next_offset, 0)
        when there is none.

        `start`: a position of a batch known not to be behind it. Raises CorruptSegment where damage may have been that
        batch, OSError."""
        self.load_indexes()
        entry = self.offsets.entry(offset)
        if entry is not None and entry[1] > start and not self._is_at(*entry):
            self._rebuild_sparse()  # an index is believed where the log agrees
            entry = self.offsets.entry(offset)
        position, expected = start, self.base_offset if start == 0 else -1
        if entry is not None and entry[1] > start:
            position, expected = entry[1], -1
        end = self.size
        while position < end:
            data = self.log.read(position, min(_WALK_BYTES, end - position))
            at = 0
            while at + HEADER_BYTES <= len(data):
                base, length, _, magic, _, _, delta = WALK.unpack_from(data, at)
                size = LENGTH_PREFIX_BYTES + length
                if (
                    magic != MAGIC
                    or size < HEADER_BYTES
                    or position + at + size > end
                    or delta < 0
                    or not self._may_follow(expected, base, base + delta)
                ):
                    at = self._past_damage(position + at, expected, offset) - position
                    expected = -1
                    break
                if base + delta >= offset:
                    return position + at, base, size
                at += size
                expected = base + delta + 1
            if at == 0:
                raise CorruptSegment(self.path, position, f"{len(data)} bytes at the end are not a batch")
            position += at
        return self.size, self.next_offset, 0

    def locate_time(self, timestamp: int, from_offset: int) -> int:
        """The position of a batch before which everything is older than `timestamp` or before `from_offset`.

        Raises CorruptSegment, OSError."""
        self.load_indexes()
        entry = self.times.entry(timestamp)
        if entry is not None and not self._agrees(*entry):
            self._rebuild_sparse()
            entry = self.times.entry(timestamp)
        return self.locate(max(entry[1] if entry is not None else self.base_offset, from_offset))[0]

    def _is_at(self, last_offset: int, position: int) -> bool:
        """Whether the batch that ends with that offset begins there."""
        data = self.log.read(position, HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            return False
        base, _, _, magic, _, _, delta = WALK.unpack_from(data)
        return magic == MAGIC and bool(base + delta == last_offset)

    def _may_follow(self, expected: int, base: int, last: int) -> bool:
        """Whether a batch with these offsets may stand where `expected` is due (-1: nobody knows)."""
        if base < self.base_offset or last >= self.next_offset:
            return False
        return expected < 0 or base == expected or expected < base < self.gaps_below

    def _past_damage(self, position: int, expected: int, offset: int) -> int:
        """The position of the next whole batch, when `offset` is not before it. Raises CorruptSegment otherwise."""
        found = self.next_whole(position, max(expected, self.base_offset))
        if found is None or found[1].base_offset > offset:
            raise CorruptSegment(
                self.path, position, f"not the header of a batch that may be at offset {max(expected, 0)}"
            )
        return found[0]

    def next_whole(self, position: int, least: int) -> tuple[int, BatchHeader] | None:
        """(position, header) of the first whole batch behind the damaged one at `position`, found by the length that
        the damaged one names or else by its looks; None when there is none. `least`: its base offset is not below it.
        Raises OSError."""
        try:
            after = (
                position + _header(memoryview(self.log.read(position, HEADER_BYTES)), 0, self.path, position).size_bytes
            )
        except CorruptSegment:
            after = self.size
        found = self._whole_at(after, least)
        if found is not None:
            return after, found
        start = position + 1
        while start + HEADER_BYTES <= self.size:
            data = self.log.read(start, _CHUNK_BYTES + HEADER_BYTES)
            at = data.find(_LOOKS)
            while at >= 0:
                found = self._whole_at(start + at - _LOOKS_FROM, least) if start + at - _LOOKS_FROM > position else None
                if found is not None:
                    return start + at - _LOOKS_FROM, found
                at = data.find(_LOOKS, at + 1)
            start += _CHUNK_BYTES
        return None

    def _whole_at(self, position: int, least: int) -> BatchHeader | None:
        """The header of the batch that begins there, when it is whole."""
        if position + HEADER_BYTES > self.size:
            return None
        try:
            header = _header(memoryview(self.log.read(position, HEADER_BYTES)), 0, self.path, position)
        except CorruptSegment:
            return None
        if position + header.size_bytes > self.size or header.base_offset < least or header.last_offset_delta < 0:
            return None
        batch = memoryview(self.log.read(position, header.size_bytes))
        return header if verify_crc(batch) else None

    def end_offset(self) -> int:
        """The offset behind its last batch, by the file and not by what follows. Raises OSError."""
        self.load_indexes()
        last = self.offsets.last()
        end = self.base_offset
        position = 0
        if last is not None and self._is_at(*last):
            end, position = last[0] + 1, last[1]
        try:
            for _, header, _ in scan(self.log, self.path, position, self.size, expected=-1, gaps_below=ANYWHERE):
                end = header.last_offset + 1
        except CorruptSegment:
            return self.next_offset  # reads find out
        return end

    def whole_batches(self, data: bytes, position: int, base_offset: int, verify: bool) -> tuple[int, int]:
        """How many bytes of `data`, read from `position`, are whole batches, and the offset behind them. The first one
        begins at `base_offset`.

        Damage behind the first batch ends the walk; damaged offsets, which are not under the CRC and therefore
        compared with their neighbours', and a damaged first batch raise CorruptSegment. A wrong CRC is looked for only
        when `verify`."""
        view = memoryview(data)
        size = len(data)
        at = 0
        expected = -1
        unpack = WALK.unpack_from
        while at + HEADER_BYTES <= size:
            base, length, _, magic, crc, _, delta = unpack(data, at)
            end = at + LENGTH_PREFIX_BYTES + length
            if magic != MAGIC or length < HEADER_BYTES - LENGTH_PREFIX_BYTES or delta < 0:
                if at:
                    break
                raise CorruptSegment(self.path, position, "not the header of a batch")
            if at and base > expected and base >= self.gaps_below:
                break
            if base < expected or (at == 0 and base != base_offset):
                raise CorruptSegment(
                    self.path, position + at, f"base offset {base}, {max(expected, base_offset)} is due"
                )
            if end > size:
                break
            if verify and crc32c(view[at + CRC_FROM : end]) != crc:
                if at:
                    break
                raise CorruptSegment(self.path, position, "the CRC of the batch is wrong")
            at = end
            expected = base + delta + 1
        if expected > self.next_offset:
            raise CorruptSegment(
                self.path, position, f"offsets below {expected}, the segment ends at {self.next_offset}"
            )
        return at, expected

    def first_batch_timestamp(self) -> int:
        """Largest timestamp of the first batch; -1 when there is none."""
        if self.first_timestamp < 0 and self.size >= HEADER_BYTES:
            try:
                header = _header(memoryview(self.log.read(0, HEADER_BYTES)), 0, self.path, 0)
            except CorruptSegment:
                return -1
            self.first_timestamp = header.max_timestamp
        return self.first_timestamp

    def largest_timestamp(self) -> int:
        """Of all its batches; -1 when empty."""
        if self.max_timestamp < 0:
            self.load_indexes()
        return self.max_timestamp

    def newest_before(self, bound: int) -> tuple[int, int, int]:
        """(largest timestamp, position of its batch, position from which on batches are not counted) of the batches
        below offset `bound`, as far as the indexes tell: (-1, 0, 0) where they tell nothing.

        Raises CorruptSegment, OSError."""
        self.load_indexes()
        if self.max_timestamp_offset < bound:
            return self.max_timestamp, self.locate(self.max_timestamp_offset)[0], self.size
        indexed = self.offsets.entry(bound - 1)
        newest = None if indexed is None else self.times.newest_up_to(indexed[0])
        if indexed is None or newest is None or not self._is_at(*indexed) or not self._agrees(*newest):
            return -1, 0, 0
        return newest[0], self.locate(newest[1])[0], indexed[1]

    def unload_indexes(self) -> None:
        """Forget what is in memory of the indexes of a segment that grows no more; they are read again when needed.
        Raises OSError."""
        if not self._loaded or self.aborted_lost or self.size == 0:
            return
        if not (self.offsets.is_flushed and self.times.is_flushed and self.aborted.is_flushed):
            self.flush_indexes(final=True)
        self.offsets.unload()
        self.times.unload()
        self._loaded = False
        if len(self.aborted) > _ABORTED_KEPT:
            self.aborted.unload()
            self._aborted_loaded = False

    def flush_indexes(self, *, final: bool = False) -> None:
        """Write the indexes. `final`: with the largest timestamp as the last entry, so that nobody has to scan for
        it. Raises OSError."""
        self.load_indexes()  # or the files would be cut to what is in memory
        if final:
            self.times.add(self.max_timestamp, self.max_timestamp_offset)
        self.offsets.flush()
        self.times.flush()
        self.aborted.flush()

    def index_files(self) -> list[File]:
        files = [self.offsets.file(), self.times.file()]
        aborted = self.aborted.file()
        return files if aborted is None else [*files, aborted]

    def open_index_files(self) -> list[File]:
        return [*self.offsets.opened(), *self.times.opened(), *self.aborted.opened()]

    def close(self) -> None:
        self._loaded = False
        self.log.close()
        self.offsets.close()
        self.times.close()
        self.aborted.close()

    def remove(self) -> None:
        """Close and remove the files, the log last: until it is gone the segment exists. Raises OSError."""
        self.close()
        for suffix in (INDEX, TIME_INDEX, TXN_INDEX, LOG):
            self._files.remove(self.stem + suffix + self._suffix)
