"""The order of results of an offset commit, as in Kafka. Some clients read them by position."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar
from uuid import UUID

__all__ = ["NameOrId", "listed"]

NameOrId = tuple[str, UUID | None]
"""A topic in a request: its name, or its id."""

Topic = TypeVar("Topic", bound=Hashable)
Result = TypeVar("Result")


def listed(
    refused: dict[Topic, list[Result]], taken: Sequence[tuple[Topic, list[Result]]]
) -> list[tuple[Topic, list[Result]]]:
    """Merge results.

    `refused` did not reach the coordinator; `taken` has its results by topic in the request's order.

    The request's order is kept unless something was refused. Then each topic comes once.
    """
    if not refused:
        return list(taken)
    by_topic = {topic: list(results) for topic, results in refused.items()}
    for topic, results in taken:
        by_topic.setdefault(topic, []).extend(results)
    return list(by_topic.items())
