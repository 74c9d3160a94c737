"""Read small files whose paths come from settings, such as secrets; write files that appear when they are complete."""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

__all__ = ["MOST_BYTES", "bare_reason", "os_reason", "read_small", "read_whole", "written_whole"]

MOST_BYTES: Final = 4 * 1024 * 1024
PIPE_WAIT_MS: Final = 10_000


def read_small(file: Path, encoding: str = "utf-8") -> str:
    """Return the text of a file.

    Raises:
        OSError: The file cannot be read, or is a pipe to which nobody writes.
        ValueError: The file has more than MOST_BYTES bytes, or is not valid in this encoding.
    """
    with open(file, "rb", opener=_open_at_once) as opened:
        return read_whole(opened).decode(encoding)


def os_reason(error: Exception) -> str:
    """Return the reason of an error in words, with the file that an OSError names."""
    reason = bare_reason(error)
    if not isinstance(error, OSError) or error.strerror is None or error.filename is None:
        return reason
    return f"{os.fsdecode(error.filename)}: {reason}"


def bare_reason(error: Exception) -> str:
    """Return the reason of an error in words, for a message that names the file of an OSError itself."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file. To open a named pipe, and to read it, would wait for its writer for ever."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            waiting = select.poll()
            waiting.register(descriptor, select.POLLIN)
            if not waiting.poll(PIPE_WAIT_MS):
                reason = f"a pipe to which nobody wrote within {PIPE_WAIT_MS / 1000:.0f} s"
                raise TimeoutError(errno.ETIMEDOUT, reason, path)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class _Readable(Protocol):
    def read(self, most: int, /) -> bytes: ...


def read_whole(opened: _Readable) -> bytes:
    """Return all bytes of a file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file has more than MOST_BYTES bytes. A device file may never end.
    """
    data = opened.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    return data


@contextmanager
def written_whole(path: Path, *, is_new: bool = False) -> Iterator[BinaryIO]:
    """Yield a file to write. After the block it is on disk and has replaced `path`; after an error nothing has changed.

    The data is in a hidden file of the same folder until then. A device or a pipe, such as /dev/stdout, is written to.

    Args:
        path: The file. A symbolic link stays, and the file that it names is replaced.
        is_new: The file must not exist.

    Raises:
        OSError: The file cannot be written; it names `path`. FileExistsError with `is_new` if the file exists.
    """
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        before = _mode(path)
        if is_new and before is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if before is not None and not stat.S_ISREG(before):
            with path.open("wb") as file:
                yield file
            return
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if before is not None:
            unfinished.chmod(stat.S_IMODE(before))
        if is_new:
            os.link(unfinished, target)  # unlike a rename it fails if another process has written the file meanwhile
        else:
            unfinished.replace(target)
    except OSError as error:
        if error.filename in (None, str(target), str(unfinished)) and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise
    finally:
        with suppress(OSError):  # it is renamed, or was never created
            unfinished.unlink()


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None
