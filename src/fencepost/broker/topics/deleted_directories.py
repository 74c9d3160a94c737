"""Removal of directories that were renamed first, so that a failure only delays it."""

from __future__ import annotations

import logging

from fencepost.broker.disk.files import Files

__all__ = ["DeletedDirectories"]

_log = logging.getLogger("fencepost.broker.files")


class DeletedDirectories:
    """Removes directories, and remembers those that cannot be removed."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._left: set[str] = set()

    def __len__(self) -> int:
        return len(self._left)

    def remove(self, name: str) -> None:
        """Remove a renamed directory."""
        self._left.discard(name)
        try:
            self._files.remove_tree(name)
        except OSError as error:
            self._left.add(name)
            _log.error(
                "%s, of a deleted topic, cannot be removed: %s. The broker tries again every "
                "log.retention.check.interval.ms and at each start; remove the cause, or the directory",
                *(name, error),
            )

    def again(self) -> None:
        """Try again to remove the remaining ones."""
        for name in sorted(self._left):
            self.remove(name)
