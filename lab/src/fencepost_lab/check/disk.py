"""An in-memory disk that tracks synced and unsynced data separately.

It can lose, tear or refuse unsynced writes.

`MemoryDisk` implements `broker.files.Files`. It models three facts. Unsynced bytes may survive a power loss in any
mixture of 512-byte sectors. The creation, renaming and removal of a file become durable with a sync of the file or its
directory. A failed sync drops its bytes for good, and a later sync succeeds without them, as on Linux. It does not
model two: renames of directories are durable at once, and reads return wrong data only after a bit flip.

`durable=False` models `fsync=never`: the data survives `kill`, and any part of it may be lost in `crash`.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from fencepost.broker.disk.pending_writes import PendingWrites
from fencepost.protocol.cursor import Buffer

__all__ = ["MemoryDisk", "MemoryFile", "PowerCut"]

_SECTOR_BYTES = 512
SIMULATED_BYTES = 2**30
_Operation = tuple[int, bytes | None]  # (position, data), or (size, None) for a truncation


class PowerCut(BaseException):
    """The disk stopped in the middle of an operation (`power_cut_after`).

    A BaseException, so that no handler catches it.
    """


class _FileContents:
    """One file's contents: `data` as written, and `durable` as found after a power loss."""

    __slots__ = ("data", "durable", "named", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.named = False
        self.pending: list[_Operation] = []

    def apply(self, operation: _Operation) -> None:
        _apply(self.data, operation)
        self.pending.append(operation)


def _apply(data: bytearray, operation: _Operation) -> None:
    position, written = operation
    if written is None:
        del data[position:]
        data.extend(bytes(position - len(data)))
        return
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    data[position : position + len(written)] = written


class _Tree:
    """Files by path and by parent directory, because each log lists its directory at start."""

    __slots__ = ("_by_path", "_names")

    def __init__(self) -> None:
        self._by_path: dict[str, _FileContents] = {}
        self._names: dict[str, set[str]] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._by_path

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_path)

    def get(self, path: str) -> _FileContents | None:
        return self._by_path.get(path)

    def items(self) -> Iterable[tuple[str, _FileContents]]:
        """Iterate over paths and files."""
        return self._by_path.items()

    def put(self, path: str, node: _FileContents) -> None:
        """Store the file at the path, replacing an earlier one."""
        if path not in self._by_path:
            directory, _, name = path.rpartition("/")
            self._names.setdefault(directory, set()).add(name)
        self._by_path[path] = node

    def take(self, path: str) -> _FileContents | None:
        """Remove the file and return it; None if it does not exist."""
        node = self._by_path.pop(path, None)
        if node is not None:
            directory, _, name = path.rpartition("/")
            names = self._names[directory]
            names.remove(name)
            if not names:
                del self._names[directory]
        return node

    def directories(self) -> Iterable[str]:
        """Return the directories that contain files."""
        return self._names

    def within(self, directory: str) -> Iterable[str]:
        """Return the names of the files directly in a directory."""
        return self._names.get(directory, ())


class MemoryFile:
    """A file handle. After `crash` or `kill` every use raises OSError, because the process that opened it has ended."""

    __slots__ = ("_age", "_disk", "_node", "_size", "path")

    def __init__(self, disk: MemoryDisk, path: str, node: _FileContents) -> None:
        self._disk = disk
        self._node = node
        self._age = disk.age
        self._size = len(node.data)
        self.path = path

    def _check(self) -> None:
        if self._age != self._disk.age:
            raise OSError(errno.EBADF, "the handle is from before the crash", self.path)

    def append(self, *parts: Buffer) -> None:
        self._check()
        data = b"".join(parts)
        self._disk.write(self._node, self._size, data, self.path)
        self._size += len(data)

    def read(self, position: int, size: int) -> bytes:
        self._check()
        self._disk.before_read(self.path)
        return bytes(self._node.data[position : position + size])

    def write_at(self, position: int, data: Buffer) -> None:
        self._check()
        try:
            self._disk.write(self._node, position, bytes(data), self.path)
        except OSError:
            self._disk.not_overwritten[self.path] += position + len(data) <= len(self._node.data)
            raise
        self._size = max(self._size, position + len(data))

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.before_change(self.path)
        self._node.apply((size, None))
        self._size = size

    def size(self) -> int:
        return self._size

    def sync(self) -> None:
        self._check()
        self._disk.sync(self._node, self.path)

    def close(self) -> None:
        return


