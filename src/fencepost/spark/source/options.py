"""Options of the source.

The source has all options that Spark documents for its own Kafka source, and columns, commitOffsets and
heldBackWarning.

READ has the options that work as Spark's documentation says. WITHOUT_EFFECT has the options that are accepted and
logged, with the reason why they have no effect. `fencepost.spark.options.NOT_YOURS` has the kafka.* settings that are
refused. Unknown names are logged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fencepost.arguments import brief_repr, nearest
from fencepost.client.types import TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import ConfigurationError
from fencepost.spark.kafka_settings import note
from fencepost.spark.options import ClientSettings, client_settings, flag, hint_of_none, milliseconds, whole
from fencepost.spark.source import ranges
from fencepost.spark.source.held_back import BOUND_MS
from fencepost.spark.source.java_pattern import java_pattern
from fencepost.spark.source.ranges import OffsetRangeLimit

__all__ = ["READ", "WITHOUT_EFFECT", "SourceOptions", "check", "not_there"]

WAYS: Final = ("subscribe", "subscribePattern", "assign")
ENDS: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets")
READ: Final[tuple[str, ...]] = (
    *WAYS,
    *ENDS,
    *STREAM_ONLY,
    "columns",
    "heldBackWarning",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafka.bootstrap.servers",
    "kafka.group.id",
)
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "groupIdPrefix": "no consumer group is joined; kafka.group.id names the group of commitOffsets",
}
_OTHERS: Final = frozenset({"path", "checkpointlocation"})  # Spark passes these to every source
_FETCH_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """A checked set of the source's options. Times are in milliseconds."""

    client: ClientSettings
    way: str
    wanted: str
    starting: OffsetRangeLimit
    ending: OffsetRangeLimit
    has_end: bool
    starting_group: str | None  # the group with whose committed offsets a query begins
    unmatched_start_is_latest: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records: int | None
    max_rows: int | None
    min_rows: int | None
    max_delay_ms: int
    poll_timeout_ms: int
    retries: int
    retry_interval_ms: int
    group: str | None
    fetch_bytes: int
    warn_ms: int  # warn of a transaction that has held read_committed readers back for this time

    @classmethod
    def parse(cls, options: Mapping[str, str], *, stream: bool) -> SourceOptions:
        """Parse options with lower-case keys. Raises ConfigurationError, which names the option."""
        ways = [name for name in WAYS if name.lower() in options]
        if len(ways) != 1:
            words = "exactly one of the options subscribe, subscribePattern and assign is needed"
            raise ConfigurationError("; ".join([words + hint_of_none(options), *_unknown(options)]))
        wanted = options[ways[0].lower()].strip()
        _check_way(ways[0], wanted)
        _note(options, stream=stream)
        max_rows = whole(options, "maxOffsetsPerTrigger", 1, ranges.MOST)
        min_rows = whole(options, "minOffsetsPerTrigger", 1, ranges.MOST)
        if min_rows is not None and max_rows is not None and min_rows > max_rows:
            raise ConfigurationError(f"minOffsetsPerTrigger={min_rows} is more than maxOffsetsPerTrigger={max_rows}")
        client = client_settings(options, ConsumerConfig)
        commits = flag(options, "commitOffsets", False)
        if commits and client.value("group_id") is None:
            raise ConfigurationError("commitOffsets needs kafka.group.id: the group to which the offsets are committed")
        starting, ending = (
            ranges.range_limit(options, "starting", "latest" if stream else "earliest"),
            ranges.range_limit(options, "ending", "latest"),
        )
        has_end = any(name.lower() in options for name in ENDS)
        if stream and has_end:
            ranges.ends_by_name(ending, ())
        if not stream:
            ranges.forbid(starting, ranges.LATEST)
            ranges.forbid(ending, ranges.EARLIEST)
        return cls(
            client,
            ways[0],
            wanted,
            starting,
            ending,
            has_end,
            _starting_group(starting, client),
            _strategy(options) == "latest",
            flag(options, "failOnDataLoss", True),
            whole(options, "minPartitions", 1),
            whole(options, "maxRecordsPerPartition", 1, ranges.MOST),
            max_rows,
            min_rows,
            milliseconds(options, "maxTriggerDelay", 15 * 60_000),
            _or_default(whole(options, "kafkaConsumer.pollTimeoutMs", 1, ranges.MOST), 120_000),
            _or_default(whole(options, "fetchOffset.numRetries", 0), 3),
            _or_default(whole(options, "fetchOffset.retryIntervalMs", 0, ranges.MOST), 10),
            client.value("group_id") if commits and stream else None,
            _fetch_bytes(options, client),
            milliseconds(options, "heldBackWarning", BOUND_MS),
        )

    @property
    def committed(self) -> bool:
        """True if only committed records are read."""
        return bool(self.client.value("isolation_level") == "read_committed")


