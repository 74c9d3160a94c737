"""The real disk behind `broker.files`.

File descriptors are bounded: beyond `max_open` the least recently used one is closed and opened again when it is
needed, so that the number of partitions is not bound by `ulimit -n`. `durable=False` leaves out every fsync
(`fsync=never`): what the process wrote survives its death, not a power loss.
"""

from __future__ import annotations

import os
import shutil
import threading

from fencepost.broker.files import Buffer

__all__ = ["SystemFile", "SystemFiles", "default_max_open"]

_IOV_MAX = 1024


def default_max_open() -> int:
    """A quarter of the descriptors this process may have, at most 4096: the rest is for connections."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return 256
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4096 if soft == resource.RLIM_INFINITY else max(16, min(4096, soft // 4))


class SystemFile:
    __slots__ = ("_fd", "_lock", "_new", "_owner", "_path", "_size", "used")

    def __init__(self, owner: SystemFiles, path: str, *, new: bool) -> None:
        self._owner = owner
        self._path = path
        self._fd = -1
        self._new = new
        self._lock = threading.Lock()  # between sync() in another thread and whoever closes the descriptor
        self.used = True
        self._size = os.fstat(self._descriptor()).st_size

    def _descriptor(self) -> int:
        self.used = True
        if self._fd < 0:
            with self._lock:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._owner.opened(self)
        return self._fd

    def append(self, *parts: Buffer) -> None:
        fd = self._descriptor()
        position = self._size
        wanted = sum(map(len, parts))
        written = os.pwritev(fd, parts, position) if len(parts) <= _IOV_MAX else 0
        while written < wanted:  # a signal or a nearly full disk: go on, the next call says why
            rest = b"".join(parts)[written:]
            written += os.pwrite(fd, rest, position + written)
        self._size = position + wanted

    def read(self, position: int, size: int) -> bytes:
        fd = self._descriptor()
        data = os.pread(fd, size, position)
        if len(data) == size or not data:
            return data
        pieces = [data]
        got = len(data)
        while got < size:
            data = os.pread(fd, size - got, position + got)
            if not data:
                break
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def write_at(self, position: int, data: Buffer) -> None:
        fd = self._descriptor()
        written = 0
        view = memoryview(data)
        while written < len(view):
            written += os.pwrite(fd, view[written:], position + written)
        self._size = max(self._size, position + len(view))

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor(), size)
        self._size = size

    def size(self) -> int:
        return self._size

    def sync(self) -> None:
        if not self._owner.durable:
            return
        with self._lock:
            fd = os.dup(self._fd) if self._fd >= 0 else os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        if self._new:  # the name in its directory, and the directory's in its parent
            directory = os.path.dirname(self._path)
            sync_directory(directory)
            sync_directory(os.path.dirname(directory))
            self._new = False

    def release(self) -> None:
        """Give the descriptor back; the file stays usable."""
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        self._owner.closed(self)
        self.release()


def sync_directory(path: str) -> None:
    fd = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class SystemFiles:
    """Files below `root`. Raises OSError as the system does."""

    def __init__(self, root: str, *, durable: bool = True, max_open: int | None = None) -> None:
        self.root = os.path.abspath(root)
        self.durable = durable
        self._max_open = default_max_open() if max_open is None else max_open
        self._open: dict[SystemFile, None] = {}  # in the order they were opened
        os.makedirs(self.root, exist_ok=True)

    def opened(self, file: SystemFile) -> None:
        self._open[file] = None
        while len(self._open) > max(1, self._max_open):
            oldest = next(iter(self._open))
            del self._open[oldest]
            if oldest is file or oldest.used:  # a second chance
                oldest.used = False
                self._open[oldest] = None
            else:
                oldest.release()

    def closed(self, file: SystemFile) -> None:
        self._open.pop(file, None)

    @property
    def open_count(self) -> int:
        return len(self._open)

    def _absolute(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root

    def open(self, path: str) -> SystemFile:
        absolute = self._absolute(path)
        return SystemFile(self, absolute, new=not os.path.exists(absolute))

    def exists(self, path: str) -> bool:
        return os.path.exists(self._absolute(path))

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._absolute(path)))
        except FileNotFoundError:
            return []

    def makedirs(self, path: str) -> None:
        os.makedirs(self._absolute(path), exist_ok=True)

    def remove(self, path: str) -> None:
        try:
            os.remove(self._absolute(path))
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        absolute = self._absolute(path)
        if os.path.isdir(absolute):
            shutil.rmtree(absolute)

    def rename(self, old: str, new: str) -> None:
        os.replace(self._absolute(old), self._absolute(new))

    def read_bytes(self, path: str) -> bytes:
        with open(self._absolute(path), "rb") as file:
            return file.read()

    def write_atomic(self, path: str, data: bytes) -> None:
        absolute = self._absolute(path)
        temporary = absolute + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            if self.durable:
                os.fsync(file.fileno())
        os.replace(temporary, absolute)
        if self.durable:
            sync_directory(os.path.dirname(absolute))

    def sync_directory(self, path: str) -> None:
        if self.durable:
            sync_directory(self._absolute(path))
