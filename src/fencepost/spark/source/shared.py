"""The part that a stream and a batch read share: partitions, offsets, ranges of tasks, and the records of a task.

kafka.isolation.level is read_committed by default: the end is then the last stable offset, and markers and aborted
records leave gaps in the offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from fencepost.client.admin.topics import TopicDescription
from fencepost.client.consumer.fetch_requests import FetchSettings, fetch_range
from fencepost.client.group import committed_offsets as group_offsets
from fencepost.client.records import Fetched
from fencepost.client.types import Isolation, OffsetAt, TopicPartition
from fencepost.counted import agreeing, counted_noun
from fencepost.errors import (
    ConfigurationError,
    DataLossError,
    KafkaError,
    OffsetOutOfRangeError,
    RetriableError,
    UnknownTopicOrPartitionError,
)
from fencepost.process.signal_waits import pause, result_of
from fencepost.spark.cluster_calls import ClusterCalls
from fencepost.spark.compat import ADMISSION_CONTROL, arrow_schema
from fencepost.spark.kafka_settings import warn_once
from fencepost.spark.sink.runner import ClusterClient, link_to
from fencepost.spark.source import ranges
from fencepost.spark.source.columns import RANGE_SCHEMA
from fencepost.spark.source.held_back import (
    FirstOpenTransaction,
    StalledPartition,
    describe_first_open,
    first_open_transactions,
)
from fencepost.spark.source.java_pattern import java_pattern
from fencepost.spark.source.options import SourceOptions
from fencepost.spark.source.ranges import EARLIEST, LATEST, OffsetRangeLimit, Offsets, Range

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COMMIT_PATIENCE_MS", "RangePartition", "Source"]

log = logging.getLogger("fencepost.spark")

COMMIT_PATIENCE_MS: Final = 10_000
LOOK_AGAIN_MS: Final = 1_000  # without offsets for this long, the source describes the topics again
HOLDER_PATIENCE_MS: Final = 5_000  # short, because the query waits for an answer that is only for a log line
MOST_LOGGED: Final = 20  # partitions that are logged at a time with their transactions
MOST_NAMED: Final = 200  # further partitions that are logged by name only

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
            warn_once(f"option subscribePattern={self._options.wanted!r} matches no topic so far: nothing is read")
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

    def _report_recreated(self, before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
        """Return the topics that were deleted and created again. Each is reported as a data loss."""
        topics = ranges.recreated_topics(before, after)
        for name in sorted(topics):
            self._report_loss(f"topic {name} was deleted and created again: its unread records are lost", name)
        return topics

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Call `ask`, and retry as fetchOffset.numRetries and fetchOffset.retryIntervalMs say.

        The client itself retries within each call.
        """
        for left in range(self._options.retries, -1, -1):
            try:
                return ask()
            except UnknownTopicOrPartitionError:
                raise
            except RetriableError as error:
                if left == 0:
                    raise
                log.warning("offsets could not be fetched, %d more attempts: %s", left, error)
                pause(self._options.retry_interval_ms / 1000)
        raise ConfigurationError("fetchOffset.numRetries is below 0")

    def _found(self, wanted: Mapping[TopicPartition, int], *, committed: bool) -> Offsets:
        """Return the offset of each partition's EARLIEST, LATEST or timestamp; -1 if no record is at or after it.

        Raises UnknownTopicOrPartitionError if a topic was deleted since it was described.
        """
        if not wanted:
            return {}
        link = self._link()
        isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
        found = self._patiently(lambda: link.io.run(_offsets_while_there(link.admin, wanted, isolation)))
        return {partition: at.offset for partition, at in found.items()}

    def _ends(self) -> tuple[Offsets, Offsets]:
        """Return a stream's present end and the high watermarks, which differ if a transaction holds readers back."""
        while True:
            # Without admission control latestOffset gets no start, so a missing partition cannot be reported as lost.
            wanted = dict.fromkeys(self._partitions(begun=ADMISSION_CONTROL), LATEST)
            try:
                # High watermarks first, so that records written between the two requests do not count as held back.
                high = self._found(wanted, committed=False)
                return (self._found(wanted, committed=True) if self._options.committed else high), high
            except UnknownTopicOrPartitionError as error:
                log.info("a topic was deleted after it was described, so the topics are described again: %s", error)

    def _warn_of_hidden_records(self, ends: Offsets, high: Offsets) -> None:
        """Warn of records after the final end that a long open transaction hides from this read."""
        above = ((partition, at, high.get(partition, at)) for partition, at in sorted(ends.items()))
        held = [StalledPartition(partition, at, end - at, 0) for partition, at, end in above if end > at]
        for still, transaction in self._holders(held, logging.INFO).items():
            is_young = (
                isinstance(transaction, FirstOpenTransaction)
                and transaction.age_ms is not None
                and transaction.age_ms < self._options.warn_ms
            )
            log.log(
                logging.INFO if is_young or transaction is None else logging.WARNING,
                "%s-%d: %s not read, from offset %d on: %s %s for %s",
                *still.partition,
                counted_noun(still.behind, "offset", "are"),
                still.stable,
                agreeing(still.behind, "they"),
                agreeing(still.behind, "wait"),
                describe_first_open(transaction),
            )

    def _holders(
        self, held: Sequence[StalledPartition], severity: int
    ) -> dict[StalledPartition, FirstOpenTransaction | KafkaError | None]:
        """Return the transactions that hold back the first MOST_LOGGED partitions, and log the names of the others."""
        if not held:
            return {}
        link, shown, others = self._link(), held[:MOST_LOGGED], held[MOST_LOGGED:]
        found = link.io.run(
            first_open_transactions(link.admin, [still.partition for still in shown], HOLDER_PATIENCE_MS)
        )
        if others:
            named = [f"{still.partition.topic}-{still.partition.partition}" for still in others[:MOST_NAMED]]
            more = ", ..." if len(others) > MOST_NAMED else ""
            words = "%d more partitions are held back by open transactions: %s%s"
            log.log(severity, words, len(others), ", ".join(named), more)
        return {still: found[still.partition] for still in shown}

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """Return the offsets as `_found`, but the partition's end if no record is at or after the timestamp."""
        found = self._found(wanted, committed=self._options.committed)
        late = [partition for partition, at in found.items() if at < 0]
        return {**found, **(self._offsets(dict.fromkeys(late, LATEST)) if late else {})}

    def _resolved(self, limit: OffsetRangeLimit, *, may_be_late: bool) -> Offsets:
        """Return the offsets of a bound. Raises ConfigurationError."""
        partitions = self._partitions()
        if limit.by_time:
            moments = ranges.moments(limit, partitions)
            found = self._found(moments, committed=self._options.committed)
            late = sorted(partition for partition, at in found.items() if at < 0)
            if late and not may_be_late:
                raise ConfigurationError(
                    f"option {limit.option}: {late[0].topic}-{late[0].partition} has no record at or after "
                    f"{moments[late[0]]}; startingOffsetsByTimestampStrategy=latest would begin at its end"
                )
            return {**found, **self._offsets(dict.fromkeys(late, LATEST))}
        given = self._of_group(partitions, limit) or ranges.starting(limit.text, limit.option, partitions)
        resolved = self._offsets({partition: at for partition, at in given.items() if at < 0})
        return {partition: resolved.get(partition, at) for partition, at in given.items()}

    def _of_group(self, partitions: set[TopicPartition], limit: OffsetRangeLimit) -> Offsets | None:
        """Return the start from a group's committed offsets; None if the bound does not ask for them.

        Raises ConfigurationError if the group has no offset for a partition and the option gives no alternative.
        """
        group = self._options.starting_group
        if group is None or limit is not self._options.starting:
            return None
        link = self._link()
        deadline_ms = link.admin.cluster.runtime.now_ms() + COMMIT_PATIENCE_MS
        call = group_offsets.fetch_committed(
            link.admin.cluster, group, sorted(partitions), require_stable=True, deadline_ms=deadline_ms
        )
        found = {partition: at.offset for partition, at in link.io.run(call).items()}
        missing = sorted(partitions - set(found))
        otherwise = ranges.FROM_GROUP[limit.text.lower()]
        if missing and otherwise is None:
            named = ", ".join(f"{partition.topic}-{partition.partition}" for partition in missing[:MOST_LOGGED])
            raise ConfigurationError(
                f"option startingOffsets={limit.text}: group {group!r} has committed no offset for {named}; "
                "committed-or-earliest or committed-or-latest say where these begin"
            )
        return {**found, **dict.fromkeys(missing, LATEST if otherwise is None else otherwise)}

    def _within(self, end: Offsets) -> Offsets:
        """Limit the ends to the partitions' log ends. An end beyond it is reported as a data loss."""
        logs = self._found(dict.fromkeys(end, LATEST), committed=False)
        for partition, at in sorted(end.items()):
            if at > logs[partition]:
                words = f"{partition.topic}-{partition.partition} ends at offset {logs[partition]}"
                describe_holder = f"{words}, and offsets up to {at - 1} were to be read"
                self._report_loss(describe_holder, partition.topic, partition.partition, logs[partition])
        return {partition: min(at, logs[partition]) for partition, at in end.items()}

    def _ranges(self, start: Offsets, end: Offsets, topic_ids: Mapping[str, str]) -> list[Range]:
        """Return the ranges to read. Reports a data loss if some of their records no longer exist."""
        for partition in sorted(start):
            if end.get(partition, -1) < start[partition]:
                self._lost(partition, end.get(partition, 0), start[partition])
        earliest = self._offsets(
            dict.fromkeys([partition for partition in end if end[partition] > start.get(partition, 0)], EARLIEST)
        )
        unsplit = []
        for partition, stop in end.items():
            first = start.get(partition, earliest.get(partition, stop))
            if partition in earliest and earliest[partition] > first:
                self._lost(partition, first, earliest[partition])
                first = min(earliest[partition], stop)
            unsplit.append(Range(partition.topic, partition.partition, first, stop, topic_ids.get(partition.topic, "")))
        return ranges.split(unsplit, self._options.min_partitions, self._options.max_records)

    def _lost(self, partition: TopicPartition, wanted: int, there: int) -> None:
        words = f"{partition.topic}-{partition.partition}: offsets {wanted} to {there - 1} do not exist any more"
        self._report_loss(words, partition.topic, partition.partition, there)

    def _report_loss(self, words: str, topic: str, partition: int = -1, there: int = -1) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{words} (set failOnDataLoss to false to go on without them)",
                topic=topic,
                partition=partition,
                log_start_offset=there,
            )
        log.warning("%s; failOnDataLoss is false, so the query continues without these records", words)

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

    def records(self, offset_range: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the range's records with the columns of `schema`. Raises DataLossError."""
        from fencepost.spark.source.tables import to_rows

        position = offset_range.start
        self._check_topic(offset_range)
        while position < offset_range.end:
            try:
                for fetched in self._fetched(offset_range, position):
                    position = fetched.next_offset
                    yield to_rows(fetched, schema)
            except OffsetOutOfRangeError:
                position = self._after_loss(offset_range, position)
            else:
                break
        self._check_topic(offset_range)  # the same id before and after means that no record is of another topic

    def _check_topic(self, wanted: Range) -> None:
        """Report a data loss if the topic was deleted and created again since the range was planned."""
        cluster = self._link().admin.cluster
        deadline_ms = cluster.runtime.now_ms() + self._options.poll_timeout_ms
        found = self._link().io.run(cluster.topic(wanted.topic, deadline_ms)).topic_id
        if wanted.topic_id and found is not None:
            self._report_recreated({wanted.topic: wanted.topic_id}, {wanted.topic: str(found)})

    def _after_loss(self, wanted: Range, position: int) -> int:
        """Return the offset to continue from after retention has deleted records that the task had not read.

        Raises DataLossError unless failOnDataLoss is false.
        """
        partition = TopicPartition(wanted.topic, wanted.partition)
        there = self._offsets({partition: EARLIEST})[partition]
        after = min(there, wanted.end) if there > position else wanted.end
        self._lost(partition, position, after)
        return after

    def _fetched(self, offset_range: Range, position: int) -> Iterator[Fetched]:
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
        partition = TopicPartition(offset_range.topic, offset_range.partition)
        patience_ms = self._options.poll_timeout_ms
        pieces = fetch_range(link.admin.cluster, partition, position, offset_range.end, settings, patience_ms)

        async def following() -> Fetched | None:
            return await anext(pieces, None)

        ahead: Future[Fetched | None] = asyncio.run_coroutine_threadsafe(following(), link.io.loop)
        try:
            while (fetched := result_of(ahead)) is not None:
                ahead = asyncio.run_coroutine_threadsafe(following(), link.io.loop)
                yield fetched
        finally:
            ahead.cancel()


async def _offsets_while_there(
    admin: ClusterCalls, wanted: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, OffsetAt]:
    """Return the offsets. Raises UnknownTopicOrPartitionError if a topic is described as missing meanwhile.

    The client alone would repeat ListOffsets until its timeout, because a broker that starts may not know its topics.
    """
    request = asyncio.ensure_future(admin.offsets_of_all(wanted, isolation))
    topics = {partition.topic for partition in wanted}
    try:
        while True:
            done, _ = await asyncio.wait({request}, timeout=LOOK_AGAIN_MS / 1000)
            missing = [] if done else await _missing(admin, topics)
            if request.done():
                return request.result()
            if missing:
                raise UnknownTopicOrPartitionError(f"topics that do not exist: {', '.join(missing)}")
    finally:
        request.cancel()


async def _missing(admin: ClusterCalls, topics: Collection[str]) -> list[str]:
    """Return the topics that do not exist; [] if the brokers do not say so in LOOK_AGAIN_MS."""
    try:
        there = await admin.describe_topics(topics, api_timeout_ms=LOOK_AGAIN_MS)
    except KafkaError:
        return []
    return sorted(set(topics) - set(there))
