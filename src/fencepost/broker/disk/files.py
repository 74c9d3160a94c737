"""What the broker asks of a disk: every write, sync, truncate and rename of the storage goes through two protocols.

So a simulated disk (`fencepost.check.disk`) can lose, tear and refuse them. Paths are `str`, relative to the data
directory, with `/`. Every method raises OSError when the disk does.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Protocol

from fencepost.protocol.cursor import Buffer
from fencepost.values import Value

__all__ = ["Buffer", "File", "Files", "RunAll", "Sync", "is_full", "one_by_one"]


def is_full(error: OSError) -> bool:
    """Whether there was no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class File(Protocol):
    """One open file. Only `sync` may be called from another thread than the others."""

    def append(self, *parts: Buffer) -> None:
        """Write the parts one after the other at `size()`. When it raises, `size()` is unchanged: what was written of
        them lies beyond the end as this object knows it and is written over by the next append (or cut off by
        `truncate`)."""

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only where the file ends."""

    def write_at(self, position: int, data: Buffer) -> None: ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def sync(self) -> None:
        """Return when the bytes written so far, and the file's own name, survive a power loss."""

    def close(self) -> None: ...


class Files(Protocol):
    def open(self, path: str) -> File:
        """Open for reading and writing; created when missing."""

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory; empty when it does not exist."""

    def makedirs(self, path: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens when it does not exist."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it. Of a link to a directory only the link goes, which is told."""

    def rename(self, old: str, new: str) -> None: ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace the whole file: after a crash there are the old bytes or the new ones, never a mixture. Includes
        `sync_directory` of its directory."""

    def sync_directory(self, path: str) -> None:
        """Make creations and removals in this directory durable."""

    def reserve(self) -> None:
        """Keep room on the disk for `write_atomic`, which gives it up where there is no other. Never raises for a disk
        that is full."""


class Sync(Value):
    """Sync these files, then call `BrokerCore.synced` with the token.

    A failure must end the broker, never be ignored.
    """

    token: int
    files: Sequence[File]


RunAll = Callable[[Sequence[Callable[[], None]]], list[OSError | None]]
"""Does all of it, in any order or at the same time; returns what each raised."""


def one_by_one(actions: Sequence[Callable[[], None]]) -> list[OSError | None]:
    """Do all of it, one after the other; returns what each raised."""
    errors: list[OSError | None] = []
    for action in actions:
        try:
            action()
            errors.append(None)
        except OSError as error:
            errors.append(error)
    return errors
