"""`spark.readStream.format("fencepost")`, like Spark's own Kafka source.

The options are in options.py. Spark's checkpoint has the offsets. With the option commitOffsets the source also commits
them to a consumer group, for tools that display lag.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from fencepost.client.group import committed_offsets as group_offsets
from fencepost.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.counted import agreeing, counted_noun, duration_words
from fencepost.errors import ConfigurationError, KafkaError
from fencepost.spark.compat import (
    ADMISSION_CONTROL,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsAvailableNow,
)
from fencepost.spark.kafka_settings import log_notes
from fencepost.spark.source import ranges
from fencepost.spark.source.held_back import StallWatch, describe_first_open
from fencepost.spark.source.options import not_there
from fencepost.spark.source.ranges import EARLIEST, LATEST, JsonOffsets, Offsets
from fencepost.spark.source.shared import COMMIT_PATIENCE_MS, RangePartition, Source

__all__ = ["StreamReader", "UnlimitedStreamReader", "stream_reader"]

log = logging.getLogger("fencepost.spark")


class StreamReader(Source, DataSourceStreamReader, SupportsAvailableNow):
    """The reader of a stream. One process of the query plans offsets with it; tasks get pickled copies for `read`."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema, stream=True)
        self._target: Offsets | None = None
        self._reported: Offsets = {}
        self._high: Offsets = {}
        self._gone: frozenset[TopicPartition] = frozenset()  # the deleted partitions that were reported
        self._watch = StallWatch(self._options.warn_ms)
        self._shown: Offsets = {}
        self._last_batch_s: float | None = None

    def initialOffset(self) -> JsonOffsets:  # noqa: N802 - PySpark's name
        """Return the offsets of startingOffsets. Raises ConfigurationError."""
        log_notes()
        self._link().reach()
        late = self._options.unmatched_start_is_latest
        if self._options.has_end:
            self._check_end(self._partitions())
        start = self._resolved(self._options.starting, may_be_late=late)
        return ranges.to_json(start, self._topic_ids)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        """Return the limit of maxOffsetsPerTrigger, else of minOffsetsPerTrigger.

        PySpark cannot have both, so `latestOffset` applies minOffsetsPerTrigger.
        """
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        return ReadAllAvailable() if self._options.min_rows is None else ReadMinRows(self._options.min_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        """Remember the present end as the end of the run. Spark calls this first, even before `initialOffset`."""
        self._link().reach()
        self._target, self._high = self._ends()
        self._warn_of_hidden_records(self._target, self._high)

    def _read_ends(self) -> Offsets:
        """Return the present ends, and log the partitions that a transaction has held back for too long."""
        ends, self._high = self._ends()
        stuck, moved = self._watch.update(time.monotonic(), ends, self._high)
        for still, transaction in self._holders(stuck, logging.WARNING).items():
            log.warning(
                "%s-%d: its committed records have ended at offset %d for %s; %s behind it %s for %s",
                *still.partition,
                still.stable,
                duration_words(still.for_s * 1000),
                counted_noun(still.behind, "offset"),
                agreeing(still.behind, "wait"),
                describe_first_open(transaction),
            )
        for partition in moved:
            log.info("%s-%d: what its readers waited for has ended", *partition)
        return ends

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802 - PySpark's name
        """Return the end of the next batch. New partitions are read from their beginning."""
        log_notes()
        begin = ranges.from_json(start)
        self._show(begin)
        before = {**self._topic_ids, **ranges.topic_ids(start)}
        ends = dict(self._read_ends() if self._target is None else self._target)
        self._reported = ends
        others = self._report_recreated(before, self._topic_ids)
        begin = {partition: at for partition, at in begin.items() if partition.topic not in others}
        begin.update(self._report_lost_ends(begin, ends))
        fresh = self._offsets(dict.fromkeys([partition for partition in ends if partition not in begin], EARLIEST))
        begin = {**fresh, **begin}
        # A deleted partition keeps its offset and its topic's id, so that it never counts as new.
        ends, ids = {**begin, **ends}, {**ranges.topic_ids(start), **self._topic_ids}
        if self._options.has_end:
            ends = self._up_to_the_end(begin, ends)
        held = ranges.rows_between(ends, self._high)
        log.info("the source is %d offsets behind, %d more are held back", ranges.rows_between(begin, ends), held)
        if isinstance(limit, ReadAllAvailable):
            return ranges.to_json(ranges.limit(begin, ends, None), ids)
        if self._waits_for_more(ranges.rows_between(begin, ends)):
            return start
        self._last_batch_s = time.monotonic()
        return ranges.to_json(ranges.limit(begin, ends, self._options.max_rows), ids)

    def _check_end(self, partitions: set[TopicPartition]) -> None:
        """Check when a query starts that its end names the existing partitions. Raises ConfigurationError."""
        limit = self._options.ending
        if limit.by_time:
            ranges.moments(limit, partitions)
        else:
            ranges.starting(limit.text, limit.option, partitions)

    def _up_to_the_end(self, begin: Offsets, ends: Offsets) -> Offsets:
        """Limit the ends to those of the options. A new partition that they do not name is not read."""
        named = ranges.ends_by_name(self._options.ending, ends)
        last = {partition: at for partition, at in named.items() if partition in ends}
        if self._options.ending.by_time:
            found = self._found(last, committed=self._options.committed)
            last = {partition: at if at >= 0 else ends[partition] for partition, at in found.items()}
        return {
            partition: max(min(at, last.get(partition, begin[partition])), begin[partition])
            for partition, at in ends.items()
        }

    def _report_lost_ends(self, begin: Offsets, ends: Offsets) -> Offsets:
        """Report deleted partitions, and partitions whose log ends before the offsets that were read.

        Returns the new positions of the latter, if failOnDataLoss is false.
        """
        gone = frozenset(begin) - set(ends)
        for partition in sorted(gone - self._gone):
            self._report_gone(partition)
        self._gone = gone
        behind = sorted(partition for partition, end in ends.items() if end < begin.get(partition, 0))
        # After a change from read_uncommitted, the last stable offset may be lower than what was read. Only a lower log
        # end is a data loss.
        logs = self._found(dict.fromkeys(behind, LATEST), committed=False)
        back: Offsets = {}
        for partition in behind:
            if logs[partition] < begin[partition]:
                self._lost(partition, logs[partition], begin[partition])
                back[partition] = ends[partition]
        return back

    def _report_gone(self, partition: TopicPartition) -> None:
        words = not_there(self._options.way, self._options.wanted, partition)
        self._report_loss(words, partition.topic, partition.partition)

    def _waits_for_more(self, rows: int) -> bool:
        """Return True if the batch must wait because of minOffsetsPerTrigger and maxTriggerDelay.

        The first batch, and a query with trigger availableNow, never wait.
        """
        least = self._options.min_rows
        if least is None or self._target is not None or self._last_batch_s is None:
            return False
        waited_ms = (time.monotonic() - self._last_batch_s) * 1000
        return rows < least and waited_ms < self._options.max_delay_ms

    def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802 - PySpark's name
        """Return the end without a limit, for the query's progress. Its distance from the batch's end is the lag."""
        return ranges.with_high_watermarks(ranges.to_json(self._reported, self._topic_ids), self._high) or None

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """Plan the tasks of a batch. The same offsets and options give the same tasks, also after a restart."""
        self._link().reach()
        begin, stop = ranges.from_json(start), ranges.from_json(end)
        planned = ranges.topic_ids(end)
        # The topic was created again before this batch was planned: read the new topic from its beginning.
        fresh = self._report_recreated(ranges.topic_ids(start), planned)
        # The topic was created again after this batch was planned: the batch's records no longer exist.
        there = self._describe({partition.topic for partition in stop})
        gone = self._report_recreated(planned, self._topic_ids)
        begin = {partition: at for partition, at in begin.items() if partition.topic not in fresh | gone}
        stop = {partition: at for partition, at in stop.items() if partition.topic not in gone}
        unread = [partition for partition, at in stop.items() if at > begin.get(partition, 0)]
        for partition in sorted(unread):
            if partition.topic not in there or partition.partition not in there[partition.topic].partitions:
                del stop[partition]
                self._report_gone(partition)
        if not self._reported:  # an earlier run of the query has planned this batch
            stop |= self._within({partition: stop[partition] for partition in unread if partition in stop})
        return [RangePartition(piece) for piece in self._ranges(begin, stop, planned)]

    def commit(self, end: JsonOffsets) -> None:
        """Commit the offsets of a finished batch to the group of commitOffsets, for display.

        The query itself restarts from the offsets in Spark's checkpoint.
        """
        self._show(ranges.from_json(end))

    def _show(self, offsets: Offsets) -> None:
        group = self._options.group
        if group is None or not offsets or offsets == self._shown:
            return
        link = self._link()
        positions = {partition: OffsetAndMetadata(at) for partition, at in offsets.items()}
        deadline_ms = link.admin.cluster.runtime.now_ms() + COMMIT_PATIENCE_MS
        try:
            link.io.run(group_offsets.commit(link.admin.cluster, GroupMetadata(group), positions, deadline_ms))
        except KafkaError as error:
            # The group's offsets are only for display, so the query continues, and the next batch tries again.
            log.warning("the offsets were not committed to group %r: %s", group, error)
        else:
            self._shown = offsets

    def stop(self) -> None:
        """Do nothing. The connections end with the process."""


class UnlimitedStreamReader(StreamReader):
    """The reader for PySpark 4.1, which has no limits and requires `latestOffset` without arguments."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        for name, given in (("max", self._options.max_rows), ("min", self._options.min_rows)):
            if given is not None:
                raise ConfigurationError(f"option {name}OffsetsPerTrigger needs PySpark 4.2 or newer")
        if self._options.has_end:
            raise ConfigurationError(f"option {self._options.ending.option} of a stream needs PySpark 4.2 or newer")

    def latestOffset(self) -> JsonOffsets:  # type: ignore[override]  # noqa: N802 - the signature of PySpark 4.1
        """Return the present end, because a batch of PySpark 4.1 has no limit."""
        log_notes()
        return ranges.to_json(self._read_ends(), self._topic_ids)


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """Return the reader for the installed PySpark."""
    return StreamReader(options, schema) if ADMISSION_CONTROL else UnlimitedStreamReader(options, schema)
