"""`spark.readStream.format("fencepost")` and `spark.read.format("fencepost")`, as Spark's own Kafka source.

    subscribe | subscribePattern | assign            which partitions
    startingOffsets, startingTimestamp               earliest, latest (default of a stream), JSON, or ms since 1970
    endingOffsets, endingTimestamp                   batch only; default latest
    maxOffsetsPerTrigger, minPartitions, failOnDataLoss, includeHeaders, kafka.*

kafka.isolation.level is read_committed by default: the end is then the last stable offset, and markers and aborted
records leave gaps in the offsets. Offsets are in Spark's checkpoint; no consumer group is used.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from fencepost.client.types import Isolation, TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import ConfigurationError, DataLossError, ProtocolError
from fencepost.protocol.fetch_wire import READ_COMMITTED, READ_UNCOMMITTED, FetchPartitionResult
from fencepost.spark import ranges, wire
from fencepost.spark.options import client_settings, flag, whole
from fencepost.spark.ranges import EARLIEST, LATEST, Offsets, Range
from fencepost.spark.runner import Link, link_to

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchReader", "RangePartition", "StreamReader", "source_schema"]

log = logging.getLogger("fencepost.spark")

FETCH_BYTES: Final = 8 * 1024 * 1024
READ_TIMEOUT_MS: Final = 300_000
_NOT_ALLOWED: Final = -100

_COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
)
_HEADERS: Final = ", headers array<struct<key:string,value:binary>>"


def source_schema(options: Mapping[str, str]) -> str:
    """The columns, with `headers` when includeHeaders is set."""
    return _COLUMNS + (_HEADERS if flag(options, "includeheaders", False) else "")


class RangePartition(InputPartition):
    """One task's range."""

    def __init__(self, range_: Range) -> None:
        super().__init__(tuple(range_))


