"""Small files without which a data directory is unusable: each has a copy, and is replaced as a whole.

`name.copy` has the same bytes as `name` and is written after it. If one of them is damaged or missing it is restored
from the other, with a log message. If both are readable and differ, the one with the higher edition is used. They
differ after a restore from a backup, or a power failure between the two writes.

`SealedFile` is JSON with a header that detects damage (`sealed_json`). Its value is an object whose entry "edition"
grows with every change.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fencepost.broker.disk.changes import Change
from fencepost.broker.disk.files import Files
from fencepost.broker.disk.sealed_json import Damaged, Newer, seal_json, unseal_json

__all__ = ["COPY", "DamagedDirectory", "SealedFile", "UnusableDirectory", "read_two_copies", "write_two_copies"]

COPY = ".copy"

_log = logging.getLogger("fencepost.broker.files")
Value = TypeVar("Value")


class UnusableDirectory(Exception):
    """The broker must not use the data directory in its current state. The text gives the reason and a remedy."""


class DamagedDirectory(UnusableDirectory):
    """Neither a file nor its copy is readable; another source may have the contents."""


def read_two_copies(
    files: Files, name: str, decode: Callable[[bytes], Value], edition: Callable[[Value], int] = lambda _: 0
) -> Value | None:
    """Return the value in the file or its copy, or None if both are missing. `decode` raises Damaged or Newer.

    Raises OSError, DamagedDirectory, and UnusableDirectory for a file of a newer release.
    """
    copies: dict[str, tuple[Value, bytes]] = {}
    problems = []
    is_newer = False
    for path in (name, name + COPY):
        if not files.exists(path):
            problems.append(f"{path} is missing")
            continue
        data = files.read_bytes(path)
        try:
            copies[path] = decode(data), data
        except Damaged as error:
            problems.append(f"{path}: {error}")
        except Newer as error:
            is_newer = True
            problems.append(f"{path} was written by a newer release of Fencepost ({error})")
    if not copies and is_newer:  # if only one of the two said so, it could be a flipped bit
        raise UnusableDirectory(f"{'; '.join(problems)}: start that release, or restore a backup")
    if not copies:
        if all(problem.endswith(" is missing") for problem in problems):
            return None
        raise DamagedDirectory(f"{'; '.join(problems)}: restore one of the two from a backup")
    best = max(copies, key=lambda path: edition(copies[path][0]))
    value, data = copies[best]
    if len({own for _, own in copies.values()}) > 1:
        problems.append(f"{name} and its copy differ")
    if problems:
        _log.error("%s: both are made again from %s", "; ".join(problems), best)
        write_two_copies(files, name, data)
    return value


def write_two_copies(files: Files, name: str, data: bytes) -> None:
    """Replace the file, then its copy. Raises OSError only for the file, which is valid without the copy.

    If the copy fails, it is written later. Until then it has the earlier bytes, which would be used if the file were
    damaged.
    """
    files.write_atomic(name, data)
    try:
        files.write_atomic(name + COPY, data)
    except OSError as error:
        _log.warning("%s could not be written yet: %s", name + COPY, error)
        files.write_later(name + COPY, data)


class SealedFile:
    """A JSON file with a copy."""

    def __init__(self, files: Files, name: str, magic: bytes, version: int) -> None:
        self._files = files
        self._name = name
        self._magic = magic
        self._version = version
        self._edition = 0
        self._is_busy = False

    def load(self) -> dict[str, Any] | None:
        """Return the last saved value; None if file and copy are missing. Raises OSError or UnusableDirectory."""
        value = read_two_copies(self._files, self._name, self._decode, _edition)
        if value is not None:
            self._edition = _edition(value)
        return value

    def save(self, value: dict[str, Any]) -> Change[None]:
        """Replace the value. After an OSError the old value stays.

        Raises OSError also while another change of this file is being written, because it would overwrite that change.
        """
        self.check_free()
        sealed = seal_json(self._magic, self._version, {**value, "edition": self._edition + 1})
        self._is_busy = True
        try:
            yield partial(write_two_copies, self._files, self._name, sealed)
        finally:
            self._is_busy = False
        self._edition += 1

    def check_free(self) -> None:
        """Raise OSError while a change is being written."""
        if self._is_busy:
            raise OSError(errno.EBUSY, "another change is being written", self._name)

    def _decode(self, data: bytes) -> dict[str, Any]:
        value = unseal_json(self._magic, self._version, data)
        if not isinstance(value, dict):
            raise Damaged(f"{type(value).__name__} in place of an object")
        return value


def _edition(value: dict[str, Any]) -> int:
    return int(value.get("edition", 0))
