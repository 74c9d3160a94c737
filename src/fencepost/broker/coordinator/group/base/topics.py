"""The topics as seen by groups."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Protocol
from uuid import UUID

__all__ = ["Topics", "metadata_hash"]


class Topics(Protocol):
    """The existing topics. `version` differs after any change of them."""

    @property
    def version(self) -> int:
        """The version of the topics' state."""

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""

    def find(self, name: str) -> tuple[UUID, int] | None:
        """Return a topic's id and its number of partitions."""

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with the id."""


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """Return a hash of these topics' state; 0 if none of them exists."""
    known = sorted((name, topic) for name in set(names) if (topic := topics.find(name)) is not None)
    if not known:
        return 0
    digest = blake2b(digest_size=8)
    for name, (topic_id, count) in known:
        digest.update(topic_id.bytes + count.to_bytes(4, "big") + name.encode() + b"\0")
    return int.from_bytes(digest.digest(), "big", signed=True)
