"""A cell's outcome with each connector, and the respects in which the two differ."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["BUILT_IN", "FORMATS", "OURS", "Cell", "Seen", "kind_of"]

BUILT_IN, OURS = "kafka", "fencepost"
FORMATS: Final = (BUILT_IN, OURS)

# The first that is found in an error's text says of which kind it is. Each connector has words of its own.
KINDS: Final = (
    ("data loss", r"DataLossError|KAFKA_DATA_LOSS|data may have been lost"),
    ("not allowed", r"AuthorizationE|AUTHORIZATION_FAILED"),
    ("missing", r"UnknownTopicOrPartition|that do(?:es)? not exist|UNKNOWN_TOPIC_OR_PARTITION"),
    # Its cause is an UnknownTopicOrPartitionException only if the broker has answered within `max.block.ms`.
    ("missing", r"(?:Topic|Partition) \S+ (?:of topic .* is )?not present in metadata after"),
    ("refused", r"ConfigurationError|ConfigException|IllegalArgumentException|NumberFormatException|AssertionError"),
    ("refused", r"KafkaIllegalStateException|assertion failed|NoSuchElementException[^\n]*No value found"),
    ("refused", r"PatternSyntaxException"),
    ("no valid name", r"InvalidTopicException|InvalidTopicError"),
    ("rejected", r"RecordTooLargeException|RecordRejectedError|NullPointerException"),
    ("timeout", r"TimeoutException|KafkaTimeoutError"),
    ("refused", r"Required attribute|attribute unsupported type|topic option required|Save mode \w+ not allowed"),
    ("refused", r"UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
    ("refused", r"AnalysisException.*terminated with exception: \w+ (?:attribute|option)|Kafka option \S+ is n"),
)


def kind_of(error: str) -> str:
    """The kind of an error, or the error when it is of no kind that is known."""
    return next((kind for kind, words in KINDS if re.search(words, error)), f"unknown: {error[:300]}")


@dataclass(frozen=True, order=True)
class Cell:
    """A topic's state, a way to read it, and the name of a set of options."""

    state: str
    way: str
    options: str

    def __str__(self) -> str:
        return f"{self.state} / {self.way} / {self.options}"


@dataclass(frozen=True)
class Seen:
    """A cell's outcome with both connectors."""

    cell: Cell
    built_in: dict[str, Any]
    ours: dict[str, Any]
    moving: bool = False  # the topic changes under a running query: how its records fall into batches is chance

    def kind(self, seen: dict[str, Any]) -> str:
        """ "rows", "no rows", or the kind of the error that there was."""
        errors = sorted({kind_of(error) for error in seen["errors"]})
        return ", ".join(errors) or ("rows" if any(seen["rows"]) else "no rows")

    @property
    def kinds(self) -> tuple[str, str]:
        """Spark's own, and ours."""
        return self.kind(self.built_in), self.kind(self.ours)

    def aspects(self) -> list[str]:
        """The respects in which the connectors differ."""
        found = [] if self.kinds[0] == self.kinds[1] else ["kind"]
        if self.built_in["schema"] and self.ours["schema"] and self.built_in["schema"] != self.ours["schema"]:
            found.append("schema")
        if _all_rows(self.built_in) != _all_rows(self.ours):
            found.append("rows")
        elif not self.moving:
            if self.built_in["batches"] != self.ours["batches"] or self.built_in["rows"] != self.ours["rows"]:
                found.append("batches")
            elif self.built_in["tasks"] != self.ours["tasks"]:
                found.append("tasks")
        return found


def _all_rows(seen: dict[str, Any]) -> list[Any]:
    return sorted((row for rows in seen["rows"] for row in rows), key=repr)
