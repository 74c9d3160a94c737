"""Small files of a new log, which are synced together with its first records."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.broker.disk.files import File

__all__ = ["FreshFiles"]


class FreshFiles:
    """Files that were written and never synced. A record of the log is durable only after they are synced, too."""

    __slots__ = ("_files",)

    def __init__(self, files: Iterable[File | None] = ()) -> None:
        self._files = tuple(file for file in files if file is not None)

    def offer(self) -> list[File]:
        """Return the files to sync."""
        return list(self._files)

    def forget(self) -> None:
        """Drop the files, after they were synced or removed."""
        for file in self._files:
            file.close()
        self._files = ()
