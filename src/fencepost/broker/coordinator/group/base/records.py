"""A record of `__consumer_offsets`, and the codec of one kind's records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from fencepost.values import Value

__all__ = ["GroupRecord", "LogCodec", "LogKey", "MismatchedRecord"]


class LogKey(Protocol):
    """Key of a record."""

    @property
    def group_id(self) -> str:
        """The group in whose partition the record is stored."""


class LogCodec(NamedTuple):
    """The encoding of the records with the given types of keys."""

    keys: tuple[type, ...]
    encode_key: Callable[[Any], bytes]
    decode_key: Callable[[bytes | memoryview], LogKey | None]
    """Return None for a key of another type."""
    encode_value: Callable[[Any], bytes]
    decode_value: Callable[[Any, bytes | memoryview], object]
    """Called with the decoded key and the bytes."""


class MismatchedRecord(ValueError):
    """A record whose key and value are of different types."""


class GroupRecord(Value):
    """A typed key and value; a value of None is a tombstone.

    With a producer id, the record belongs in a transactional batch of that producer and takes effect with its
    commit marker.
    """

    key: LogKey
    value: object
    producer_id: int = -1
    producer_epoch: int = -1

    @property
    def group_id(self) -> str:
        """The group in whose partition the record is stored."""
        return self.key.group_id

    @property
    def transactional(self) -> bool:
        """True if a marker decides about the record."""
        return self.producer_id >= 0
