"""Small files without which a data directory cannot be understood: each is kept twice, and replaced as a whole.

Beside `name` lies `name.copy` with the same bytes, written after it. What cannot be read of the two is made again from
the other, and told. Where both can be read and differ (one was put back from a backup, or the power went between the
two writes), the one of the higher edition counts.

`SealedFile` is JSON under a head that tells a whole file from a damaged one (`sealed_json`); the value is an object,
and its entry "edition" grows with every change.
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

__all__ = ["COPY", "DamagedDirectory", "SealedFile", "UnusableDirectory", "read_kept", "write_kept"]

COPY = ".copy"

_log = logging.getLogger("fencepost.broker.files")
Value = TypeVar("Value")


class UnusableDirectory(Exception):
    """A broker may not work on the data directory as it is. The text says why, and what helps."""


class DamagedDirectory(UnusableDirectory):
    """Neither a file nor its copy can be read; what is in them may be known from elsewhere."""


def read_kept(
    files: Files, name: str, decode: Callable[[bytes], Value], edition: Callable[[Value], int] = lambda _: 0
) -> Value | None:
    """The value in the file or its copy, None when neither is there. Raises OSError, DamagedDirectory, and
    UnusableDirectory for what a newer release has written. `decode` raises Damaged, Newer."""
    found: dict[str, tuple[Value, bytes]] = {}
    problems = []
    is_newer = False
    for path in (name, name + COPY):
        if not files.exists(path):
            problems.append(f"{path} is missing")
            continue
        data = files.read_bytes(path)
        try:
            found[path] = decode(data), data
        except Damaged as error:
            problems.append(f"{path}: {error}")
        except Newer as error:
            is_newer = True
            problems.append(f"{path} was written by a newer release of Fencepost ({error})")
    if not found and is_newer:  # had only one of the two said so, a flipped bit might have
        raise UnusableDirectory(f"{'; '.join(problems)}: start that one, or put a backup back")
    if not found:
        if all(problem.endswith(" is missing") for problem in problems):
            return None
        raise DamagedDirectory(f"{'; '.join(problems)}: put one of the two back from a backup")
    best = max(found, key=lambda path: edition(found[path][0]))
    value, data = found[best]
    if len({own for _, own in found.values()}) > 1:
        problems.append(f"{name} and its copy differ")
    if problems:
        _log.error("%s: both are made again from %s", "; ".join(problems), best)
        write_kept(files, name, data)
    return value


def write_kept(files: Files, name: str, data: bytes) -> None:
    """Replace the file, then its copy. Raises OSError for the file alone: without the copy it is still true."""
    files.write_atomic(name, data)
    try:
        files.write_atomic(name + COPY, data)
    except OSError as error:
        _log.warning("%s could not be written: %s", name + COPY, error)


class SealedFile:
    """One such file of JSON."""

    def __init__(self, files: Files, name: str, magic: bytes, version: int) -> None:
        self._files = files
        self._name = name
        self._magic = magic
        self._version = version
        self._edition = 0
        self._is_busy = False

    def load(self) -> dict[str, Any] | None:
        """What was saved last; None when there is neither file nor copy. Raises OSError, UnusableDirectory."""
        value = read_kept(self._files, self._name, self._decode, _edition)
        if value is not None:
            self._edition = _edition(value)
        return value

    def save(self, value: dict[str, Any]) -> Change[None]:
        """Replace the value. Raises OSError, and then the old value stays.

        It also raises OSError while another change of this file is being written: that one would be written over.
        """
        self.check_free()
        sealed = seal_json(self._magic, self._version, {**value, "edition": self._edition + 1})
        self._is_busy = True
        try:
            yield partial(write_kept, self._files, self._name, sealed)
        finally:
            self._is_busy = False
        self._edition += 1

    def check_free(self) -> None:
        """Raises OSError while a change is being written."""
        if self._is_busy:
            raise OSError(errno.EBUSY, "another change is being written", self._name)

    def _decode(self, data: bytes) -> dict[str, Any]:
        value = unseal_json(self._magic, self._version, data)
        if not isinstance(value, dict):
            raise Damaged(f"{type(value).__name__} in place of an object")
        return value


def _edition(value: dict[str, Any]) -> int:
    return int(value.get("edition", 0))