def check(options: Mapping[str, str]) -> None:
    """Refuse options that are wrong both for a batch read and for a stream.

    Spark calls this when it makes a frame. The running query makes a stream's reader later, and PySpark would add an
    error of its own to the reader's error. Options without topics are left to the reader, because Spark does not pass
    the options of a table here.

    Args:
        options: The options, with lower-case keys.

    Raises:
        ConfigurationError: An option is wrong. The text names it.
    """
    if not any(name.lower() in options for name in WAYS):
        return
    try:
        SourceOptions.parse(options, stream=True)
    except ConfigurationError:
        SourceOptions.parse(options, stream=False)


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value


def _fetch_bytes(options: Mapping[str, str], client: ClientSettings) -> int:
    """Return the fetch size per partition, in bytes: as set, or 8 MiB, because a task reads only one partition."""
    given = "kafka.max.partition.fetch.bytes" in options
    return int(client.value("max_partition_fetch_bytes")) if given else _FETCH_BYTES


def not_there(way: str, wanted: str, partition: TopicPartition) -> str:
    """Return the error text for a partition that was read before and is no longer among those of `way`=`wanted`."""
    name = f"{partition.topic}-{partition.partition}"
    if _is_named(way, wanted, partition):
        return f"{name} is gone"
    return f"{name} was read before, and option {way}={wanted!r} no longer names it"


def _is_named(way: str, wanted: str, partition: TopicPartition) -> bool:
    if way == "subscribePattern":
        return java_pattern(wanted, way).search(partition.topic) is not None
    if way == "subscribe":
        return partition.topic in {name.strip() for name in wanted.split(",")}
    return partition in ranges.assigned(wanted)


def _check_way(way: str, wanted: str) -> None:
    if not wanted:
        raise ConfigurationError(f"option {way} is empty")
    if way == "subscribe" and not wanted.replace(",", "").strip():
        raise ConfigurationError(f"option subscribe={wanted!r} names no topic")
    if way == "subscribePattern":
        java_pattern(wanted, way)
    if way == "assign":
        ranges.assigned(wanted)


def _strategy(options: Mapping[str, str]) -> str:
    text = options.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if text not in ("error", "latest"):
        raise ConfigurationError(f"option startingOffsetsByTimestampStrategy={brief_repr(text)}: error or latest")
    return text


def _starting_group(starting: OffsetRangeLimit, client: ClientSettings) -> str | None:
    """Return the group with whose offsets a query begins; None if startingOffsets does not ask for committed offsets.

    Raises ConfigurationError if startingOffsets asks for them and no group is named.
    """
    if starting.by_time or starting.text.lower() not in ranges.FROM_GROUP:
        return None
    group: str | None = client.value("group_id")
    if group is None:
        raise ConfigurationError(
            f"startingOffsets={starting.text} needs kafka.group.id: the group with the committed offsets"
        )
    return group


def _note(options: Mapping[str, str], *, stream: bool) -> None:
    """Store a warning for each option without effect, and for each unknown name."""
    for name in () if stream else STREAM_ONLY:
        if name.lower() in options:
            note(f"option {name} is for streams; it has no effect on a batch read")
    for name, reason in WITHOUT_EFFECT.items():
        if name.lower() in options:
            note(f"option {name} has no effect: {reason}")
    for words in _unknown(options):
        note(words)


def _unknown(options: Mapping[str, str]) -> Iterator[str]:
    """Yield a text for each unknown option."""
    known = {name.lower(): name for name in (*READ, *WITHOUT_EFFECT)}
    for given in sorted(options):
        if given.lower() in known or given.lower() in _OTHERS or given.lower().startswith("kafka."):
            continue
        meant = nearest(given.lower(), known)
        yield f"option {given} is not known" + (f"; was {known[meant]} meant?" if meant is not None else "")
