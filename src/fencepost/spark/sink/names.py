"""Transactional ids of a sink.

A sink has one id of its own, S, and ids for its task attempts (task_ids.py). Only the owner of S can decide a batch.

    fencepost-sink/<escaped sink id>                  S
    fencepost-sink/<escaped sink id>/<32 hex digits>  a task attempt

Escaping keeps A-Z a-z 0-9 . _ - and writes every other UTF-8 byte as %XX. Always use `parse`, never compare a prefix:
the prefix of the sink "orders" also matches the ids of the sink "orders-eu", which would be aborted too.
"""

from __future__ import annotations

import posixpath
import re
from typing import Final

from fencepost.errors import ConfigurationError
from fencepost.values import Value

__all__ = [
    "ANY_SINK",
    "MAX_SINK_BYTES",
    "UNIQUE_BYTES",
    "SinkId",
    "TaskId",
    "listing_pattern",
    "of_location",
    "parse",
    "probe_id",
    "sink_id",
    "task_id",
]

MAX_SINK_BYTES: Final = 1000  # of the UTF-8 form; Kafka's own limit of a transactional id is 32767 after escaping
UNIQUE_BYTES: Final = 16

_PREFIX: Final = "fencepost-sink/"
ANY_SINK: Final = f"{_PREFIX}.*"  # pattern for ListTransactions
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_LOCATION: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:(?://(?!/)[^/]*|//(?=/))?)?(.*)", re.DOTALL)
_SHAPE: Final = re.compile(r"fencepost-sink/((?:[A-Za-z0-9._-]|%[0-9A-F]{2})+)(?:/([0-9a-f]{32}))?")


class SinkId(Value):
    """The sink's own id, S."""

    sink: str


class TaskId(Value):
    """An id for task attempts; `unique` is its 16 random bytes."""

    sink: str
    unique: bytes


def sink_id(sink: str) -> str:
    """Return S of the sink named `sink`. Raises ConfigurationError for an empty, too long or not encodable name."""
    return _PREFIX + _escape(sink)


def task_id(sink: str, unique: bytes) -> str:
    """Return a task's id. `unique` is 16 random bytes that no other id has. Raises ConfigurationError."""
    if len(unique) != UNIQUE_BYTES:
        raise ConfigurationError(f"a task id needs {UNIQUE_BYTES} unique bytes, not {len(unique)}")
    return f"{_PREFIX}{_escape(sink)}/{unique.hex()}"


def parse(transactional_id: str) -> TaskId | SinkId | None:
    """Parse a transactional id. Return None for an id that this module did not write."""
    match = _SHAPE.fullmatch(transactional_id)
    if match is None:
        return None
    sink = _unescape(match[1])
    if sink is None or len(sink.encode()) > MAX_SINK_BYTES:
        return None
    return SinkId(sink) if match[2] is None else TaskId(sink, bytes.fromhex(match[2]))


def probe_id(sink: str) -> str:
    """Return an id of the sink for feature probes. No transaction is begun with it, and `parse` returns None for it."""
    return f"{_PREFIX}{_escape(sink)}/probe"


def listing_pattern(sink: str) -> str:
    """Return a ListTransactions v2 pattern (RE2, full match) for the sink's task ids.

    The pattern only narrows the list. Use `parse` on the listed ids.
    """
    return re.escape(f"{_PREFIX}{_escape(sink)}/") + "[0-9a-f]{32}"


def of_location(checkpoint: str) -> str:
    """Return a sink's name for a checkpoint's location. `/cp`, `/cp/`, `/x/../cp` and `file:///cp` give the same."""
    match = _LOCATION.fullmatch(checkpoint)
    if match is None:
        return checkpoint
    prefix = (match[1] or "").removesuffix("//")
    path = posixpath.normpath(re.sub("/{2,}", "/", match[2])) if match[2] else ""
    return path if prefix == "file:" and path.startswith("/") else f"{prefix}{path}"


def _escape(sink: str) -> str:
    try:
        raw = sink.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"sink id {sink!r} is not encodable as UTF-8") from error
    if not 1 <= len(raw) <= MAX_SINK_BYTES:
        raise ConfigurationError(f"a sink id has 1 to {MAX_SINK_BYTES} bytes, this id has {len(raw)}")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)


def _unescape(text: str) -> str | None:
    raw = bytearray()
    position = 0
    while position < len(text):
        if text[position] == "%":
            byte = int(text[position + 1 : position + 3], 16)
            if byte in _PLAIN:
                return None  # an unnecessary escape, with which two texts would name the same sink
            raw.append(byte)
            position += 3
        else:
            raw.append(ord(text[position]))
            position += 1
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
