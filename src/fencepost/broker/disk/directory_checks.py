"""Lock the data directory, and check that it is still at its path."""

from __future__ import annotations

import errno
import os
from importlib.util import find_spec

from fencepost.broker.disk.meta import META
from fencepost.broker.disk.system_files import is_present
from fencepost.broker.disk.two_copies import COPY

__all__ = ["DirectoryGone", "DirectoryInUse", "check_directory", "check_system", "lock_directory"]


class DirectoryInUse(Exception):
    """Another broker uses the data directory."""


class DirectoryGone(Exception):
    """The data directory was removed, emptied, moved or covered by a mount while the broker runs."""


def check_system() -> None:
    """Raise OSError if the broker cannot run on this system."""
    if find_spec("fcntl") is None:
        raise OSError(errno.ENOSYS, "the broker needs the files and locks of a POSIX system, as Linux and macOS have")


def lock_directory(directory: str) -> int:
    """Lock the directory until the returned descriptor is closed. A lock file in it could be removed.

    Raises DirectoryInUse or OSError.
    """
    check_system()
    import fcntl

    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory) from error
    except OSError as error:
        raise OSError(error.errno, f"the data directory cannot be made: {error.strerror}", directory) from error
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


def check_directory(directory: str, descriptor: int) -> None:
    """Raise DirectoryGone if the next start would not find the files written now.

    Open files accept writes after their names were removed. `descriptor` is the result of `lock_directory`.
    """
    try:
        is_same = os.path.samestat(os.stat(directory), os.fstat(descriptor))
        is_full = any(is_present(os.path.join(directory, name)) for name in (META, META + COPY))
    except (FileNotFoundError, NotADirectoryError):
        is_same = is_full = False
    except OSError:
        return  # the check failed, which does not mean that the directory is gone
    if not is_same or not is_full:
        what = "emptied" if is_same else "removed, moved or covered by another"
        raise DirectoryGone(f"the data directory {directory} was {what} while the broker ran: new writes would be lost")