class MemoryDisk:
    """An in-memory disk, described in the module's docstring. Not thread-safe."""

    def __init__(self, *, durable: bool = True) -> None:
        self.durable = durable
        self.age = 0
        self.writes = 0
        """Changes so far: writes, truncations, removals, atomic replacements."""
        self.syncs = 0
        self.not_overwritten: Counter[str] = Counter()
        """Number of refused calls of `write_at` that would not have extended the file, by path."""
        self._files = _Tree()
        self._directories: set[str] = {""}
        self._removed: dict[str, _FileContents] = {}  # removals that a crash may undo
        self._renamed: list[
            tuple[str, str, _FileContents | None]
        ] = []  # renames that a crash may undo: old name, new name, replaced file
        self._write_failures: list[tuple[OSError, int, str]] = []
        self._sync_failures: list[OSError] = []
        self._read_failures: list[OSError] = []
        self._changes_left: int | None = None
        self.is_full = False
        """True if no file can grow. Space from `reserve` still allows replacing small files."""
        self.is_read_only = False
        """True if no change is possible, as after the kernel remounted a file system with errors."""
        self.is_out_of_descriptors = False
        """True if no file can be opened."""
        self._reserved = False
        self._pending_writes = PendingWrites(self._write_atomic, self._remove_durably)

    # Faults

    def fail_next_write(self, error: OSError | None = None, *, written: int = 0, within: str = "") -> None:
        """Let the next write or truncation fail after `written` bytes.

        Only paths that contain `within` count. Several calls add up. The default error is a full disk.
        """
        full = OSError(errno.ENOSPC, "no space left on the simulated disk")
        self._write_failures.append((error or full, written, within))

    def fail_next_sync(self, error: OSError | None = None) -> None:
        """Let the next sync fail. Its data never becomes durable."""
        self._sync_failures.append(error or OSError(errno.EIO, "the simulated disk failed to sync"))

    def fail_next_read(self, error: OSError | None = None) -> None:
        self._read_failures.append(error or OSError(errno.EIO, "the simulated disk failed to read"))

    def power_cut_after(self, changes: int) -> None:
        """Raise PowerCut in place of the change after `changes` changes, and of all later ones until `crash`."""
        self._changes_left = changes

    def heal(self) -> None:
        """End all faults. Data lost by a failed sync stays lost."""
        self.is_full = self.is_read_only = self.is_out_of_descriptors = False
        self._changes_left = None
        self._write_failures, self._sync_failures, self._read_failures = [], [], []

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Flip one bit of the stored data. `position` is in bytes; a negative one counts from the end."""
        node = self._node_of(path)
        node.data[position] ^= 1 << bit
        if -len(node.durable) <= position < len(node.durable):
            node.durable[position] ^= 1 << bit

    def tree(self, path: str) -> dict[str, bytes]:
        """Return a copy of all files below a directory, by path."""
        return {name: bytes(self._node_of(name).data) for name in self._below(path)}

    def put_tree(self, path: str, files: Mapping[str, bytes]) -> None:
        """Replace all files below a directory, durably."""
        for name in self._below(path):
            self._files.take(name)
        for name, data in files.items():
            node = _FileContents()
            self._files.put(name, node)
            node.data, node.durable, node.named = bytearray(data), bytearray(data), True

    def kill(self) -> None:
        """Kill the process (kill -9): all written data survives, and all handles become invalid."""
        self.age += 1
        self._changes_left = None
        self._write_failures, self._sync_failures, self._read_failures = [], [], []
        self._pending_writes.forget_all()

    def crash(self, seed: int) -> None:
        """Lose power: a mixture of the unsynced data survives, chosen by `seed`."""
        self.kill()
        rng = random.Random(seed)
        for path, node in sorted(self._removed.items()):
            if path not in self._files and rng.random() < 0.5:
                self._files.put(path, node)
        self._removed = {}
        self._undo_renames(rng)
        for path, node in sorted(self._files.items()):
            if not node.named and rng.random() < 0.5:
                self._files.take(path)
                continue
            for operation in _survivors(node.pending, rng):
                _apply(node.durable, operation)
            node.data, node.pending, node.named = bytearray(node.durable), [], True

    # Shared by handles and the methods below.

    def before_change(self, path: str) -> int | None:
        """Count a change. Return the number of bytes to write before raising `take_failure()`, or None for all."""
        if self.is_read_only:
            raise OSError(errno.EROFS, "the simulated disk is read-only", path)
        if self._changes_left is not None:
            if self._changes_left <= 0:
                self._changes_left = -1
                raise PowerCut(path)
            self._changes_left -= 1
        self.writes += 1
        if self._write_failures and self._write_failures[0][2] in path:
            error, written, within = self._write_failures.pop(0)
            if written == 0:
                raise error
            self._write_failures.insert(0, (error, 0, within))
            return written
        return None

    def before_read(self, path: str) -> None:
        if self._read_failures:
            raise self._read_failures.pop(0)

    def write(self, node: _FileContents, position: int, data: bytes, path: str) -> None:
        if self.is_read_only:
            raise OSError(errno.EROFS, "the simulated disk is read-only", path)
        if self._changes_left == 0 and data:  # the power fails during this write
            node.apply((position, data))
        if self.is_full and position + len(data) > len(node.data):
            raise OSError(errno.ENOSPC, "no space left on the simulated disk", path)
        allowed = self.before_change(path)
        node.apply((position, data if allowed is None else data[:allowed]))
        if allowed is not None:
            raise self._write_failures.pop(0)[0]

    def sync(self, node: _FileContents, path: str) -> None:
        if not self.durable:
            return
        if self._changes_left is not None and self._changes_left <= 0:
            raise PowerCut(path)
        self.syncs += 1
        if self._sync_failures:
            node.pending = []
            raise self._sync_failures.pop(0)
        for operation in node.pending:
            _apply(node.durable, operation)
        node.pending, node.named = [], True

    def _take_descriptor(self, path: str) -> None:
        if self.is_out_of_descriptors:
            raise OSError(errno.EMFILE, "the simulated process has no descriptors left", path)

    # Files

    def open(self, path: str) -> MemoryFile:
        self._take_descriptor(path)
        node = self._files.get(path)
        if node is None:
            if path.rpartition("/")[0] not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            self.before_change(path)
            node = _FileContents()
            self._files.put(path, node)
        return MemoryFile(self, path, node)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def listdir(self, path: str) -> list[str]:
        prefix = f"{path}/" if path else ""
        inside = [name for name in (*self._directories, *self._files.directories()) if name.startswith(prefix)]
        below = {name[len(prefix) :].partition("/")[0] for name in inside} - {""}
        return sorted(below.union(self._files.within(path)))

    def makedirs(self, path: str) -> None:
        parts = path.split("/")
        self._directories.update("/".join(parts[: n + 1]) for n in range(len(parts)))

    def remove(self, path: str) -> None:
        self._pending_writes.forget(path)
        self._remove(path)

    def _remove(self, path: str) -> None:
        node = self._files.get(path)
        if node is not None:
            self.before_change(path)
            self._removed[path] = node
            self._files.take(path)

    def remove_tree(self, path: str) -> None:
        self._pending_writes.forget(path)
        for name in self._below(path):
            self._remove(name)
        self._directories = {d for d in self._directories if d != path and not d.startswith(f"{path}/")}

    def rename(self, old: str, new: str) -> None:
        self._pending_writes.forget(old)
        self.before_change(old)
        node = self._files.take(old)
        if node is not None:
            if self.durable:
                self._renamed.append((old, new, self._files.get(new)))
            self._files.put(new, node)
            return
        if old not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", old)
        for name in self._below(old):
            inside = self._files.take(name)
            if inside is not None:
                self._files.put(new + name[len(old) :], inside)
        # Files that a crash may restore must reappear in the directory under its new name.
        for name in [name for name in self._removed if name.startswith(f"{old}/")]:
            self._removed[new + name[len(old) :]] = self._removed.pop(name)
        moved = {d for d in self._directories if d == old or d.startswith(f"{old}/")}
        self._directories = (self._directories - moved) | {new + d[len(old) :] for d in moved}

    def read_bytes(self, path: str) -> bytes:
        node = self._node_of(path)
        self._take_descriptor(path)
        self.before_read(path)
        return bytes(node.data)

    @property
    def has_pending_writes(self) -> bool:
        return bool(self._pending_writes)

    def write_later(self, path: str, data: bytes) -> None:
        self._pending_writes.add(path, data)

    def settle(self) -> None:
        self._pending_writes.settle_all()

    def _remove_durably(self, path: str) -> None:
        self._remove(path)
        self.sync_directory(path.rpartition("/")[0])

    def write_atomic(self, path: str, data: bytes) -> None:
        self._pending_writes.settle(path)
        self._write_atomic(path, data)

    def _write_atomic(self, path: str, data: bytes) -> None:
        if path.rpartition("/")[0] not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self._take_descriptor(path)
        if self.is_full and not self._reserved:
            raise OSError(errno.ENOSPC, "no space left on the simulated disk", path)
        if self.before_change(path) is not None:
            raise self._write_failures.pop(0)[0]
        node = _FileContents()
        node.apply((0, data))
        if self.durable:
            if self._sync_failures:
                raise self._sync_failures.pop(0)
            node.durable, node.pending, node.named = bytearray(data), [], True
            self._removed.pop(path, None)
        earlier = self._files.get(path)
        self._files.put(path, node)
        try:
            self.sync_directory(path.rpartition("/")[0])
        except OSError:
            if earlier is None:
                self._files.take(path)
            else:
                self._files.put(path, earlier)
            raise

    def space(self) -> tuple[int, int]:
        return SIMULATED_BYTES, 0 if self.is_full else SIMULATED_BYTES

    def sync_directory(self, path: str) -> None:
        if not self.durable:
            return
        if self._sync_failures:
            raise self._sync_failures.pop(0)
        for name in [n for n in self._removed if n.rpartition("/")[0] == path]:
            del self._removed[name]
        self._renamed = [rename for rename in self._renamed if rename[1].rpartition("/")[0] != path]
        prefix = f"{path}/" if path else ""
        for name, node in self._files.items():
            if not node.named and name.startswith(prefix):
                node.named = True

    def reserve(self) -> None:
        """Reserve space, so that small files can be replaced although the disk is full."""
        self._reserved = self._reserved or not self.is_full

    def _undo_renames(self, rng: random.Random) -> None:
        """Undo the last renames by chance. A file system persists renames in order."""
        survive = rng.randint(0, len(self._renamed)) if self._renamed else 0
        for old, new, replaced in reversed(self._renamed[survive:]):
            node = self._files.take(new)
            if node is None:
                continue  # a later removal or rename of its directory stays
            self._files.put(old, node)
            if replaced is not None:
                self._files.put(new, replaced)
        self._renamed = []

    def _below(self, path: str) -> list[str]:
        prefix = f"{path}/" if path else ""
        return sorted(name for name in self._files if name.startswith(prefix))

    def _node_of(self, path: str) -> _FileContents:
        node = self._files.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node


def _survivors(pending: list[_Operation], rng: random.Random) -> list[_Operation]:
    """Choose the unsynced operations that reached the disk: none, all, a prefix, or a mixture of sectors."""
    choice = rng.randrange(4)
    if choice == 0:
        return []
    if choice == 1:
        return list(pending)
    sectors = [piece for operation in pending for piece in _sectors(operation)]
    if choice == 2:
        written = sectors[: rng.randint(0, len(sectors))]
        if written and written[-1][1] and rng.random() < 0.5:  # tear the last write
            position, data = written[-1]
            written[-1] = (position, (data or b"")[: rng.randint(0, len(data or b""))])
        return written
    share = rng.random()
    return [piece for piece in sectors if rng.random() < share]


def _sectors(operation: _Operation) -> Iterator[_Operation]:
    position, data = operation
    if data is None:
        yield operation
        return
    at = 0
    while at < len(data):
        end = at + _SECTOR_BYTES - (position + at) % _SECTOR_BYTES
        yield position + at, data[at:end]
        at = end
