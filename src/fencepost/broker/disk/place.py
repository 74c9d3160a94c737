"""The data directory as this process holds it: locked against other brokers, and still where its name leads."""

from __future__ import annotations

import errno
import os
from importlib.util import find_spec

from fencepost.broker.disk.meta import META
from fencepost.broker.disk.two_copies import COPY

__all__ = ["DirectoryGone", "DirectoryInUse", "check_place", "check_system", "lock_directory"]


class DirectoryInUse(Exception):
    """Another broker works on the data directory."""


class DirectoryGone(Exception):
    """The data directory was removed, emptied, moved or covered under the running broker."""


def check_system() -> None:
    """Raises OSError where the broker cannot run at all."""
    if find_spec("fcntl") is None:
        raise OSError(errno.ENOSYS, "the broker needs the files and locks of a POSIX system, as Linux and macOS have")


def lock_directory(directory: str) -> int:
    """Hold the lock of the directory itself, which nobody can remove as they can a file in it, until the returned
    descriptor is closed. Raises DirectoryInUse, OSError."""
    check_system()
    import fcntl

    os.makedirs(directory, mode=0o700, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise DirectoryInUse(f"another broker works on {directory}") from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_place(directory: str, descriptor: int) -> None:
    """Raises DirectoryGone where a start would not find again what is written now: files that are open go on to take
    it, whatever became of their names. `descriptor`: of `lock_directory`."""
    try:
        is_same = os.path.samestat(os.stat(directory), os.fstat(descriptor))
        is_full = any(os.path.exists(os.path.join(directory, name)) for name in (META, META + COPY))
    except (FileNotFoundError, NotADirectoryError):
        is_same = is_full = False
    except OSError:
        return  # that it cannot be asked for does not say that it is gone
    if not is_same or not is_full:
        what = "emptied" if is_same else "removed, moved or covered by another"
        raise DirectoryGone(
            f"the data directory {directory} was {what} while the broker ran: what is written now would be lost"
        )
