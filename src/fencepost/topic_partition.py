"""The name of a partition, for broker and client."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.arguments import Int32

__all__ = ["TopicPartition"]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: Int32
