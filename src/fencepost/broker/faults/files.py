"""Injection of a `FaultTable`'s disk faults in front of another disk."""

from __future__ import annotations

import errno
from collections.abc import Callable

from fencepost.broker.disk.files import File, Files
from fencepost.broker.faults.table import DiskOperation, FaultTable
from fencepost.protocol.cursor import Buffer

__all__ = ["FaultyFiles"]


class _FaultyFile:
    __slots__ = ("_disk", "_inner", "_path")

    def __init__(self, disk: FaultyFiles, path: str, inner: File) -> None:
        self._disk = disk
        self._path = path
        self._inner = inner

    def append(self, *parts: Buffer) -> None:
        self._disk.check(DiskOperation.WRITE, self._path)
        self._inner.append(*parts)

    def read(self, position: int, size: int) -> bytes:
        self._disk.check(DiskOperation.READ, self._path)
        return self._inner.read(position, size)

    def write_at(self, position: int, data: Buffer) -> None:
        self._disk.check(DiskOperation.WRITE, self._path)
        self._inner.write_at(position, data)

    def truncate(self, size: int) -> None:
        self._inner.truncate(size)

    def size(self) -> int:
        return self._inner.size()

    def sync(self) -> None:
        self._disk.check(DiskOperation.SYNC, self._path)
        self._inner.sync()

    def close(self) -> None:
        self._inner.close()


class FaultyFiles:
    """`inner` with the faults of `table`. `sleep(seconds)` is called for faults that take time."""

    def __init__(self, inner: Files, table: FaultTable, sleep: Callable[[float], None]) -> None:
        self._inner = inner
        self._table = table
        self._sleep = sleep
        self.exists = inner.exists
        self.listdir = inner.listdir
        self.makedirs = inner.makedirs
        self.remove = inner.remove
        self.remove_tree = inner.remove_tree
        self.rename = inner.rename
        self.reserve = inner.reserve
        self.write_later, self.settle = inner.write_later, inner.settle
        self.sync_directory = inner.sync_directory

    @property
    def has_pending_writes(self) -> bool:
        """True if `settle` has work."""
        return self._inner.has_pending_writes

    def check(self, operation: DiskOperation, path: str) -> None:
        """Raise OSError if this access has to fail."""
        if not self._table.disk:
            return
        fault = self._table.for_disk(operation, path)
        if fault is None:
            return
        if fault.delay_s:
            self._sleep(fault.delay_s)
        if fault.error:
            raise OSError(fault.error, f"{errno.errorcode.get(fault.error, fault.error)}, as was asked for", path)

    def open(self, path: str) -> File:
        return _FaultyFile(self, path, self._inner.open(path))

    def space(self) -> tuple[int, int]:
        """Return no free space while writes fail for want of it."""
        total, free = self._inner.space()
        return total, 0 if any(fault.error == errno.ENOSPC for fault in self._table.disk) else free

    def read_bytes(self, path: str) -> bytes:
        self.check(DiskOperation.READ, path)
        return self._inner.read_bytes(path)

    def write_atomic(self, path: str, data: bytes) -> None:
        self.check(DiskOperation.WRITE, path)
        self._inner.write_atomic(path, data)
