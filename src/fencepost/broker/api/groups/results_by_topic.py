"""In which order Kafka lists the results of an offset commit, which some clients read by position."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar
from uuid import UUID

__all__ = ["NameOrId", "listed"]

NameOrId = tuple[str, UUID | None]
"""A topic as a request says it: by its name, or by its id."""

Topic = TypeVar("Topic", bound=Hashable)
Result = TypeVar("Result")


def listed(
    refused: dict[Topic, list[Result]], taken: Sequence[tuple[Topic, list[Result]]]
) -> list[tuple[Topic, list[Result]]]:
    """`refused`: what the coordinator need not be asked; `taken`: what it decided, topic by topic as it was asked.

    As it was asked, unless something was refused: then each topic comes once.
    """
    if not refused:
        return list(taken)
    by_topic = {topic: list(results) for topic, results in refused.items()}
    for topic, results in taken:
        by_topic.setdefault(topic, []).extend(results)
    return list(by_topic.items())
