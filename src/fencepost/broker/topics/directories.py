"""Partition directories and the topic ids in them, to verify the catalogue of topics or to rebuild it.

A partition's directory is `<topic>-<index>` and contains its topic's id in `partition.metadata`. While it is removed
its name is `<topic id, 32 hex digits>-<index>-delete`, which is short enough for every topic.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from uuid import UUID

from fencepost.broker.disk.files import Files
from fencepost.broker.log.layout import LOG, METADATA, decode_metadata, offset_of

__all__ = [
    "PartitionDirectory",
    "bytes_in",
    "deletion_name",
    "find_directories",
    "is_being_deleted",
    "reason_to_skip",
    "records_in",
    "topic_id_of",
]

_PARTITION = re.compile(r"(.+)-(0|[1-9]\d{0,5})", re.ASCII)
_DOOMED = re.compile(r"[0-9a-f]{32}-\d{1,6}-delete", re.ASCII)


class PartitionDirectory(NamedTuple):
    """A directory with the name and the contents of a partition's."""

    directory: str
    topic: str
    number: int
    topic_id: UUID | None
    """None if the directory does not contain it."""


def deletion_name(topic_id: UUID, index: int) -> str:
    """Return the name of a partition's directory while it is removed."""
    return f"{topic_id.hex}-{index}-delete"


def is_being_deleted(name: str) -> bool:
    """Return true if this broker gave the name to a directory to remove it."""
    return _DOOMED.fullmatch(name) is not None


def topic_id_of(files: Files, directory: str) -> UUID | None:
    """Return the topic id in the directory, or None. Raises OSError."""
    path = f"{directory}/{METADATA}"
    if not files.exists(path):
        return None
    try:
        return decode_metadata(files.read_bytes(path))
    except ValueError:
        return None


def bytes_in(files: Files, directory: str) -> int:
    """Return the size of the segments in the directory. Raises OSError."""
    total = 0
    for name in files.listdir(directory):
        if offset_of(name, LOG) is not None:
            file = files.open(f"{directory}/{name}")
            total += file.size()
            file.close()
    return total


def records_in(files: Files, directory: str) -> bool:
    """Return true if the directory contains records. Raises OSError."""
    names = [name for name in files.listdir(directory) if offset_of(name, LOG) is not None]
    return any(files.read_bytes(f"{directory}/{name}") for name in names)


def find_directories(files: Files, listed: set[str]) -> list[PartitionDirectory]:
    """Return partition directories whose names are not in `listed`, by topic and index. Raises OSError."""
    found = []
    for name in files.listdir(""):
        match = None if name in listed else _PARTITION.fullmatch(name)
        if match is None:
            continue
        topic_id = topic_id_of(files, name)
        if topic_id is not None or any(offset_of(inside, LOG) is not None for inside in files.listdir(name)):
            found.append(PartitionDirectory(name, match[1], int(match[2]), topic_id))
    return sorted(found, key=lambda each: (each.topic, each.number))


def reason_to_skip(found: PartitionDirectory, topic_id: UUID | None) -> str:
    """Return the reason not to use a directory for the topic of its name.

    `topic_id` is None if there is no such topic.
    """
    if found.topic_id is None:
        return "it does not say which topic it belongs to"
    if topic_id is None:
        return "its name is none for a topic"
    return f"it belongs to topic id {found.topic_id}, and {found.topic} is {topic_id}"
