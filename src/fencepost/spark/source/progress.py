"""Lag of a query's sources, read from the progress that Spark reports.

PySpark lets a Python source name its latest offset (`sources[].latestOffset`) but no metrics of its own, so the figures
that Spark's Kafka source reports as metrics are worked out here, from the same two offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fencepost.client.types import TopicPartition
from fencepost.errors import UsageError
from fencepost.spark.source import ranges

__all__ = ["Behind", "behind_latest"]


class Behind(NamedTuple):
    """Offsets between what a batch has read and what was there; named as the metrics of Spark's Kafka source.

    `held_back`: offsets behind that, up to the partition's end, which nobody who reads committed records can read yet:
    an open transaction is before them.
    """

    partitions: dict[TopicPartition, int]
    held_back: dict[TopicPartition, int]

    @property
    def max_offsets_behind_latest(self) -> int:
        """Of the partition that is furthest behind."""
        return max(self.partitions.values(), default=0)

    @property
    def min_offsets_behind_latest(self) -> int:
        """Of the partition that is least behind."""
        return min(self.partitions.values(), default=0)

    @property
    def avg_offsets_behind_latest(self) -> float:
        """Over all partitions."""
        return sum(self.partitions.values()) / len(self.partitions) if self.partitions else 0.0

    @property
    def max_offsets_held_back(self) -> int:
        """Of the partition with the most."""
        return max(self.held_back.values(), default=0)


def behind_latest(progress: Any) -> list[Behind]:
    """For each fencepost source of the query. `progress`: `query.lastProgress`, or what a listener was given.

    Transaction markers count as offsets, so a source that has read everything may be a few behind. Raises UsageError
    for what is not a progress.
    """
    if progress is None:
        return []
    report: Any = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    if "sources" not in report:
        raise UsageError("this is not the progress of a streaming query: it has no sources")
    found = [(_offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))) for source in report["sources"]]
    return [_behind(ranges.from_json(end), latest) for end, latest in found if end is not None and latest is not None]


def _behind(end: ranges.Offsets, reported: Mapping[str, Mapping[str, int]]) -> Behind:
    latest, high = ranges.from_json(reported), ranges.high_watermarks(reported)
    return Behind(
        {partition: max(at - end.get(partition, at), 0) for partition, at in latest.items()},
        {partition: max(high.get(partition, at) - at, 0) for partition, at in latest.items()},
    )


def _offsets(reported: Any) -> Mapping[str, Mapping[str, int]] | None:
    """As Spark reports them: JSON, or text that is JSON; None for another source's."""
    value = json.loads(reported) if isinstance(reported, str) else reported
    if not isinstance(value, Mapping) or not all(isinstance(parts, Mapping) for parts in value.values()):
        return None
    return value
