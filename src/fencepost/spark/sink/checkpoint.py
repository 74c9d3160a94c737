"""The parts of Spark's checkpoint that the sink needs: the query's id and each batch's offsets, in local files.

`offsets/N` says where batch N ends. Spark does not sync it, but a decision is synced. `save` therefore syncs it first,
so that after a power loss Spark does not plan a decided batch again. `changes` and `restore` write back the offsets in
a decision.

The checkpoint's `metadata` has the query's id. It is the default of `sink.id`, because no other query has it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fencepost.errors import ConfigurationError
from fencepost.protocol.crc import crc32c
from fencepost.protocol.json_text import parse_json
from fencepost.small_files import written_whole
from fencepost.spark.errors import CheckpointLostError
from fencepost.spark.sink import names
from fencepost.spark.sink.decision import Decision, SourceOffsets
from fencepost.values import Value

__all__ = [
    "SAY",
    "Change",
    "SinkName",
    "changes",
    "local_folder",
    "lost_metadata",
    "name_of",
    "newest",
    "nothing_planned",
    "planned_batch",
    "query_of",
    "restore",
    "save",
    "take_back",
]

OFFSETS = "offsets"
METADATA = "metadata"
_SCHEME: Final = re.compile("([A-Za-z][A-Za-z0-9+.-]*):")
_NUMBER: Final = re.compile("[0-9]+")


def local_folder(location: str | None) -> Path | None:
    """Return the checkpoint's folder; None if it is not in the local file system.

    Reads the location as Hadoop's Path does: nothing in it is escaped, `#` and `?` are parts of names, and `..` takes
    the name before it away, even if that is a symbolic link.
    """
    if not location:
        return None
    scheme = _SCHEME.match(location)
    path = location
    if scheme is not None:
        if scheme[1].lower() != "file":
            return None
        path = location[scheme.end() :]
        if path.startswith("//"):  # and a host, which is nothing for a local file
            path = "/" + path[2:].partition("/")[2]
    return Path(os.path.normpath(path))


def query_of(folder: Path) -> str | None:
    """Return the id of the checkpoint's query; None if it cannot be read."""
    try:
        found = parse_json((folder / METADATA).read_text("utf-8"))["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def without_query(folder: Path) -> str:
    """Return the reason why `query_of` does not find the query's id."""
    if not folder.is_dir():
        return f"there is no folder '{folder}'"
    if not (folder / METADATA).exists():
        return f"{folder}: there is no file '{METADATA}', so this is not the checkpoint of a query"
    return f"{folder}: the file '{METADATA}' does not tell the query's id: it is damaged or cannot be read"


def newest(folder: Path) -> int | None:
    """Return the digest of the offsets of the newest batch, which Spark is planning. None if there is no batch."""
    text = _read(folder, max(_batches(folder), default=-1))
    return None if text is None else _digest(text)


def planned_batch(folder: Path) -> tuple[str, int] | None:
    """Return the query's id and the number of the batch being planned; None if they cannot be read."""
    query_id, batch_id = query_of(folder), max(_batches(folder), default=None)
    return None if query_id is None or batch_id is None else (query_id, batch_id)


def nothing_planned(folder: Path) -> bool:
    """Return True if a query has begun with this checkpoint without planning a batch. False if it cannot be read."""
    return query_of(folder) is not None and not _batches(folder)


def lost_metadata(folder: Path) -> int | None:
    """Return the number of a planned batch in a checkpoint without `metadata`, which Spark writes first; or None."""
    return max(_batches(folder), default=None) if not (folder / METADATA).exists() else None


def save(folder: Path, query_id: str, batch_id: int, planned: int | None) -> SourceOffsets | None:
    """Sync the files that define the batch, and read its offsets.

    Returns None if they cannot be read at all, belong to another query, or differ from `planned`. In the last case
    Spark has planned the batch again since then, and the caller is a zombie of an earlier run.

    Raises CheckpointLostError if the files were there and are gone; OSError if the sync fails.
    """
    found = query_of(folder)
    batch = _read(folder, batch_id) if found == query_id else None
    if batch is None and (found == query_id or (found is None and planned is not None)):
        gone = METADATA if found is None else f"{OFFSETS}/{batch_id}"
        raise CheckpointLostError(folder, gone, batch_id)
    if batch is None or _digest(batch) != planned:
        return None
    for path in (folder / METADATA, folder / OFFSETS / str(batch_id)):
        _sync(path)
        _sync(path.with_name(f".{path.name}.crc"))
    for directory in (folder / OFFSETS, folder):
        _sync(directory)
    return SourceOffsets(batch, _read(folder, batch_id - 1))


class Change(Value):
    """A file of the checkpoint with its old and new text. `was` is None if it is not there or is not text."""

    path: Path
    was: str | None
    becomes: str


def changes(folder: Path, decision: Decision) -> list[Change]:
    """Return the changes that restore the offsets of the decided batch, so that Spark replays it. [] if none differ.

    Raises ConfigurationError if the decision has no offsets, or the checkpoint is not the query's.
    """
    offsets, batch_id = decision.offsets, decision.batch_id
    if offsets is None or (offsets.before is None and batch_id > 0):
        raise ConfigurationError(f"the decision of batch {batch_id} does not say which source offsets it had")
    found = query_of(folder)
    if found != decision.query_id:
        raise ConfigurationError(f"{folder} is the checkpoint of query {found}, the decision is {decision.query_id}'s")
    last = max(_batches(folder), default=-1)
    if last > batch_id:
        raise ConfigurationError(f"{folder} has batch {last}, which is later than the decided batch {batch_id}")
    wanted = ((batch_id - 1, offsets.before), (batch_id, offsets.batch))
    return [
        Change(folder / OFFSETS / str(number), was, text)
        for number, text in wanted
        if text is not None and (was := _read(folder, number)) != text
    ]


def restore(folder: Path, wanted: Sequence[Change]) -> None:
    """Carry out `changes`.

    Each old file is kept beside the new file as `.N.replaced`. Nothing else of the checkpoint changes. A query with
    state can continue only if its state of that batch still exists. Stop the query first.
    Raises ConfigurationError if the checkpoint has changed since; OSError.
    """
    for change in wanted:
        if _read(folder, int(change.path.name)) != change.was:
            raise ConfigurationError(f"{change.path} has changed meanwhile: stop the query first")
    for change in wanted:
        _replace(change.path, change.becomes)
    _sync(folder / OFFSETS)


def take_back(folder: Path, batch_id: int) -> Path:
    """Rename the file that plans the batch, so that Spark plans it again. Returns the renamed file, which keeps it.

    Raises OSError.
    """
    path = folder / OFFSETS / str(batch_id)
    replaced = path.with_name(f".{path.name}.replaced")
    count = 1
    while replaced.exists():  # from an earlier repair of the same batch
        count += 1
        replaced = path.with_name(f".{path.name}.replaced-{count}")
    _drop_checksum(path)
    path.rename(replaced)
    _sync(folder / OFFSETS)
    return replaced


def _replace(path: Path, text: str) -> None:
    if path.exists():
        path.replace(path.with_name(f".{path.name}.replaced"))
    _drop_checksum(path)
    with written_whole(path) as file:
        file.write(text.encode())


def _drop_checksum(path: Path) -> None:
    """Delete the file's checksum file. Hadoop does not check a file without one."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _batches(folder: Path) -> list[int]:
    try:
        return [int(path.name) for path in (folder / OFFSETS).iterdir() if _NUMBER.fullmatch(path.name)]
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return []


def _digest(text: str) -> int:
    return crc32c(text.encode())


def _read(folder: Path, batch_id: int) -> str | None:
    """Return the offsets of a batch. None if the file is not there, or cannot be read as text."""
    try:
        return (folder / OFFSETS / str(batch_id)).read_text("utf-8")
    except (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, UnicodeDecodeError):
        return None


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- the sink's name ---


SAY: Final = "set option sink.id to a name that stays the same over restarts and that no other query has"


class SinkName(NamedTuple):
    """A sink's name, and `refusal`: the reason why the name cannot be used, or ""."""

    name: str
    refusal: str = ""


def name_of(name: str | None, location: str | None, query_name: str | None, *, is_copy: bool = False) -> SinkName:
    """Return the sink's name from its options. Reads the checkpoint's `metadata` if the checkpoint is local.

    Args:
        name: Option sink.id.
        location: Option checkpointLocation, as the user wrote it.
        query_name: Option queryName.
        is_copy: Option query.copied: another query has the same id.

    At least one of the first three is given.
    """
    if name:
        return SinkName(name)
    if not location:
        return SinkName(query_name or "")
    folder = local_folder(location)
    query_id = None if folder is None else query_of(folder)
    if query_id is not None:
        refusal = f"query.copied needs sink.id, for the other query has the same default; {SAY}" if is_copy else ""
        return SinkName(query_id, refusal)
    if folder is None or folder.is_absolute():
        # The checkpoint is on another file system, which Python cannot read, or is absolute and unreadable.
        # Its whole location is the name.
        return SinkName(names.of_location(location))
    return SinkName(
        "", f"the checkpoint {location!r} is a relative path and cannot be read here, so it names no query; {SAY}"
    )
