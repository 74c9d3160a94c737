"""Small files that a disk error left with the wrong bytes. They are written again as soon as the disk permits it.

If a change failed and could not be undone, the earlier bytes of the file have to be written again: the broker continues
without the change, but the next start would find it. If the file was written and its copy was not, the new bytes of the
copy have to be written.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["PendingWrites"]


class PendingWrites:
    """The wanted bytes by path; None means that the file must not exist. `write` and `remove` raise OSError."""

    def __init__(self, write: Callable[[str, bytes], None], remove: Callable[[str], None]) -> None:
        self._write = write
        self._remove = remove
        self._pending_writes: dict[str, bytes | None] = {}

    def __len__(self) -> int:
        return len(self._pending_writes)

    def add(self, path: str, data: bytes | None) -> None:
        """Note the wanted bytes of a file."""
        self._pending_writes[path] = data

    def forget(self, path: str) -> None:
        """Drop a file, and all files in a directory, because it is removed or renamed."""
        for name in [name for name in self._pending_writes if name == path or name.startswith(f"{path}/")]:
            del self._pending_writes[name]

    def forget_all(self) -> None:
        """Drop all files, because the process ends."""
        self._pending_writes.clear()

    def settle(self, path: str) -> None:
        """Write the wanted bytes of the file, if there are any. Raises OSError; the write then stays pending."""
        if path not in self._pending_writes:
            return
        data = self._pending_writes[path]
        if data is None:
            self._remove(path)
        else:
            self._write(path, data)
        self._pending_writes.pop(path, None)

    def settle_all(self) -> None:
        """Write the wanted bytes of every file. Raises the first OSError; the failed writes stay pending."""
        first: OSError | None = None
        for path in list(self._pending_writes):
            try:
                self.settle(path)
            except FileNotFoundError:  # its directory is gone
                self.forget(path)
            except OSError as error:
                first = first or error
        if first is not None:
            raise first
