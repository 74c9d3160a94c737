"""The system calls of the real disk, one of which fails: a stand-in for `os`, `shutil` and `open` in its module."""

from __future__ import annotations

import builtins
import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

import pytest

from fencepost.broker.disk import system_files

__all__ = ["FailingSystem"]

ERRORS: Mapping[str, int] = {
    "open": errno.EMFILE,
    "write": errno.ENOSPC,
    "read": errno.EIO,
    "sync": errno.EIO,
    "sync directory": errno.EIO,
    "truncate": errno.EIO,
    "replace": errno.EROFS,
    "remove": errno.EACCES,
    "make directory": errno.ENOSPC,
    "list": errno.EIO,
    "look": errno.EIO,
}


class FailingSystem:
    """Counts the calls in a directory while it is `on`, and lets number `fail_at` fail. Nothing there is really synced.

    With `persistent` all calls after it fail, too. Brokers in other directories do not notice it.
    """

    def __init__(
        self, patches: pytest.MonkeyPatch, directory: Path, fail_at: int = -1, *, persistent: bool = False
    ) -> None:
        self._directory = str(directory)
        self.on = False
        self.calls = 0
        self.kinds: list[str] = []
        """Of the calls, in their order."""
        self.failed = ""
        self.fail_at = fail_at
        self._persistent = persistent
        self._paths: dict[int, str] = {}
        patches.setattr(system_files, "os", self)
        patches.setattr(system_files, "shutil", self)
        patches.setattr(system_files, "open", self._open_stream, raising=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _check(self, kind: str, path: str) -> None:
        if not self.on or not path.startswith(self._directory):
            return
        self.calls += 1
        self.kinds.append(kind)
        number = self.calls - 1
        if number == self.fail_at or (self._persistent and 0 <= self.fail_at < number):
            self.failed = self.failed or f"call {number}: {kind} of {path}"
            raise OSError(ERRORS[kind], os.strerror(ERRORS[kind]), path)

    def _path_of(self, descriptor: int) -> str:
        return self._paths.get(descriptor, "")  # of other brokers, if it was opened before

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        self._check("open", path)
        descriptor = os.open(path, flags, mode)
        self._paths[descriptor] = path
        return descriptor

    def _open_stream(self, file: str | int, mode: str) -> _Stream:
        path = self._path_of(file) if isinstance(file, int) else file
        if isinstance(file, str):
            self._check("open", path)
        stream: Any = builtins.open(file, mode)  # noqa: SIM115 - the caller closes it
        return _Stream(self, stream, path)

    def stream_call(self, kind: str, path: str) -> None:
        self._check(kind, path)

    def pwritev(self, descriptor: int, parts: Sequence[bytes], position: int) -> int:
        self._check("write", self._path_of(descriptor))
        return os.pwritev(descriptor, parts, position)

    def pwrite(self, descriptor: int, data: bytes, position: int) -> int:
        self._check("write", self._path_of(descriptor))
        return os.pwrite(descriptor, data, position)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        self._check("read", self._path_of(descriptor))
        return os.pread(descriptor, size, position)

    def ftruncate(self, descriptor: int, size: int) -> None:
        self._check("truncate", self._path_of(descriptor))
        os.ftruncate(descriptor, size)

    def fsync(self, descriptor: int) -> None:
        path = self._path_of(descriptor)
        if not path.startswith(self._directory):
            os.fsync(descriptor)
        self._check("sync directory" if os.path.isdir(path) else "sync", path)

    def stat(self, path: str) -> os.stat_result:
        self._check("look", path)
        return os.stat(path)

    def replace(self, old: str, new: str) -> None:
        self._check("replace", new)
        os.replace(old, new)

    def remove(self, path: str) -> None:
        self._check("remove", path)
        os.remove(path)

    def rmtree(self, path: str) -> None:
        self._check("remove", path)
        shutil.rmtree(path)

    def makedirs(self, path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        self._check("make directory", path)
        os.makedirs(path, mode, exist_ok)

    def listdir(self, path: str) -> list[str]:
        self._check("list", path)
        return os.listdir(path)

    def posix_fallocate(self, descriptor: int, start: int, size: int) -> None:
        path = self._path_of(descriptor)
        self._check("write", path)
        if path.startswith(self._directory):
            os.ftruncate(descriptor, size)
        else:
            os.posix_fallocate(descriptor, start, size)


class _Stream:
    """An open file of `open`."""

    def __init__(self, system: FailingSystem, stream: BinaryIO, path: str) -> None:
        self._system = system
        self._stream = stream
        self._path = path
        self.flush, self.fileno = stream.flush, stream.fileno

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def read(self) -> bytes:
        self._system.stream_call("read", self._path)
        return self._stream.read()

    def write(self, data: bytes) -> int:
        self._system.stream_call("write", self._path)
        return self._stream.write(data)
