"""`spark.readStream.format("fencepost")`, like Spark's own Kafka source, and the part it shares with a batch read.

The options are in options.py. kafka.isolation.level is read_committed by default: the end is then the last stable
offset, and markers and aborted records leave gaps in the offsets. Spark's checkpoint has the offsets. With the option
commitOffsets the source also commits them to a consumer group, for tools that display lag.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from fencepost.client.admin.topics import TopicDescription
from fencepost.client.consumer.fetch_requests import FetchSettings, fetch_range
from fencepost.client.group import committed_offsets as group_offsets
from fencepost.client.records import Fetched
from fencepost.client.types import GroupMetadata, Isolation, OffsetAndMetadata, TopicPartition
from fencepost.errors import ConfigurationError, DataLossError, KafkaError, OffsetOutOfRangeError, RetriableError
from fencepost.spark.compat import (
    ADMISSION_CONTROL,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsAvailableNow,
    arrow_schema,
)
from fencepost.spark.kafka_settings import tell_notes, tell_once
from fencepost.spark.sink.runner import ClusterClient, link_to
from fencepost.spark.source import ranges
from fencepost.spark.source.columns import RANGE_SCHEMA
from fencepost.spark.source.held_back import Holder, StandsStill, Watch, holders, told
from fencepost.spark.source.java_pattern import java_pattern
from fencepost.spark.source.options import SourceOptions, not_there
from fencepost.spark.source.ranges import EARLIEST, LATEST, Bound, JsonOffsets, Offsets, Range

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "RangePartition",
    "Source",
    "StreamReader",
    "UnlimitedStreamReader",
    "stream_reader",
]

log = logging.getLogger("fencepost.spark")

COMMIT_PATIENCE_MS: Final = 10_000
HOLDER_PATIENCE_MS: Final = 5_000  # short, because the query waits for an answer that is only for a log line
MOST_TOLD: Final = 20  # partitions that are logged at a time with their transactions
NAMES_TOLD: Final = 200  # further partitions that are logged by name only

T = TypeVar("T")


class RangePartition(InputPartition):
    """The offset range of one task."""

    def __init__(self, range_: Range) -> None:
        super().__init__(tuple(range_))


class Source:
    """The part that streams and batch reads share. Picklable: it has the options, and the topics' last known ids."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, stream: bool) -> None:
        self._schema = schema
        self._options = SourceOptions.parse(options, stream=stream)
        self._topic_ids: dict[str, str] = {}

    def _link(self) -> ClusterClient:
        return link_to(dict(self._options.client.common))

    # --- which partitions, and where they begin and end ---

    def _partitions(self, *, begun: bool = False) -> set[TopicPartition]:
        """Return the partitions to read. Raises ConfigurationError for a named topic or partition that does not exist.

        `begun`: the stream has begun, perhaps in an earlier run. A partition of `assign` that does not exist may have
        been deleted since then, and is left out. `latestOffset` reports it if it was read before.
        """
        if self._options.way == "subscribePattern":
            return self._there(self._matching(), may_be_missing=True)
        if self._options.way == "subscribe":
            return self._there([name.strip() for name in self._options.wanted.split(",") if name.strip()])
        assigned = ranges.assigned(self._options.wanted)
        there = self._there({partition.topic for partition in assigned}, may_be_missing=begun)
        missing = sorted(assigned - there)
        if begun:
            return assigned & there
        if missing:
            named = ", ".join(f"{partition.topic}-{partition.partition}" for partition in missing)
            raise ConfigurationError(f"option assign names partitions that do not exist: {named}")
        return assigned

    def _matching(self) -> list[str]:
        """Return the topics in whose names the pattern is found. Like Spark's own source, it need not match in full."""
        link, pattern = self._link(), java_pattern(self._options.wanted, self._options.way)
        listed = self._patiently(lambda: link.io.run(link.admin.list_topics()))
        topics = [name for name in listed if pattern.search(name)]
        if not topics:
            tell_once(f"option subscribePattern={self._options.wanted!r} matches no topic so far: nothing is read")
        return topics

    def _there(self, topics: Collection[str], *, may_be_missing: bool = False) -> set[TopicPartition]:
        """Return the topics' partitions. Raises ConfigurationError for a missing topic, unless `may_be_missing`."""
        found = self._describe(topics)
        missing = sorted(set(topics) - set(found))
        if missing and not may_be_missing:  # a topic from a list may have been deleted since then
            raise ConfigurationError(f"option {self._options.way} names topics that do not exist: {', '.join(missing)}")
        return {TopicPartition(name, number) for name, topic in found.items() for number in topic.partitions}

    def _describe(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        """Describe the topics that exist, and remember their ids."""
        link = self._link()
        found = self._patiently(lambda: link.io.run(link.admin.describe_topics(topics))) if topics else {}
        self._topic_ids.update(
            {name: str(topic.topic_id) for name, topic in found.items() if topic.topic_id is not None}
        )
        return found

    def _report_made_again(self, before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
        """Return the topics that were deleted and created again. Each is reported as a data loss."""
        topics = ranges.made_again(before, after)
        for name in sorted(topics):
            self._report_loss(f"topic {name} was deleted and made again: what was not read of it is gone", name)
        return topics

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Call `ask`, and retry as fetchOffset.numRetries and fetchOffset.retryIntervalMs say.

        The client itself retries within each call.
        """
        for left in range(self._options.retries, -1, -1):
            try:
                return ask()
            except RetriableError as error:
                if left == 0:
                    raise
                log.warning("offsets could not be fetched, %d more attempts: %s", left, error)
                time.sleep(self._options.retry_interval_ms / 1000)
        raise ConfigurationError("fetchOffset.numRetries is below 0")

    def _found(self, wanted: Mapping[TopicPartition, int], *, committed: bool) -> Offsets:
        """Return the offset of each partition's EARLIEST, LATEST or timestamp; -1 if no record is at or after it."""
        if not wanted:
            return {}
        link = self._link()
        isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        found = self._patiently(lambda: link.io.run(link.admin.list_offsets(wanted, isolation=isolation)))
        return {partition: at.offset for partition, at in found.items()}

    def _ends(self) -> tuple[Offsets, Offsets]:
        """Return a stream's present end and the high watermarks, which differ if a transaction holds readers back."""
        # Without admission control latestOffset gets no start, so a missing partition cannot be reported as lost.
        wanted = dict.fromkeys(self._partitions(begun=ADMISSION_CONTROL), LATEST)
        # High watermarks first, so that records written between the two requests do not count as held back.
        high = self._found(wanted, committed=False)
        return (self._found(wanted, committed=True) if self._options.committed else high), high

    def _tell_what_is_old(self, ends: Offsets, high: Offsets) -> None:
        """Warn of records after the final end that a long open transaction hides from this read."""
        above = ((partition, at, high.get(partition, at)) for partition, at in sorted(ends.items()))
        held = [StandsStill(partition, at, end - at, 0) for partition, at, end in above if end > at]
        for still, holder in self._holders(held, logging.INFO).items():
            is_young = (
                isinstance(holder, Holder) and holder.age_ms is not None and holder.age_ms < self._options.warn_ms
            )
            log.log(
                logging.INFO if is_young or holder is None else logging.WARNING,
                "%s-%d: %d offsets are not read, from offset %d on: they wait for %s",
                *still.partition,
                still.behind,
                still.stable,
                told(holder),
            )

    def _holders(self, held: Sequence[StandsStill], severity: int) -> dict[StandsStill, Holder | KafkaError | None]:
        """Return the transactions that hold back the first MOST_TOLD partitions, and log the names of the others."""
        if not held:
            return {}
        link, shown, others = self._link(), held[:MOST_TOLD], held[MOST_TOLD:]
        found = link.io.run(holders(link.admin, [still.partition for still in shown], HOLDER_PATIENCE_MS))
        if others:
            named = [f"{still.partition.topic}-{still.partition.partition}" for still in others[:NAMES_TOLD]]
            more = ", ..." if len(others) > NAMES_TOLD else ""
            words = "%d more partitions are held back by open transactions: %s%s"
            log.log(severity, words, len(others), ", ".join(named), more)
        return {still: found[still.partition] for still in shown}

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """Return the offsets as `_found`, but the partition's end if no record is at or after the timestamp."""
        found = self._found(wanted, committed=self._options.committed)
        late = [partition for partition, at in found.items() if at < 0]
        return {**found, **(self._offsets(dict.fromkeys(late, LATEST)) if late else {})}

    def _resolved(self, bound: Bound, *, may_be_late: bool) -> Offsets:
        """Return the offsets of a bound. Raises ConfigurationError."""
        partitions = self._partitions()
        if bound.by_time:
            moments = ranges.moments(bound, partitions)
            found = self._found(moments, committed=self._options.committed)
            late = sorted(partition for partition, at in found.items() if at < 0)
            if late and not may_be_late:
                raise ConfigurationError(
                    f"option {bound.option}: {late[0].topic}-{late[0].partition} has no record at or after "
                    f"{moments[late[0]]}; startingOffsetsByTimestampStrategy=latest would begin at its end"
                )
            return {**found, **self._offsets(dict.fromkeys(late, LATEST))}
        given = self._of_group(partitions, bound) or ranges.starting(bound.text, bound.option, partitions)
        asked = self._offsets({partition: at for partition, at in given.items() if at < 0})
        return {partition: asked.get(partition, at) for partition, at in given.items()}

    def _of_group(self, partitions: set[TopicPartition], bound: Bound) -> Offsets | None:
        """Return the start from a group's committed offsets; None if the bound does not ask for them.

        Raises ConfigurationError if the group has no offset for a partition and the option gives no alternative.
        """
        group = self._options.starting_group
        if group is None or bound is not self._options.starting:
            return None
        link = self._link()
        deadline_ms = link.admin.cluster.runtime.now_ms() + COMMIT_PATIENCE_MS
        asked = group_offsets.fetch_committed(
            link.admin.cluster, group, sorted(partitions), require_stable=True, deadline_ms=deadline_ms
        )
        found = {partition: at.offset for partition, at in link.io.run(asked).items()}
        missing = sorted(partitions - set(found))
        otherwise = ranges.FROM_GROUP[bound.text.lower()]
        if missing and otherwise is None:
            named = ", ".join(f"{partition.topic}-{partition.partition}" for partition in missing[:MOST_TOLD])
            raise ConfigurationError(
                f"option startingOffsets={bound.text}: group {group!r} has committed no offset for {named}; "
                "committed-or-earliest or committed-or-latest say where these begin"
            )
        return {**found, **dict.fromkeys(missing, LATEST if otherwise is None else otherwise)}

    def _within(self, end: Offsets) -> Offsets:
        """Limit the ends to the partitions' log ends. An end beyond it is reported as a data loss."""
        logs = self._found(dict.fromkeys(end, LATEST), committed=False)
        for partition, at in sorted(end.items()):
            if at > logs[partition]:
                words = f"{partition.topic}-{partition.partition} ends at offset {logs[partition]}"
                told = f"{words}, and offsets up to {at - 1} were to be read"
                self._report_loss(told, partition.topic, partition.partition, logs[partition])
        return {partition: min(at, logs[partition]) for partition, at in end.items()}

    def _ranges(self, start: Offsets, end: Offsets, topic_ids: Mapping[str, str]) -> list[Range]:
        """Return the ranges to read. Reports a data loss if some of their records no longer exist."""
        for partition in sorted(start):
            if end.get(partition, -1) < start[partition]:
                self._lost(partition, end.get(partition, 0), start[partition])
        earliest = self._offsets(
            dict.fromkeys([partition for partition in end if end[partition] > start.get(partition, 0)], EARLIEST)
        )
        made = []
        for partition, stop in end.items():
            first = start.get(partition, earliest.get(partition, stop))
            if partition in earliest and earliest[partition] > first:
                self._lost(partition, first, earliest[partition])
                first = min(earliest[partition], stop)
            made.append(Range(partition.topic, partition.partition, first, stop, topic_ids.get(partition.topic, "")))
        return ranges.split(made, self._options.min_partitions, self._options.max_records)

    def _lost(self, partition: TopicPartition, wanted: int, there: int) -> None:
        words = f"{partition.topic}-{partition.partition}: offsets {wanted} to {there - 1} are not there any more"
        self._report_loss(words, partition.topic, partition.partition, there)

    def _report_loss(self, words: str, topic: str, partition: int = -1, there: int = -1) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{words} (set failOnDataLoss to false to go on without them)",
                topic=topic,
                partition=partition,
                log_start_offset=there,
            )
        log.warning("%s; failOnDataLoss is false, so reading goes on with what is there", words)

    # --- reading, in a task ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the range's records as Arrow batches with exactly the reader's schema, one fetch ahead."""
        from fencepost.spark.source.tables import range_row

        if partition.value is None:  # Spark makes such a partition if `partitions` returned none
            return iter(())
        wanted = Range(*partition.value)
        if self._schema == RANGE_SCHEMA:
            return iter([range_row(wanted, arrow_schema(RANGE_SCHEMA))])
        return self.records(wanted, arrow_schema(self._schema))

    def records(self, wanted: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the range's records with the columns of `schema`. Raises DataLossError."""
        from fencepost.spark.source.tables import to_rows

        position = wanted.start
        self._check_topic(wanted)
        while position < wanted.end:
            try:
                for fetched in self._fetched(wanted, position):
                    position = fetched.next_offset
                    yield to_rows(fetched, schema)
            except OffsetOutOfRangeError:
                position = self._after_loss(wanted, position)
            else:
                break
        self._check_topic(wanted)  # the same id before and after means that no record is of another topic

    def _check_topic(self, wanted: Range) -> None:
        """Report a data loss if the topic was deleted and created again since the range was planned."""
        cluster = self._link().admin.cluster
        deadline_ms = cluster.runtime.now_ms() + self._options.poll_timeout_ms
        found = self._link().io.run(cluster.topic(wanted.topic, deadline_ms)).topic_id
        if wanted.topic_id and found is not None:
            self._report_made_again({wanted.topic: wanted.topic_id}, {wanted.topic: str(found)})

    def _after_loss(self, wanted: Range, position: int) -> int:
        """Return the offset to continue from after retention has deleted records that the task had not read.

        Raises DataLossError unless failOnDataLoss is false.
        """
        partition = TopicPartition(wanted.topic, wanted.partition)
        there = self._offsets({partition: EARLIEST})[partition]
        after = min(there, wanted.end) if there > position else wanted.end
        self._lost(partition, position, after)
        return after

    def _fetched(self, wanted: Range, position: int) -> Iterator[Fetched]:
        link = self._link()
        own = self._options.client
        settings = FetchSettings(
            isolation=Isolation.READ_COMMITTED if self._options.committed else Isolation.READ_UNCOMMITTED,
            min_bytes=own.value("fetch_min_bytes"),
            max_wait_ms=own.value("fetch_max_wait_ms"),
            max_bytes=max(own.value("fetch_max_bytes"), self._options.fetch_bytes),
            partition_bytes=self._options.fetch_bytes,
            check_crcs=own.value("check_crcs"),
            decompressed_bytes=own.value("max_decompressed_bytes"),
            rack=own.value("client_rack"),
        )
        partition = TopicPartition(wanted.topic, wanted.partition)
        patience_ms = self._options.poll_timeout_ms
        pieces = fetch_range(link.admin.cluster, partition, position, wanted.end, settings, patience_ms)

        async def following() -> Fetched | None:
            return await anext(pieces, None)

        ahead: Future[Fetched | None] = asyncio.run_coroutine_threadsafe(following(), link.io.loop)
        try:
            while (fetched := ahead.result()) is not None:
                ahead = asyncio.run_coroutine_threadsafe(following(), link.io.loop)
                yield fetched
        finally:
            ahead.cancel()


class StreamReader(Source, DataSourceStreamReader, SupportsAvailableNow):
    """The reader of a stream. One process of the query plans offsets with it; tasks get pickled copies for `read`."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema, stream=True)
        self._target: Offsets | None = None
        self._reported: Offsets = {}
        self._high: Offsets = {}
        self._watch = Watch(self._options.warn_ms)
        self._shown: Offsets = {}
        self._last_batch_s: float | None = None

    def initialOffset(self) -> JsonOffsets:  # noqa: N802 - PySpark's name
        """Return the offsets of startingOffsets. Raises ConfigurationError."""
        tell_notes()
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
        self._tell_what_is_old(self._target, self._high)

    def _look(self) -> Offsets:
        """Return the present ends, and log the partitions that a transaction has held back for too long."""
        ends, self._high = self._ends()
        stuck, moved = self._watch.look(time.monotonic(), ends, self._high)
        for still, holder in self._holders(stuck, logging.WARNING).items():
            log.warning(
                "%s-%d: its committed records have ended at offset %d for %.0f s; %d offsets behind it wait for %s",
                *still.partition,
                still.stable,
                still.for_s,
                still.behind,
                told(holder),
            )
        for place in moved:
            log.info("%s-%d: what its readers waited for has ended", *place)
        return ends

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802 - PySpark's name
        """Return the end of the next batch. New partitions are read from their beginning."""
        tell_notes()
        begin = ranges.from_json(start)
        self._show(begin)
        before = {**self._topic_ids, **ranges.topic_ids(start)}
        ends = dict(self._look() if self._target is None else self._target)
        self._reported = ends
        others = self._report_made_again(before, self._topic_ids)
        begin = {partition: at for partition, at in begin.items() if partition.topic not in others}
        begin.update(self._went_back(begin, ends))
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
        bound = self._options.ending
        if bound.by_time:
            ranges.moments(bound, partitions)
        else:
            ranges.starting(bound.text, bound.option, partitions)

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

    def _went_back(self, begin: Offsets, ends: Offsets) -> Offsets:
        """Report deleted partitions, and partitions whose log ends before the offsets that were read.

        Returns the new positions of the latter, if failOnDataLoss is false.
        """
        for gone in sorted(set(begin) - set(ends)):
            self._report_gone(gone)
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
        fresh = self._report_made_again(ranges.topic_ids(start), planned)
        # The topic was created again after this batch was planned: the batch's records no longer exist.
        there = self._describe({partition.topic for partition in stop})
        gone = self._report_made_again(planned, self._topic_ids)
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
            log.warning("group %r was not told the offsets: %s", group, error)
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
        tell_notes()
        return ranges.to_json(self._look(), self._topic_ids)


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """Return the reader for the installed PySpark."""
    return StreamReader(options, schema) if ADMISSION_CONTROL else UnlimitedStreamReader(options, schema)
