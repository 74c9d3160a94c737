"""Files of producer snapshots, which are written after the log and the indexes below them are synced.

A start does not scan the log below a snapshot. A snapshot is therefore prepared at an offset, and written when a sync
has covered that offset and the index files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from fencepost.broker.disk.changes import Change
from fencepost.broker.disk.files import File, Files
from fencepost.broker.log.layout import SNAPSHOT, file_name

__all__ = ["SnapshotKeeper"]

_MOST_SNAPSHOTS = 2


@dataclass(slots=True)
class _WaitingSnapshot:
    offset: int
    data: bytes
    offered: bool = False
    """True once its index files were returned for a sync."""


class SnapshotKeeper:
    __slots__ = ("_directory", "_files", "_index_files", "_pending", "offsets")

    def __init__(self, files: Files, directory: str, offsets: list[int]) -> None:
        """Start with the snapshots on disk. `offsets` are their offsets, ascending."""
        self._files = files
        self._directory = directory
        self.offsets = offsets
        self._pending: list[_WaitingSnapshot] = []
        self._index_files: dict[File, None] = {}

    @property
    def newest(self) -> int:
        """Offset of the newest snapshot on disk; -1 if there is none."""
        return self.offsets[-1] if self.offsets else -1

    def prepare(self, offset: int, data: bytes, index_files: Iterable[File]) -> None:
        """Add a waiting snapshot. At most two wait: the oldest, which the next sync releases, and the newest."""
        self._index_files.update(dict.fromkeys(index_files))
        del self._pending[1:]
        self._pending.append(_WaitingSnapshot(offset, data))

    def offer(self) -> list[File]:
        """Return the index files to sync together with the log."""
        for pending in self._pending:
            pending.offered = True
        return list(self._index_files)

    def _ready(self, synced_offset: int) -> list[_WaitingSnapshot]:
        return [pending for pending in self._pending if pending.offered and pending.offset <= synced_offset]

    def is_ready(self, synced_offset: int) -> bool:
        """Return true if the log and the indexes of a waiting snapshot are on disk."""
        return bool(self._ready(synced_offset))

    def writing(self, synced_offset: int) -> Change[None]:
        """Write the newest snapshot that is ready. Raises OSError; it is then repeated later."""
        newest = self._ready(synced_offset)[-1]
        yield partial(self._files.write_atomic, self._path(newest.offset), newest.data)
        self._pending = [pending for pending in self._pending if pending.offset > newest.offset]
        if not self._pending:
            self._index_files = {}
        if newest.offset not in self.offsets:
            self.offsets.append(newest.offset)
        while len(self.offsets) > _MOST_SNAPSHOTS:
            self._files.remove(self._path(self.offsets[0]))
            del self.offsets[0]

    def keep_from(self, offset: int) -> None:
        """Remove the snapshots below an offset, because their segments are about to be rewritten. Raises OSError."""
        self._pending = [pending for pending in self._pending if pending.offset >= offset]
        while self.offsets and self.offsets[0] < offset:
            self._files.remove(self._path(self.offsets[0]))
            del self.offsets[0]

    def forget_files(self, files: Iterable[File]) -> None:
        """Drop files of a segment that is being removed."""
        for file in files:
            self._index_files.pop(file, None)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, SNAPSHOT)}"
