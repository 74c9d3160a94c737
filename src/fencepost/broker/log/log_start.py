"""The log start offset on disk.

`log-start-offset` has a copy (`two_copies`), because no other file has the start of a log inside a segment: without it,
deleted records would be served again. Earlier versions wrote no copy.
"""

from __future__ import annotations

from fencepost.broker.disk.files import Files
from fencepost.broker.disk.two_copies import COPY, write_two_copies
from fencepost.broker.log.layout import LOG_START, decode_log_start, encode_log_start
from fencepost.broker.log.results import RecoveryReport

__all__ = ["read_log_start", "write_log_start"]


def read_log_start(files: Files, directory: str, names: list[str], report: RecoveryReport) -> tuple[int, bool]:
    """Return the log start offset, and True if it is certain. A damaged file is written again from the other one.

    Raises:
        OSError: the disk failed.
    """
    found: list[int] = []
    damaged = False
    for name in (LOG_START, LOG_START + COPY):
        if name in names:
            try:
                found.append(decode_log_start(files.read_bytes(f"{directory}/{name}")))
            except ValueError as error:
                report.notes.append(str(error))
                damaged = True
    if found and damaged:
        write_log_start(files, directory, max(found))
    return max(found, default=0), bool(found) or not damaged


def write_log_start(files: Files, directory: str, offset: int) -> None:
    """Write the log start before the first file below it is removed. Raises OSError."""
    write_two_copies(files, f"{directory}/{LOG_START}", encode_log_start(offset))
