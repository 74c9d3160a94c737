"""Small files whose bytes on disk are wrong after a disk error, and that are written again when the disk permits.

A file is owed its earlier bytes if a change failed and could not be undone. The broker continues without the change,
but the next start would find it. A copy is owed the new bytes if only its file could be written.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["OwedWrites"]


class OwedWrites:
    """The wanted bytes by path; None means that the file must not exist. `write` and `remove` raise OSError."""

    def __init__(self, write: Callable[[str, bytes], None], remove: Callable[[str], None]) -> None:
        self._write = write
        self._remove = remove
        self._owed: dict[str, bytes | None] = {}

    def __len__(self) -> int:
        return len(self._owed)

    def add(self, path: str, data: bytes | None) -> None:
        """Note the wanted bytes of a file."""
        self._owed[path] = data

    def forget(self, path: str) -> None:
        """Drop a file, and all files in a directory, because it is removed or renamed."""
        for name in [name for name in self._owed if name == path or name.startswith(f"{path}/")]:
            del self._owed[name]

    def forget_all(self) -> None:
        """Drop all files, because the process ends."""
        self._owed.clear()

    def settle(self, path: str) -> None:
        """Write the wanted bytes of the file, if there are any. Raises OSError; they are then still owed."""
        if path not in self._owed:
            return
        data = self._owed[path]
        if data is None:
            self._remove(path)
        else:
            self._write(path, data)
        self._owed.pop(path, None)

    def settle_all(self) -> None:
        """Write the wanted bytes of every file. Raises the first OSError; the failed files are still owed."""
        first: OSError | None = None
        for path in list(self._owed):
            try:
                self.settle(path)
            except FileNotFoundError:  # its directory is gone
                self.forget(path)
            except OSError as error:
                first = first or error
        if first is not None:
            raise first
