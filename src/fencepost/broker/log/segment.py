"""One segment: the file of batches, its indexes, and walks over it by batch headers.

Positions are bytes from the start of the file. A step from batch to batch reads only base offset and length. The whole
batch is read only where its CRC must be checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from fencepost.broker.disk.files import File, Files
from fencepost.broker.log.aborted import Aborted, AbortedIndex
from fencepost.broker.log.batch_walk import ANYWHERE, LEADER_EPOCH, BatchWalk, DamagedRange, IntactBatch, SegmentBounds
from fencepost.broker.log.config import LogConfig
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
    WALK,
    BatchHeader,
    parse_header,
)

__all__ = ["IntactBytes", "LoadedIndexes", "Segment"]

_CHUNK_BYTES = 1 << 20
_REBUILD_INTERVAL_BYTES = 4096
_WALK_BYTES = 8192  # enough to step over one interval of the sparse index
# most entries of a segment that stay in memory; every read_committed fetch reads those of all later segments
_MOST_LOADED_ABORTED = 256
_MOST_LOADED_INDEXES: Final = 4  # closed segments whose indexes are in memory
MOST_INDEXED: Final = 2**31 - 1  # most bytes and offsets of a segment, limited by the size of index entries


class IntactBytes(NamedTuple):
    """Bytes of a segment that are whole batches."""

    size: int
    next_offset: int
    """Offset after the last of them."""
    wrong_epochs: Sequence[int]
    """Positions of batches whose leader epoch is damaged."""


class Segment:
    """One segment. `size` and `next_offset` bound the log's data; after a failed append the file may contain more."""

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
        "synced",
        "times",
        "touched_ms",
    )

    def __init__(
        self, files: Files, directory: str, base_offset: int, suffix: str = "", *, log_suffix: str = ""
    ) -> None:
        """Open the segment.

        Indexes are loaded when first needed. Raises OSError.

        `suffix`: appended to the names of its files while they are not part of the log. `log_suffix`: appended to the
        log file's name only, until `take_name`.
        """
        self._files = files
        self._suffix = suffix
        self.base_offset = base_offset
        self.stem = f"{directory}/{file_name(base_offset, '')}"
        self.path = self.stem + LOG + (log_suffix or suffix)
        self.log: File = files.open(self.path)
        self.size = self.log.size()
        self.next_offset = base_offset
        self.gaps_below = ANYWHERE  # compaction may have left gaps between batches below it
        self.offsets = OffsetIndex(files, self.stem, INDEX + suffix, base_offset)
        self.times = TimeIndex(files, self.stem, TIME_INDEX + suffix, base_offset)
        self.aborted = AbortedIndex(files, self.stem, TXN_INDEX + suffix)
        self.aborted_lost = False
        self.synced = -1  # synced end of the log, for a scan that does not know the log's end
        self.sealed = (-1, 0)  # known beginning of its index of aborted transactions
        self.sealed_timestamp = -1  # known lower bound of its largest timestamp
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.first_timestamp = -1
        self.bytes_since_index = 0
        self.touched_ms = -1  # time of the last write, or of opening
        self._loaded = self._aborted_loaded = self.size == 0

    def take_name(self) -> None:
        """Give the log file its final name, unless it has it. Raises OSError."""
        path = self.stem + LOG
        if self.path == path:
            return
        self._files.rename(self.path, path)
        try:
            log = self._files.open(path)
        except OSError:
            self._files.rename(path, self.path)  # the present handle may have to open it again
            raise
        self.log.close()
        self.path, self.log = path, log

    def load_indexes(self) -> bool:
        """Read the index files, once.

        Return false if one was invalid. Raises OSError.

        Invalid sparse indexes are rebuilt from the log. An invalid index of aborted transactions sets `aborted_lost`.
        """
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
            sane = False  # a closed segment has index entries, unless they were lost
        if sane and self.times.last()[0] >= self.sealed_timestamp and self._agrees(*self.times.last()):
            self.max_timestamp, self.max_timestamp_offset = self.times.last()
        else:
            self._rebuild_sparse()
        return sane

    def _agrees(self, timestamp: int, offset: int) -> bool:
        """Return true if the batch of that offset has that largest timestamp, which searches and retention rely on."""
        try:
            position, _, size = self.locate(offset)
        except CorruptSegment:
            return True  # the log is damaged there, not the index
        return size > 0 and parse_header(self.log.read(position, HEADER_BYTES)).max_timestamp == timestamp

    def load_aborted(self) -> bool:
        """Read the index of aborted transactions, once. Return false if it is invalid. Raises OSError."""
        if self._aborted_loaded:
            return True
        data = self._bytes(TXN_INDEX)
        self._aborted_loaded = True  # set only now, because an unreadable index must not count as an empty one
        is_sealed = self.sealed[0] < 0 or self.aborted.begins_with(data, self.sealed)
        self.aborted_lost = not (self.aborted.load(data) and is_sealed)
        return not self.aborted_lost

    def reload_aborted(self) -> None:
        """Read an index of aborted transactions that did not fit an earlier seal again when it is needed."""
        if self.aborted_lost:
            self._loaded = self._aborted_loaded = self.aborted_lost = False

    def note_aborted(self, entry: Aborted) -> OSError | None:
        """Add an entry and write it at once.

        If its marker is damaged later, only the entry has the transaction's outcome.

        Returns the disk's error, if any; then the next flush writes the entry.
        """
        self.aborted.add(entry)
        try:
            self.aborted.flush()
        except OSError as error:
            return error
        return None

    def aborted_on_disk(self) -> list[Aborted]:
        """Return the entries of the index file, regardless of memory; none if it is invalid. Raises OSError."""
        data = self._bytes(TXN_INDEX)
        index = AbortedIndex(self._files, self.stem, TXN_INDEX + self._suffix)
        is_sealed = self.sealed[0] < 0 or index.begins_with(data, self.sealed)
        return index.entries() if is_sealed and index.load(data) else []

    def aborted_seal(self) -> tuple[int, int]:
        """Return (entries of the index of aborted transactions, their CRC-32C); -1 entries if it was not read."""
        if self._aborted_loaded and not self.aborted_lost:
            self.sealed = self.aborted.seal()
        return self.sealed

    def _bytes(self, suffix: str) -> bytes:
        path = self.stem + suffix + self._suffix
        return self._files.read_bytes(path) if self._files.exists(path) else b""

    def _rebuild_sparse(self) -> None:
        """Index all whole batches."""
        self._reset_sparse()
        for item in self.walk():
            if isinstance(item, IntactBatch):
                self.index_batch(item.header, item.position, len(item.batch), _REBUILD_INTERVAL_BYTES)
        self.times.add(self.max_timestamp, self.max_timestamp_offset)

    def _reset_sparse(self) -> None:
        self.offsets.truncate(self.base_offset)
        self.times.truncate(self.base_offset)
        self.max_timestamp, self.max_timestamp_offset, self.bytes_since_index = -1, self.base_offset, 0

    def reset_indexes(self) -> None:
        """Drop all indexes, because a scan from the first byte follows."""
        self._loaded = self._aborted_loaded = True
        self.aborted_lost = False
        self._reset_sparse()
        self.aborted.truncate(self.base_offset)

    def forget_from(self, offset: int, position: int) -> None:
        """Drop index entries from `offset` on, whose batch begins at `position`, because a scan from there follows."""
        self.load_indexes()
        self.offsets.truncate(offset)
        self.times.truncate(offset)
        self.aborted.truncate(offset)
        self.max_timestamp, self.max_timestamp_offset = self.times.last()
        last = self.offsets.last()
        self.bytes_since_index = position - (last[1] if last else 0)

    def index_batch(self, header: BatchHeader, position: int, size: int, interval_bytes: int) -> None:
        """Index a batch at `position` of the log."""
        self.note(header.base_offset + header.last_offset_delta, header.max_timestamp, position, size, interval_bytes)

    def can_address(self, size: int, last_offset: int) -> bool:
        """Return true if index entries have room for the position and the offset after `size` more bytes."""
        return self.size + size <= MOST_INDEXED and last_offset - self.base_offset <= MOST_INDEXED

    def must_end(self, config: LogConfig, size: int, last_offset: int, time_ms: int, batches: int = 0) -> bool:
        """Return true if the segment, which is not empty, is too large or too old for a batch. Raises OSError.

        Args:
            config: The limits.
            size: Bytes of the batch, and of other batches before it that are not in the segment yet.
            last_offset: Last offset of the batch.
            time_ms: Timestamp of the batch, or time of the append.
            batches: Number of the other batches.
        """
        grown = self.size + size
        if grown > config.segment_bytes or grown > MOST_INDEXED or last_offset - self.base_offset > MOST_INDEXED:
            return True
        if (len(self.offsets.ends) + batches) * 8 >= config.segment_index_bytes:
            return True
        first = self.first_timestamp if self.first_timestamp >= 0 else self.first_batch_timestamp()
        return first >= 0 and time_ms - first > config.segment_ms

    def note(self, last_offset: int, timestamp: int, position: int, size: int, interval_bytes: int) -> None:
        """Index a batch, given by its parts."""
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = timestamp, last_offset
        if position == 0:
            self.first_timestamp = timestamp
        if self.bytes_since_index > interval_bytes:
            self.offsets.add(last_offset, position)
            self.times.add(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index = 0
        self.bytes_since_index += size

    def walk(
        self, position: int = 0, expected: int | None = None, *, chunk_bytes: int = _CHUNK_BYTES
    ) -> Iterator[IntactBatch | DamagedRange]:
        """Yield all whole batches from `position` on, and the damage between them.

        Raises OSError.

        Offset `expected` is due there; by default the first one's.
        """
        bounds = SegmentBounds(self.base_offset, self.next_offset, self.gaps_below, self.synced, self.times.last())
        walk = BatchWalk(self.log, self.path, self.size, bounds)
        return walk.items(position, self.base_offset if expected is None else expected, chunk_bytes=chunk_bytes)

    def intact(
        self, position: int, expected: int, below: int = ANYWHERE
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield (position, header, batch) from there on, up to offset `below`, where a batch begins.

        Raises CorruptSegment for missing offsets, OSError.
        """
        for item in self.walk(position, expected):
            first = item.first_offset if isinstance(item, DamagedRange) else item.header.base_offset
            if first >= below:
                return
            if isinstance(item, IntactBatch):
                yield item
            elif item.next_offset > item.first_offset:
                raise item.error(self.path)

    def locate(self, offset: int) -> tuple[int, int, int]:
        """Return (position, base offset, size) of the first batch that ends at or after `offset`.

        Without such a batch, the result is (size, next_offset, 0). Earlier batches are checked by their headers only,
        as long as each begins at the end of the one before.

        Raises:
            CorruptSegment: The bytes at which the batch may have been are damaged.
            OSError: The segment cannot be read.
        """
        start, expected = self.near(offset)
        return self._step_to(offset, start, expected) or self._search(offset, start, expected)

    def find(self, offset: int) -> tuple[int, int, int]:
        """Return the result of `locate` after checking every batch, if the result of `locate` is damaged."""
        return self._search(offset, *self.near(offset))

    def near(self, offset: int) -> tuple[int, int]:
        """Return (position, base offset) of a batch that is not after `offset`. Raises OSError."""
        self.load_indexes()
        entry = self.offsets.entry(offset)
        base = self._base_at(*entry) if entry is not None else None
        if entry is not None and base is None:
            self._rebuild_sparse()  # an index entry counts only if the log agrees
            entry = self.offsets.entry(offset)
            base = self._base_at(*entry) if entry is not None else None
        return (0, self.base_offset) if entry is None or base is None else (entry[1], base)

    def _step_to(self, offset: int, position: int, expected: int) -> tuple[int, int, int] | None:
        """Step over headers. Return None at the first sign of damage or a gap."""
        end, limit = self.size, self.next_offset
        while position < end:
            data = self.log.read(position, min(_WALK_BYTES, end - position))
            at = 0
            while at + HEADER_BYTES <= len(data):
                base, length, _, magic, _, _, delta = WALK.unpack_from(data, at)
                size = LENGTH_PREFIX_BYTES + length
                is_sound = magic == MAGIC and HEADER_BYTES <= size <= end - position - at
                if not is_sound or base != expected or not base <= base + delta < limit:
                    return None
                if base + delta >= offset:
                    return position + at, base, size
                at += size
                expected = base + delta + 1
            if at == 0:
                return None
            position += at
        return (self.size, self.next_offset, 0) if expected == limit else None

    def _search(self, offset: int, position: int, expected: int) -> tuple[int, int, int]:
        for item in self.walk(position, expected, chunk_bytes=_WALK_BYTES):
            if isinstance(item, IntactBatch):
                if item.header.last_offset >= offset:
                    return item.position, item.header.base_offset, len(item.batch)
            elif item.next_offset > offset:
                raise item.error(self.path)
        return self.size, self.next_offset, 0

    def locate_time(self, timestamp: int, from_offset: int) -> tuple[int, int]:
        """Return (position, base offset) of a batch that follows no record with the timestamp or a later one.

        Records before `from_offset` do not count. Raises CorruptSegment, OSError.
        """
        self.load_indexes()
        entry = self.times.entry(timestamp)
        if entry is not None and not self._agrees(*entry):
            self._rebuild_sparse()
            entry = self.times.entry(timestamp)
        return self.locate(max(entry[1] if entry is not None else self.base_offset, from_offset))[:2]

    def _base_at(self, last_offset: int, position: int) -> int | None:
        """Return the base offset of the batch at a position, if it ends with that offset."""
        data = self.log.read(position, HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            return None
        base, _, _, magic, _, _, delta = WALK.unpack_from(data)
        return int(base) if magic == MAGIC and delta >= 0 and base + delta == last_offset else None

    def end_offset(self) -> int:
        """Return the offset after the last batch in the file; if that is damaged, by the following segment.

        Raises OSError.
        """
        self.load_indexes()
        last = self.offsets.last()
        for item in self.walk(*self.near(self.base_offset if last is None else last[0])):
            if isinstance(item, DamagedRange):
                return item.first_offset if item.position == self.size else self.next_offset
        return self.next_offset

    def whole_batches(self, data: bytes, position: int, base_offset: int, verify: bool) -> IntactBytes:
        """Return the size of the whole batches in `data`, which was read from `position`.

        The first one begins at `base_offset`, and each other one where the one before ended. The walk ends at the first
        batch that is damaged or comes after a gap. Raises CorruptSegment if that is the first one. CRCs are checked
        only with `verify`.
        """
        view = memoryview(data)
        size, limit = len(data), self.next_offset
        at, expected = 0, base_offset
        wrong_epochs: list[int] = []
        unpack = WALK.unpack_from
        problem = ""
        while at + HEADER_BYTES <= size:
            base, length, epoch, magic, crc, _, delta = unpack(data, at)
            end = at + LENGTH_PREFIX_BYTES + length
            if magic != MAGIC or length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
                problem = "not the header of a batch"
            elif base != expected or not base <= base + delta < limit:
                problem = f"offsets {base} to {base + delta}, {expected} is due"
            elif end > size:
                break
            elif verify and crc32c(view[at + CRC_FROM : end]) != crc:
                problem = "the CRC of the batch is wrong"
            if problem:
                break
            if epoch != LEADER_EPOCH:
                wrong_epochs.append(at)
            at = end
            expected = base + delta + 1
        if problem and at == 0:
            raise CorruptSegment(self.path, position, problem)
        return IntactBytes(at, expected, wrong_epochs)

    def whole_to(self, position: int, base_offset: int, size: int) -> IntactBytes:
        """Return the whole batches in `size` bytes from `position` on, across the gaps left by compaction."""
        end, expected = position, base_offset
        wrong_epochs: list[int] = []
        for item in self.walk(position, base_offset, chunk_bytes=size):
            if isinstance(item, DamagedRange) or item.position + len(item.batch) > position + size:
                break
            end, expected = item.position + len(item.batch), item.header.last_offset + 1
            if item.header.partition_leader_epoch != LEADER_EPOCH:
                wrong_epochs.append(item.position - position)
        return IntactBytes(end - position, expected, wrong_epochs)

    @property
    def has_gaps(self) -> bool:
        """Return true if compaction may have left gaps between its batches."""
        return self.base_offset < self.gaps_below

    def first_batch_timestamp(self) -> int:
        """Return the largest timestamp of the first batch; -1 if there is none."""
        if self.first_timestamp < 0 and self.size >= HEADER_BYTES:
            try:
                header = parse_header(self.log.read(0, HEADER_BYTES))
            except CorruptBatch:
                return -1
            self.first_timestamp = header.max_timestamp
        return self.first_timestamp

    def largest_timestamp(self) -> int:
        """Return the largest timestamp of all batches; -1 if empty."""
        if self.max_timestamp < 0:
            self.load_indexes()
        return self.top_timestamp

    @property
    def top_timestamp(self) -> int:
        """The largest timestamp that is known without reading the indexes; -1 if none is.

        A batch that is damaged by now may have had it.
        """
        return max(self.max_timestamp, self.sealed_timestamp)

    def newest_before(self, bound: int) -> tuple[int, int, int]:
        """Return (largest timestamp, last offset of its batch, end of the counted batches) of batches below `bound`.

        Only the indexes are used. The timestamp is -1 if they have no answer. Raises CorruptSegment, OSError.
        """
        self.load_indexes()
        if self.max_timestamp_offset < bound:
            return self.max_timestamp, self.max_timestamp_offset, self.next_offset
        indexed = self.offsets.entry(bound - 1)
        newest = None if indexed is None else self.times.newest_up_to(indexed[0])
        if indexed is None or newest is None or self._base_at(*indexed) is None or not self._agrees(*newest):
            return -1, self.base_offset, self.base_offset
        return *newest, indexed[0]

    def unload_indexes(self) -> None:
        """Drop the indexes of a closed segment from memory. They are read again when needed. Raises OSError."""
        if not self._loaded or self.aborted_lost or self.size == 0:
            return
        if not (self.offsets.is_flushed and self.times.is_flushed and self.aborted.is_flushed):
            self.flush_indexes(final=True)
        self.offsets.unload()
        self.times.unload()
        self._loaded = False
        if len(self.aborted) > _MOST_LOADED_ABORTED:
            self.aborted.unload()
            self._aborted_loaded = False

    def flush_indexes(self, *, final: bool = False) -> None:
        """Write the indexes.

        Raises OSError.

        `final`: the last entry has the largest timestamp, so that no scan has to find it.
        """
        self.load_indexes()  # otherwise the files would be cut to the entries in memory
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
        """Close and remove the files, the log last: until it is removed the segment exists. Raises OSError."""
        self.close()
        for suffix in (INDEX, TIME_INDEX, TXN_INDEX, LOG):
            self._files.remove(self.stem + suffix + self._suffix)


class LoadedIndexes:
    """Only a few closed segments keep their indexes in memory: those that were used last."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        self._segments: dict[Segment, None] = {}  # the longest unused first

    def use(self, segment: Segment) -> None:
        """Note that the indexes of a closed segment are used. Raises OSError."""
        self._segments.pop(segment, None)
        self._segments[segment] = None
        if len(self._segments) > _MOST_LOADED_INDEXES:
            oldest = next(iter(self._segments))
            del self._segments[oldest]
            oldest.unload_indexes()
