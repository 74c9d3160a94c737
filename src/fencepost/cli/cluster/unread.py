"""Partitions that a command was asked to read, and could not read to the end."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fencepost.cli.ending import MOST_NAMED
from fencepost.cli.output import refuse, warn
from fencepost.client.diagnosis.collecting import AWAY, by_reason
from fencepost.client.diagnosis.holding import partition_words
from fencepost.client.types import TopicPartition
from fencepost.errors import KafkaError

__all__ = ["UnreadPartitions"]


class UnreadPartitions:
    """The partitions that were not read to the end, each with the reason."""

    def __init__(self, *, is_error: bool) -> None:
        """Start empty. `is_error`: nothing may be missing, because a file is to be complete."""
        self._is_error = is_error
        self._reasons: dict[TopicPartition, KafkaError] = {}

    def add(self, reasons: Mapping[TopicPartition, KafkaError]) -> None:
        """Add partitions. Raises the first reason if nothing may be missing."""
        if self._is_error and reasons:
            raise next(iter(reasons.values()))
        self._reasons |= reasons

    def taken_later(self) -> Collection[TopicPartition]:
        """Remove and return all partitions: they are read when their leaders answer. Prints them."""
        taken, self._reasons = self._reasons, {}
        for partitions, reason in by_reason(taken):
            warn(f"{partition_words(partitions, MOST_NAMED)}: read when the leader answers: {reason}{_code(reason)}")
        return taken

    def refuse_if_any(self) -> None:
        """Exit with status 1 if a partition was not read to the end."""
        lines = [
            f"the output is not complete: {partition_words(partitions, MOST_NAMED)}: {reason}{_code(reason)}"
            for partitions, reason in by_reason(self._reasons)
        ]
        if lines:
            refuse("\n".join(lines))


def _code(reason: KafkaError) -> str:
    return " (FP001)" if isinstance(reason, AWAY) else ""
