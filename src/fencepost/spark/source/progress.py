"""Compute the lag of a query's sources from the progress that Spark reports.

A Python source can report its latest offset to Spark (`sources[].latestOffset`), but no metrics. This module therefore
computes the metrics of Spark's own Kafka source, from the same two offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fencepost.client.types import TopicPartition
from fencepost.errors import ConfigurationError, UsageError
from fencepost.spark.source import ranges

__all__ = ["Behind", "behind_latest"]


class Behind(NamedTuple):
    """The lag of one source after a batch. Names are those of the metrics of Spark's own Kafka source.

    Attributes:
        partitions: The number of offsets, by partition, that the batch has not read although they could be read.
        held_back: The number of further offsets, by partition, that read_committed readers cannot read yet, because
            they come after the start of an open transaction.
    """

    partitions: dict[TopicPartition, int]
    held_back: dict[TopicPartition, int]

    @property
    def max_offsets_behind_latest(self) -> int:
        """The lag of the partition with the largest lag, in offsets."""
        return max(self.partitions.values(), default=0)

    @property
    def min_offsets_behind_latest(self) -> int:
        """The lag of the partition with the smallest lag, in offsets."""
        return min(self.partitions.values(), default=0)

    @property
    def avg_offsets_behind_latest(self) -> float:
        """The average lag of all partitions, in offsets."""
        return sum(self.partitions.values()) / len(self.partitions) if self.partitions else 0.0

    @property
    def max_offsets_held_back(self) -> int:
        """The number of offsets that are held back in the partition with the most."""
        return max(self.held_back.values(), default=0)


def behind_latest(progress: Any) -> list[Behind]:
    """Return the lag of each fencepost source of a query.

    Transaction markers count as offsets, so a source that has read all records may have a small lag.

    Args:
        progress: `query.lastProgress`, or the progress of a listener's event. None returns [].

    Raises:
        UsageError: `progress` has no sources.
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
    """Return offsets as Spark reports them, as an object or as JSON text; None for the offsets of another source."""
    value: Mapping[str, Mapping[str, int]] = json.loads(reported) if isinstance(reported, str) else reported
    try:
        ranges.from_json(value)
    except ConfigurationError:
        return None
    return value
