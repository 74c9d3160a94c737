"""Spark's checkpoint of a query, as far as the sink needs it: the record of what each batch is, in local files.

`offsets/N` says where batch N ends. Spark does not sync it, and a decision is synced: `save` syncs it first, so that a
loss of power cannot leave a decided batch that Spark plans anew. `changes` and `restore` put back what a decision
remembers.

The checkpoint's `metadata` also has the query's id, the default of `sink.id`, which no other query has. Earlier
releases took the checkpoint's location, which two queries can share: a relative path, or a volume that every container
mounts at the same place. A query whose decisions are under such a name keeps it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

import crc32c

from fencepost.errors import ConfigurationError
from fencepost.spark.sink import names
from fencepost.spark.sink.decision import Decision, SourceOffsets

__all__ = [
    "SAY",
    "Change",
    "SinkName",
    "changes",
    "local_folder",
    "name_of",
    "newest",
    "nothing_planned",
    "planned_batch",
    "query_of",
    "restore",
    "save",
]

OFFSETS = "offsets"
METADATA = "metadata"


def local_folder(location: str | None) -> Path | None:
    """The checkpoint's folder; None where it is not in the local file system."""
    if not location:
        return None
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(location) if not parts.scheme else None


def query_of(folder: Path) -> str | None:
    """The id of the query whose checkpoint this is; None when it cannot be read."""
    try:
        found = json.loads((folder / METADATA).read_text())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def newest(folder: Path) -> int | None:
    """The digest of the newest batch's offsets: that of the batch which is being planned. None without any."""
    text = _read(folder, max(_batches(folder), default=-1))
    return None if text is None else _digest(text)


def planned_batch(folder: Path) -> tuple[str, int] | None:
    """The query's id and the number of the batch that is being planned; None where that cannot be seen."""
    query_id, batch_id = query_of(folder), max(_batches(folder), default=None)
    return None if query_id is None or batch_id is None else (query_id, batch_id)


def nothing_planned(folder: Path) -> bool:
    """Whether a query has begun there, of which no batch was ever planned. False where that cannot be seen."""
    return query_of(folder) is not None and not _batches(folder)


def save(folder: Path, query_id: str, batch_id: int, planned: int | None) -> SourceOffsets | None:
    """Sync what says what the batch is, and read it.

    None when it is not there, another query's, or not what was `planned`: then Spark has planned the batch anew since,
    and this is a zombie of the run before.
    Raises OSError when the disk does not take it.
    """
    batch = _read(folder, batch_id) if query_of(folder) == query_id else None
    if batch is None or _digest(batch) != planned:
        return None
    for path in (folder / METADATA, folder / OFFSETS / str(batch_id)):
        _sync(path)
        _sync(path.with_name(f".{path.name}.crc"))
    for directory in (folder / OFFSETS, folder):
        _sync(directory)
    return SourceOffsets(batch, _read(folder, batch_id - 1))


@dataclass(frozen=True, slots=True)
class Change:
    """A file of the checkpoint whose text is to change. `was` None: it is not there."""

    path: Path
    was: str | None
    becomes: str


def changes(folder: Path, decision: Decision) -> list[Change]:
    """What puts back the offsets of the decided batch, so that Spark replays it as it was; [] when they are there.

    Raises ConfigurationError when the decision does not say how, or the checkpoint is not the query's.
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
    """Carry `changes` out.

    Each file that was there is kept beside it as `.N.replaced`. Nothing else of the checkpoint is touched; a query with
    state can go on only if its state of that batch is still there. Stop the query first.
    Raises ConfigurationError when the checkpoint is not what it was any more; OSError.
    """
    for change in wanted:
        if _read(folder, int(change.path.name)) != change.was:
            raise ConfigurationError(f"{change.path} has changed meanwhile: does the query run?")
    for change in wanted:
        _replace(change.path, change.becomes)
    _sync(folder / OFFSETS)


def _replace(path: Path, text: str) -> None:
    checksum = path.with_name(f".{path.name}.crc")
    if path.exists():
        path.replace(path.with_name(f".{path.name}.replaced"))
    checksum.unlink(missing_ok=True)  # Hadoop checks a file only against a checksum that is there
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    _sync(new)
    new.replace(path)


def _batches(folder: Path) -> list[int]:
    try:
        return [int(path.name) for path in (folder / OFFSETS).iterdir() if path.name.isdigit()]
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return []


def _digest(text: str) -> int:
    return crc32c.crc32c(text.encode())


def _read(folder: Path, batch_id: int) -> str | None:
    try:
        return (folder / OFFSETS / str(batch_id)).read_text()
    except (FileNotFoundError, PermissionError, NotADirectoryError):
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


SAY: Final = "set option sink.id, a name that stays over restarts and that no other query has"


class SinkName(NamedTuple):
    """A sink's name, and the names that earlier releases gave to the same query's sink, the likeliest first.

    `query_id`: the query whose decisions show that a former name is its own; None where that cannot be known, and a
    former name counts that was ever claimed. `refusal`: the reason why only a former name can do; "" otherwise.
    """

    own: str
    former: tuple[str, ...] = ()
    query_id: str | None = None
    refusal: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        """Every name under which the sink may have something open."""
        return (*([] if self.refusal else [self.own]), *self.former)


def name_of(given: str | None, location: str | None, query_name: str | None, *, is_copy: bool = False) -> SinkName:
    """The sink's name from its options. Reads the checkpoint's `metadata` where that is in local files.

    Args:
        given: Option sink.id.
        location: Option checkpointLocation, as the user wrote it.
        query_name: Option queryName.
        is_copy: Option query.copied: another query has the same id.

    One of the first three is given.
    """
    if given:
        return SinkName(given)
    if not location:
        return SinkName(query_name or "")
    spelled = names.of_location(location)
    former = tuple(dict.fromkeys((spelled, location)))
    folder = local_folder(location)
    query_id = None if folder is None else query_of(folder)
    if query_id is not None:
        refusal = f"query.copied needs sink.id, for the other query has the same default; {SAY}" if is_copy else ""
        return SinkName(query_id, former, query_id, refusal)
    if folder is None or folder.is_absolute():
        # On another file system, which the executors' Python cannot read: the whole location is the name.
        return SinkName(spelled, former[1:])
    refusal = f"the checkpoint {location!r} is a relative path and cannot be read here, so it names no query; {SAY}"
    return SinkName(spelled, former, None, refusal)
