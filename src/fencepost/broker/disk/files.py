"""The two protocols through which storage reads, writes, syncs, truncates and renames files.

The simulated disk of fencepost-lab implements them to lose, tear and refuse writes. Paths are `str`, relative to the
data directory, with `/`. Every method raises OSError if the disk does.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Protocol

from fencepost.protocol.cursor import Buffer
from fencepost.values import Value

__all__ = [
    "Buffer",
    "File",
    "Files",
    "OutcomeUnknown",
    "RunAll",
    "Sync",
    "changed_nothing",
    "is_full",
    "may_exist",
    "one_by_one",
]


class OutcomeUnknown(OSError):
    """A file could not be replaced, and the failed attempt could not be undone.

    `Files.settle` writes the earlier bytes later. If the process ends before that, the next start may find the new
    bytes.
    """


def is_full(error: OSError) -> bool:
    """Return true if the disk is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def changed_nothing(error: OSError) -> bool:
    """Return true if the refused call has certainly changed nothing, and may succeed later.

    No file descriptor was free, the file system is read-only, or a right is missing.
    """
    return error.errno in (errno.EMFILE, errno.ENFILE, errno.EROFS, errno.EACCES, errno.EPERM)


class File(Protocol):
    """An open file. Only `sync` may be called from another thread than the other methods."""

    def append(self, *parts: Buffer) -> None:
        """Write the parts, one after the other, at `size()`.

        If it raises, `size()` is unchanged. Bytes that were written are after the end, and the next append overwrites
        them or `truncate` removes them.
        """

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer only at the end of the file."""

    def write_at(self, position: int, data: Buffer) -> None: ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def sync(self) -> None:
        """Return when the bytes written so far, and the file's name, survive a power failure."""

    def close(self) -> None: ...


class Files(Protocol):
    def open(self, path: str) -> File:
        """Open for reading and writing; create the file if it is missing."""

    def exists(self, path: str) -> bool:
        """Return true if there is a file or directory. Raises OSError if this cannot be determined."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory; none if it does not exist."""

    def makedirs(self, path: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; do nothing if it does not exist."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its contents. For a link to a directory, only the link is removed, and logged."""

    def rename(self, old: str, new: str) -> None: ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace the whole file, and sync its directory.

        After a crash it has the old or the new bytes. After an OSError it has the old bytes, except for OutcomeUnknown.
        """

    @property
    def has_pending_writes(self) -> bool:
        """True if `settle` has work."""

    def write_later(self, path: str, data: bytes) -> None:
        """Let `settle` replace the file by these bytes."""

    def settle(self) -> None:
        """Write all pending bytes. Raises OSError if some stay pending. Another thread may call it."""

    def sync_directory(self, path: str) -> None:
        """Make creations and removals in this directory durable."""

    def space(self) -> tuple[int, int]:
        """Return the size of the disk and its free space in bytes; -1 for each that is unknown."""

    def reserve(self) -> None:
        """Reserve disk space for `write_atomic`, which uses it if the disk is full. Never raises for a full disk."""


class Sync(Value):
    """Sync these files, then call `BrokerCore.synced` with the token.

    A failure must never be ignored.
    """

    token: int
    files: Sequence[File]


RunAll = Callable[[Sequence[Callable[[], None]]], list[OSError | None]]
"""A function that runs all actions, in any order or concurrently, and returns the OSError of each, or None."""


def one_by_one(actions: Sequence[Callable[[], None]]) -> list[OSError | None]:
    """Run all actions, one after the other; return the OSError of each, or None."""
    errors: list[OSError | None] = []
    for action in actions:
        try:
            action()
            errors.append(None)
        except OSError as error:
            errors.append(error)
    return errors


def may_exist(files: Files, path: str) -> bool:
    """Return false only if the file or directory is known to be missing. After a disk error the caller's open fails."""
    try:
        return files.exists(path)
    except OSError:
        return True
