"""Read the end of the output topics, from shortly before a batch was planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fencepost.client.consumer.fetch_requests import FetchSettings, fetch_range
from fencepost.client.net.list_offsets import EARLIEST, LATEST
from fencepost.client.types import Isolation, TopicPartition
from fencepost.errors import AuthorizationError, KafkaTimeoutError
from fencepost.spark.adoption.judgement import OutputTail, Rows
from fencepost.spark.adoption.refusals import AdoptionRefusedError
from fencepost.spark.sink.content import row_hashes
from fencepost.spark.sink.runner import ClusterClient

if TYPE_CHECKING:
    from fencepost.client.records import Fetched
    from fencepost.spark.sink.content import Hashes

__all__ = ["LastWrite", "last_writes", "read_tail"]

PATIENCE_MS: Final = 20_000  # for new records; an open transaction of another program may hold them back
CLEANUP: Final = "cleanup.policy"

Times = npt.NDArray[np.int64]


class LastWrite(NamedTuple):
    """The number of producers that the brokers know on the output topics, and the time of the last write.

    `last_ms` is in ms since 1970; None if unknown.
    """

    producers: int
    last_ms: int | None


class _Ends(NamedTuple):
    """Offsets of a partition.

    `first` and `end` are the log's bounds. `around` and `after` are the offsets of the first records at or after two
    times, or `end` if there is no such record.
    """

    first: int
    around: int
    after: int
    end: int


def read_tail(link: ClusterClient, topics: Sequence[str], planned_ms: int, within_ms: int) -> OutputTail:
    """Read the committed records of the topics since `planned_ms`, and of the `within_ms` before it.

    Raises AdoptionRefusedError if a topic is missing or an open transaction hides its end, and KafkaError.
    """
    described = link.io.run(link.admin.describe_topics(topics))
    missing = sorted(set(topics) - set(described))
    if missing:
        raise AdoptionRefusedError(f"there is no topic {missing[0]!r} on these brokers")
    partitions = [TopicPartition(name, number) for name, topic in described.items() for number in topic.partitions]
    ends = _ends_of(link, partitions, planned_ms, within_ms)
    after: list[Hashes] = []
    around: list[Hashes] = []
    for partition in partitions:
        _read(link, partition, ends[partition], planned_ms, within_ms, after, around)
    deleted = tuple(
        f"{partition.topic}-{partition.partition}"
        for partition in partitions
        if ends[partition].first > 0 and ends[partition].around == ends[partition].first
    )
    return OutputTail(
        Rows.of(after), Rows.of(around), deleted, keeps_all=all(_keeps_all(link, name) for name in topics)
    )


def _ends_of(
    link: ClusterClient, partitions: Sequence[TopicPartition], planned_ms: int, within_ms: int
) -> dict[TopicPartition, _Ends]:
    def offsets(wanted: int) -> Mapping[TopicPartition, int]:
        call = link.admin.list_offsets(dict.fromkeys(partitions, wanted), isolation=Isolation.READ_UNCOMMITTED)
        return {partition: found.offset for partition, found in link.io.run(call).items()}

    around, after = offsets(max(planned_ms - within_ms, 0)), offsets(planned_ms)
    # Read the end last, so that no offset that was found by its time is beyond it.
    first, end = offsets(EARLIEST), offsets(LATEST)
    none = -1  # the answer if no record is at or after the time
    return {
        partition: _Ends(
            first[partition],
            end[partition] if around[partition] == none else around[partition],
            end[partition] if after[partition] == none else after[partition],
            end[partition],
        )
        for partition in partitions
    }


def _read(
    link: ClusterClient,
    partition: TopicPartition,
    ends: _Ends,
    planned_ms: int,
    within_ms: int,
    after: list[Hashes],
    around: list[Hashes],
) -> None:
    """Append the checksums of a partition to `after` or `around`, by timestamp, which need not follow offset order."""
    for hashes, times in _fetched(link, partition, ends.around, ends.end):
        after.append(hashes[times >= planned_ms])
        around.append(hashes[(times < planned_ms) & (times >= planned_ms - within_ms)])


def _fetched(link: ClusterClient, partition: TopicPartition, start: int, end: int) -> list[tuple[Hashes, Times]]:
    settings = FetchSettings(isolation=Isolation.READ_COMMITTED)

    async def read() -> list[tuple[Hashes, Times]]:
        pieces = fetch_range(link.admin.cluster, partition, start, end, settings, PATIENCE_MS)
        return [_hashes_of(piece, partition.topic) async for piece in pieces]

    try:
        return link.io.run(read())
    except KafkaTimeoutError as error:
        raise AdoptionRefusedError(
            f"{partition.topic}-{partition.partition} could not be read up to offset {end}: an open transaction of "
            f"another program holds committed readers back (`fencepost transactions find-hanging`, `list`): {error}"
        ) from error


def _hashes_of(fetched: Fetched, topic: str) -> tuple[Hashes, Times]:
    import pyarrow as pa

    from fencepost.client.records import arrow_schema, chosen_columns

    whole = arrow_schema(headers=True)
    names = ("key", "value", "headers", "timestamp")
    rows = chosen_columns(fetched, pa.schema([whole.field(name) for name in names]))
    times = np.asarray(rows.column("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.int64()))
    return row_hashes(rows, topic), times


def _keeps_all(link: ClusterClient, topic: str) -> bool:
    try:
        settings = link.io.run(link.admin.describe_configs(topic))
    except AuthorizationError:
        return False
    return "compact" not in (settings.get(CLEANUP) or "compact")


def last_writes(link: ClusterClient, topics: Sequence[str]) -> LastWrite:
    """Return the number of producers that the brokers remember on the topics, and the last write. Raises KafkaError."""
    described = link.io.run(link.admin.describe_topics(topics))
    partitions = [TopicPartition(name, number) for name, topic in described.items() for number in topic.partitions]
    found = link.io.run(link.admin.describe_producers(partitions)) if partitions else {}
    known = {(each.producer_id, each.last_timestamp_ms) for producers in found.values() for each in producers}
    return LastWrite(len({number for number, _ in known}), max((at for _, at in known if at >= 0), default=None))
