"""The topics as groups see them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Protocol
from uuid import UUID

__all__ = ["Topics", "metadata_hash"]


class Topics(Protocol):
    """The topics that there are. `version` is another one whenever anything about them has changed."""

    @property
    def version(self) -> int:
        """Which state of the topics this is."""

    def names(self) -> Iterable[str]:
        """All topics."""

    def find(self, name: str) -> tuple[UUID, int] | None:
        """A topic's id and its number of partitions."""

    def name_of(self, topic_id: UUID) -> str | None:
        """The topic of that id."""


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """A number that stands for these topics as they are; 0 if there are none of them."""
    known = sorted((name, topic) for name in set(names) if (topic := topics.find(name)) is not None)
    if not known:
        return 0
    digest = blake2b(digest_size=8)
    for name, (topic_id, count) in known:
        digest.update(topic_id.bytes + count.to_bytes(4, "big") + name.encode() + b"\0")
    return int.from_bytes(digest.digest(), "big", signed=True)
