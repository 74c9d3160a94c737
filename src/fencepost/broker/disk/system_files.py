"""The real disk behind `broker.files`.

The number of open files is limited: above `max_open` the least recently used one is closed, and reopened on use. So
`ulimit -n` does not limit the number of partitions. `durable=False` omits every fsync (`fsync=never`): data survives
the death of the process, but not a power failure.

`reserve` reserves space for small files that must be written on a full disk, so that topics can still be deleted.
`write_atomic` uses it if there is no other space. Files and directories are accessible to their owner only.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import stat
import threading

from fencepost.broker.disk.files import OutcomeUnknown, is_full
from fencepost.broker.disk.pending_writes import PendingWrites
from fencepost.protocol.cursor import Buffer

__all__ = ["SystemFile", "SystemFiles", "default_max_open", "descriptor_limit", "is_present", "raise_descriptor_limit"]

_IOV_MAX = 1024
_RESERVE = "reserve.fencepost"
_RESERVE_BYTES = 2 << 20
_FILE_MODE, _DIRECTORY_MODE = 0o600, 0o700

_log = logging.getLogger("fencepost.broker.files")
_MOST_DESCRIPTORS = 1 << 20


def default_max_open() -> int:
    """Return a quarter of the process's descriptor limit, at most 4096; the rest is for connections."""
    return max(16, min(4096, descriptor_limit() // 4))


def descriptor_limit() -> int:
    """Return the process's limit of file descriptors."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return 1024
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> int:
    """Raise the descriptor limit as far as the system allows; return the new limit."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return descriptor_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # some systems report a limit that they do not grant
            wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return descriptor_limit()


class SystemFile:
    __slots__ = ("_fd", "_lock", "_new", "_owner", "_path", "_size", "used")

    def __init__(self, owner: SystemFiles, path: str, *, new: bool) -> None:
        self._owner = owner
        self._path = path
        self._fd = -1
        self._new = new
        self._lock = threading.Lock()  # between sync() in another thread and the closing of the descriptor
        self.used = True
        self._size = os.fstat(self._descriptor(os.O_CREAT)).st_size

    def _descriptor(self, creating: int = 0) -> int:
        """Return the descriptor. Reopening never creates the file, because an empty file would look like damage."""
        self.used = True
        if self._fd < 0:
            with self._lock:
                self._fd = _open_regular(self._path, os.O_RDWR | creating)
            self._owner.opened(self)
        return self._fd

    def append(self, *parts: Buffer) -> None:
        fd = self._descriptor()
        position = self._size
        wanted = sum(map(len, parts))
        written = os.pwritev(fd, parts, position) if len(parts) <= _IOV_MAX else 0
        while written < wanted:  # after a signal or on a nearly full disk; the next call raises the reason
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
        fd = self._borrow()
        try:
            os.fsync(fd)
        finally:
            self._give_back(fd)
        if self._new:  # the name in its directory, and the directory's in its parent
            directory = os.path.dirname(self._path)
            sync_directory(directory)
            sync_directory(os.path.dirname(directory))
            self._new = False

    def _borrow(self) -> int:
        """Return the file's own descriptor for a sync, or a new one if the file has none open."""
        with self._lock:
            fd = self._fd
            if fd < 0:
                fd = _open_regular(self._path, os.O_RDWR)
                self._owner.orphans.add(fd)
            self._owner.borrowed[fd] = self._owner.borrowed.get(fd, 0) + 1
            return fd

    def _give_back(self, fd: int) -> None:
        with self._lock:
            borrowed, orphans = self._owner.borrowed, self._owner.orphans
            borrowed[fd] -= 1
            if borrowed[fd]:
                return
            del borrowed[fd]
            if fd not in orphans:
                return
            orphans.discard(fd)
        os.close(fd)

    def release(self) -> None:
        """Release the descriptor as soon as no sync uses it; the file stays usable."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd in self._owner.borrowed:
                self._owner.orphans.add(fd)
                return
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        self._owner.closed(self)
        self.release()


def is_present(path: str) -> bool:
    """Return true if there is a file or directory. Raises OSError if that cannot be known.

    `os.path.exists` returns false for every error, but after an error other than these the file may exist.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _open_regular(path: str, flags: int) -> int:
    """Return a descriptor of the file. Raises OSError also for a FIFO, a device, a socket and a directory.

    Opening or reading a FIFO could wait for its writer forever, and the contents of a device differ between reads.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, _FILE_MODE)
    except OSError as error:
        if error.errno != errno.ENXIO:  # of a socket, and of a FIFO without a reader
            raise
        raise _not_regular(path) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _not_regular(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _not_regular(path: str) -> OSError:
    return OSError(errno.EINVAL, "this is not a regular file; move it away, or restore the broker's file", path)


class _Earlier:
    """The bytes of a file that is about to be replaced; None if there is no file.

    If the file cannot be read, `error` has the reason. It can still be replaced.
    """

    def __init__(self, absolute: str) -> None:
        self.data: bytes | None = None
        self.error: OSError | None = None
        try:
            descriptor = _open_regular(absolute, os.O_RDONLY)
        except FileNotFoundError:
            return
        with open(descriptor, "rb") as file:
            try:
                self.data = file.read()
            except OSError as error:
                self.error = error


def sync_directory(path: str) -> None:
    fd = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class SystemFiles:
    """Files below `root`. Raises OSError like the system."""

    def __init__(self, root: str, *, durable: bool = True, max_open: int | None = None) -> None:
        self.root = os.path.abspath(root)
        self.durable = durable
        self._max_open = default_max_open() if max_open is None else max_open
        # An open descriptor belongs to one file, so the lock of that file guards its entries.
        self.borrowed: dict[int, int] = {}
        """Number of syncs that use a descriptor."""
        self.orphans: set[int] = set()
        """Descriptors that their file no longer uses. Their last sync closes them."""
        self._open: dict[SystemFile, None] = {}  # in the order of opening
        self._open_lock = threading.Lock()  # for `_open`, because several threads close logs at the end
        self._has_reserve = False
        self._used_reserve = False  # for small files on a full disk, and not reserved again yet
        self._pending_writes = PendingWrites(self._write_atomic, self._remove_durably)
        self._pending_lock = threading.RLock()  # settle() runs in another thread
        os.makedirs(self.root, mode=_DIRECTORY_MODE, exist_ok=True)

    def opened(self, file: SystemFile) -> None:
        with self._open_lock:
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
        with self._open_lock:
            self._open.pop(file, None)

    def close(self) -> None:
        """Close all open files without a sync, as the system does when a process ends."""
        with self._open_lock:
            left, self._open = list(self._open), {}
        for file in left:
            file.release()

    @property
    def open_count(self) -> int:
        return len(self._open)

    def _absolute(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root

    def open(self, path: str) -> SystemFile:
        absolute = self._absolute(path)
        return SystemFile(self, absolute, new=not os.path.exists(absolute))

    def exists(self, path: str) -> bool:
        return is_present(self._absolute(path))

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._absolute(path)))
        except FileNotFoundError:
            return []

    def makedirs(self, path: str) -> None:
        os.makedirs(self._absolute(path), mode=_DIRECTORY_MODE, exist_ok=True)

    def remove(self, path: str) -> None:
        self._drop_pending(path)
        try:
            os.remove(self._absolute(path))
        except FileNotFoundError:
            return

    def _remove_durably(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._absolute(path))
        self.sync_directory(os.path.dirname(path))

    def remove_tree(self, path: str) -> None:
        self._drop_pending(path)
        absolute = self._absolute(path)
        if os.path.islink(absolute):
            target = os.path.realpath(absolute)
            os.remove(absolute)
            _log.warning("%s was a link and is removed; what it led to stays: remove %s by hand", absolute, target)
        elif os.path.isdir(absolute):
            shutil.rmtree(absolute)

    def rename(self, old: str, new: str) -> None:
        self._drop_pending(old)
        os.replace(self._absolute(old), self._absolute(new))

    def read_bytes(self, path: str) -> bytes:
        with open(_open_regular(self._absolute(path), os.O_RDONLY), "rb") as file:
            return file.read()

    def reserve(self) -> None:
        """Reserve space for small files, if the disk has any. Does nothing if it is reserved already."""
        path = self._absolute(_RESERVE)
        if self._has_reserve or (os.path.exists(path) and os.stat(path).st_blocks * 512 >= _RESERVE_BYTES):
            self._has_reserve = True
            return
        try:
            descriptor = _open_regular(path, os.O_WRONLY | os.O_CREAT)
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(descriptor, 0, _RESERVE_BYTES)
                else:  # macOS
                    os.pwrite(descriptor, bytes(_RESERVE_BYTES), 0)
            finally:
                os.close(descriptor)
        except OSError as error:
            self.remove(_RESERVE)
            _log.warning("cannot reserve space for small files (%s): on a full disk topics may not be deletable", error)
            return
        self._has_reserve = True
        if self._used_reserve:
            self._used_reserve = False
            _log.info("the disk has room again; some of it is kept for small files")

    def _drop_pending(self, path: str) -> None:
        if self._pending_writes:
            with self._pending_lock:
                self._pending_writes.forget(path)

    @property
    def has_pending_writes(self) -> bool:
        return bool(self._pending_writes)

    def write_later(self, path: str, data: bytes) -> None:
        with self._pending_lock:
            self._pending_writes.add(path, data)

    def settle(self) -> None:
        with self._pending_lock:
            self._pending_writes.settle_all()

    def write_atomic(self, path: str, data: bytes) -> None:
        if not self._pending_writes:
            self._write_atomic(path, data)
            return
        with self._pending_lock:  # write pending bytes first, because a failure of this write restores them
            self._pending_writes.settle(path)
            self._write_atomic(path, data)

    def _write_atomic(self, path: str, data: bytes) -> None:
        try:
            self._replace(path, data)
        except OSError as error:
            if not is_full(error) or not os.path.exists(self._absolute(_RESERVE)):
                raise
            _log.error("the disk is full (FP104); the room that was kept for small files is used")
            self._has_reserve, self._used_reserve = False, True
            self.remove(_RESERVE)
            self._replace(path, data)

    def _replace(self, path: str, data: bytes) -> None:
        absolute = self._absolute(path)
        if not self.durable:
            self._exchange(absolute, data)
            return
        # Opened before the exchange, because without a descriptor it could be neither synced nor undone.
        directory = os.open(os.path.dirname(absolute), os.O_RDONLY | os.O_CLOEXEC)
        try:
            earlier = _Earlier(absolute)
            self._exchange(absolute, data)
            try:
                os.fsync(directory)
            except OSError:
                self._undo(path, earlier, directory)
                raise
        finally:
            os.close(directory)

    def _exchange(self, absolute: str, data: bytes) -> None:
        """Write the bytes to a temporary file, and give it the name. After an OSError the old file has the name."""
        temporary = absolute + ".tmp"
        try:
            with open(_open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
                file.write(data)
                file.flush()
                if self.durable:
                    os.fsync(file.fileno())
            os.replace(temporary, absolute)
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(temporary)  # a partial file takes space
            raise

    def _undo(self, path: str, earlier: _Earlier, directory: int) -> None:
        """Restore the earlier file, because the caller continues with its contents. Raises OutcomeUnknown."""
        absolute = self._absolute(path)
        try:
            if earlier.error is not None:
                raise earlier.error
            if earlier.data is None:
                os.remove(absolute)
            else:
                self._exchange(absolute, earlier.data)
            os.fsync(directory)
        except OSError as error:
            if earlier.error is None:
                with self._pending_lock:
                    self._pending_writes.add(path, earlier.data)
            _log.critical(
                "%s: a change failed, and the earlier file cannot be restored: %s. The change is not in effect, but "
                "may be after the next start; the broker tries to restore the file every second",
                *(absolute, error),
            )
            reason = f"{error.strerror}; the failed change could not be undone"
            raise OutcomeUnknown(error.errno, reason, path) from error

    def sync_directory(self, path: str) -> None:
        if self.durable:
            sync_directory(self._absolute(path))

    def space(self) -> tuple[int, int]:
        try:
            found = os.statvfs(self.root)
        except OSError:
            return -1, -1
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