class _Source:
    """What stream and batch share. Picklable: options only."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = dict(options)
        self._schema = schema
        self._client = client_settings(self._options, ConsumerConfig)
        self._committed = self._client.value("isolation_level") == "read_committed"
        self._fail_on_data_loss = flag(self._options, "failondataloss", True)
        self._min_partitions = whole(self._options, "minpartitions", 1)
        self._max_rows = whole(self._options, "maxoffsetspertrigger", 1)
        ways = [name for name in ("subscribe", "subscribepattern", "assign") if name in self._options]
        if len(ways) != 1:
            raise ConfigurationError("exactly one of the options subscribe, subscribePattern and assign is needed")

    def _link(self) -> Link:
        return link_to(dict(self._client.common))

    # --- which partitions, and where they begin and end ---

    def _partitions(self) -> set[TopicPartition]:
        if "assign" in self._options:
            return _assigned(self._options["assign"])
        link = self._link()
        if "subscribepattern" in self._options:
            pattern = re.compile(self._options["subscribepattern"])
            topics = [name for name in link.io.run(link.admin.list_topics()) if pattern.fullmatch(name)]
        else:
            topics = [name.strip() for name in self._options["subscribe"].split(",") if name.strip()]
        found = link.io.run(link.admin.describe_topics(topics)) if topics else {}
        missing = sorted(set(topics) - set(found))
        if missing:
            raise ConfigurationError(f"topics that do not exist: {', '.join(missing)}")
        return {TopicPartition(name, number) for name, topic in found.items() for number in topic.partitions}

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """The offset for each partition's EARLIEST, LATEST or timestamp; the end where no record is that late."""
        if not wanted:
            return {}
        link = self._link()
        isolation = Isolation.READ_COMMITTED if self._committed else Isolation.READ_UNCOMMITTED
        found = link.io.run(link.admin.list_offsets(wanted, isolation=isolation))
        late = [one for one, at in found.items() if at.offset < 0]
        ends = self._offsets(dict.fromkeys(late, LATEST)) if late else {}
        return {one: ends.get(one, at.offset) for one, at in found.items()}

    def _resolved(self, which: str, default: str, forbidden: int) -> Offsets:
        """startingOffsets or startingTimestamp (endingOffsets, endingTimestamp), as offsets that are there."""
        partitions = self._partitions()
        moment = whole(self._options, f"{which}timestamp", 0)
        if moment is not None:
            if f"{which}offsets" in self._options:
                raise ConfigurationError(f"{which}Offsets and {which}Timestamp exclude each other")
            return self._offsets(dict.fromkeys(partitions, moment))
        text = self._options.get(f"{which}offsets", default)
        given = ranges.starting(text, f"{which}Offsets", partitions, forbidden)
        asked = self._offsets({one: at for one, at in given.items() if at < 0})
        return {one: asked.get(one, at) for one, at in given.items()}

    def _ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """What to read; checks that nothing of it is gone."""
        earliest = self._offsets(dict.fromkeys([one for one in end if end[one] > start.get(one, 0)], EARLIEST))
        made = []
        for one, stop in end.items():
            first = start.get(one, earliest.get(one, stop))
            if one in earliest and earliest[one] > first:
                self._lost(one, first, earliest[one])
                first = min(earliest[one], stop)
            made.append(Range(one.topic, one.partition, first, stop))
        return ranges.split(made, self._min_partitions)

    def _lost(self, one: TopicPartition, wanted: int, there: int) -> None:
        words = f"{one.topic}-{one.partition}: offsets {wanted} to {there - 1} are not there any more"
        if self._fail_on_data_loss:
            raise DataLossError(
                f"{words} (set failOnDataLoss to false to go on without them)",
                topic=one.topic,
                partition=one.partition,
                log_start_offset=there,
            )
        log.warning("%s; reading goes on at %d", words, there)

    # --- reading, in a task ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The range's records as Arrow batches of exactly the reader's schema, one fetch ahead."""
        from pyspark.sql.pandas.types import to_arrow_schema

        wanted = Range(*partition.value)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        return self._read(wanted, schema)

    def _read(self, wanted: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        from fencepost.protocol.batch import iter_batches
        from fencepost.protocol.columns import decode_batches
        from fencepost.spark.tables import to_rows

        position = wanted.start
        fetched = self._fetch(wanted, position)
        try:
            while position < wanted.end:
                result = fetched.result()
                after = max((h.last_offset + 1 for h, _ in iter_batches(result.records, allow_partial=True)), default=0)
                if after <= position:
                    raise ProtocolError(f"a fetch of {wanted.topic}-{wanted.partition} at {position} gave no batch")
                if after < wanted.end:
                    fetched = self._fetch(wanted, after)
                aborted = (result.aborted or ()) if self._committed else None
                columns = decode_batches(result.records, start_offset=position, aborted=aborted)
                if len(columns) and int(columns.offsets[-1]) >= wanted.end:
                    columns = columns.select(columns.offsets < wanted.end)
                if len(columns):
                    yield to_rows(columns, result.records, wanted.topic, wanted.partition, schema)
                position = after
        finally:
            fetched.cancel()

    def _fetch(self, wanted: Range, position: int) -> Future[FetchPartitionResult]:
        link = self._link()
        cluster = link.admin.cluster
        level = READ_COMMITTED if self._committed else READ_UNCOMMITTED

        async def fetch() -> FetchPartitionResult:
            deadline_ms = cluster.runtime.now_ms() + READ_TIMEOUT_MS
            return await wire.fetch_some(
                cluster, wanted.topic, wanted.partition, position, level, FETCH_BYTES, deadline_ms
            )

        return asyncio.run_coroutine_threadsafe(fetch(), link.io.loop)


def _assigned(text: str) -> set[TopicPartition]:
    import json

    try:
        value = json.loads(text)
        found = {TopicPartition(str(topic), int(number)) for topic, numbers in value.items() for number in numbers}
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigurationError(f'option assign={text!r}: {{"topic":[0,1]}}') from error
    if not found:
        raise ConfigurationError("option assign names no partition")
    return found


class StreamReader(_Source, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one long process of the query for offsets; another copy is pickled to the tasks for read()."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: Offsets | None = None
        self._reported: Offsets = {}
        for name in ("endingoffsets", "endingtimestamp"):
            if name in self._options:
                raise ConfigurationError(f"option {name} is for batch reads; a stream has no end")

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 - PySpark's name
        """startingOffsets, resolved."""
        return ranges.to_json(self._resolved("starting", "latest", _NOT_ALLOWED))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        """maxOffsetsPerTrigger."""
        return ReadAllAvailable() if self._max_rows is None else ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        """Remember the end as it is now."""
        self._target = self._ends()

    def _ends(self) -> Offsets:
        return self._offsets(dict.fromkeys(self._partitions(), LATEST))

    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: N802
        """How far the next batch goes. New partitions are read from their beginning."""
        begin = ranges.from_json(start)
        ends = self._ends() if self._target is None else self._target
        self._reported = ends
        for gone in sorted(set(begin) - set(ends)):
            if self._target is None:
                self._lost(gone, begin[gone], begin[gone] + 1)
        for one, end in ends.items():
            if self._target is None and end < begin.get(one, 0):
                self._lost(one, end, begin[one])
        fresh = self._offsets(dict.fromkeys([one for one in ends if one not in begin], EARLIEST))
        # A partition that is gone stays where it was, so that the offset never goes back.
        ends = {**begin, **ends}
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return ranges.to_json(ranges.limit({**fresh, **begin}, ends, max_rows))

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802 - PySpark's name
        """The end without the limit: the difference is the lag, shown in the query's progress."""
        return ranges.to_json(self._reported) or None

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> Sequence[InputPartition]:
        """The same offsets give the same split, also after a restart (while minPartitions stays)."""
        return [RangePartition(one) for one in self._ranges(ranges.from_json(start), ranges.from_json(end))]

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        """Nothing: the offsets are in Spark's checkpoint."""

    def stop(self) -> None:
        """Nothing: PySpark was not seen to call it; connections end with the process."""


class BatchReader(_Source, DataSourceReader):
    """Reads what is there between two offsets."""

    def partitions(self) -> Sequence[InputPartition]:
        """startingOffsets (earliest) to endingOffsets (latest)."""
        start = self._resolved("starting", "earliest", LATEST)
        end = self._resolved("ending", "latest", EARLIEST)
        return [RangePartition(one) for one in self._ranges(start, end)]
