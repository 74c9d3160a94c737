"""Offsets by timestamp, for admin and consumer: ListOffsets requests to all leaders at once, retried per partition."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NamedTuple, Self

from fencepost.arguments import MAX_INT64, Between, brief_repr
from fencepost.client.net import retry
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.lasting_errors import LastingErrors
from fencepost.client.net.tasks import gather
from fencepost.client.types import Isolation, OffsetAt, OffsetSpec, TopicPartition
from fencepost.errors import ConfigurationError, KafkaError, ProtocolError, RetriableError, error_for
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST, EARLIEST, MAX_TIMESTAMP = OffsetSpec.LATEST, OffsetSpec.EARLIEST, OffsetSpec.MAX_TIMESTAMP
# Milliseconds since the epoch, or an OffsetSpec.
TimestampOrEnd = Annotated[int, Between(-5, MAX_INT64)]

_SINCE: Final[Mapping[int, int]] = {MAX_TIMESTAMP: 7, OffsetSpec.EARLIEST_LOCAL: 8, OffsetSpec.LATEST_TIERED: 9}
"""The first version of ListOffsets that knows an OffsetSpec; 2 for the others."""

BY_DURATION: Final = "by_duration:"
# ISO 8601 as java.time.Duration parses it: days, hours, minutes, seconds.
_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE | re.ASCII
)
_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)


class OffsetReset(NamedTuple):
    """The rule of auto_offset_reset: earliest, latest, none, or by_duration:<ISO 8601 duration> (KIP-1106)."""

    policy: str
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a value of auto_offset_reset. Raises ConfigurationError."""
        if text in ("earliest", "latest", "none"):
            return cls(text)
        found = _DURATION.fullmatch(text.removeprefix(BY_DURATION)) if text.startswith(BY_DURATION) else None
        if found is None or not any(found.groups()):
            raise ConfigurationError(
                f"auto_offset_reset={brief_repr(text)}: one of earliest, latest, none, "
                "by_duration:<ISO 8601 duration, like PT1H>"
            )
        parts = zip(found.groups(), _UNITS_MS, strict=True)
        return cls("by_duration", round(sum(float(part) * unit for part, unit in parts if part)))

    @property
    def is_none(self) -> bool:
        """True if there is no rule, so that a missing position is an error."""
        return self.policy == "none"

    def timestamp(self, wall_ms: int) -> int:
        """Return the timestamp for a ListOffsets request."""
        if self.policy == "by_duration":
            return max(wall_ms - self.duration_ms, 0)
        return EARLIEST if self.policy == "earliest" else LATEST


_LastingError = tuple[str, KafkaError]  # the failed request and the reason


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation,
    deadline_ms: int,
) -> dict[TopicPartition, OffsetAt]:
    """Return the offset for each partition's timestamp (ms, or EARLIEST, LATEST, MAX_TIMESTAMP). Raises KafkaError."""
    found: dict[TopicPartition, OffsetAt] = {}
    missing = dict(wanted)
    attempt = 0
    while missing:
        by_leader, trouble = await _by_leader(cluster, missing, deadline_ms)
        calls = [_ask(cluster, leader, timestamps, isolation, deadline_ms) for leader, timestamps in by_leader.items()]
        for timestamps, result in zip(by_leader.values(), await gather(cluster.runtime, calls), strict=True):
            if isinstance(result, RetriableError):
                trouble = _request_name(next(iter(timestamps))), result
            elif isinstance(result, Exception):
                raise result
            else:
                trouble = _take(cluster.lasting_errors, result, found, missing) or trouble
        if missing:
            operation, error = trouble or _left_out(missing)
            await cluster.pause_after(error, attempt, deadline_ms, operation)
            attempt += 1
            await cluster.refresh_quietly({partition.topic for partition in missing}, deadline_ms)
    return found


def _request_name(partition: TopicPartition) -> str:
    return f"list offsets of {partition.topic}-{partition.partition}"


def _left_out(missing: Iterable[TopicPartition]) -> _LastingError:
    operation = _request_name(next(iter(missing)))
    return operation, ProtocolError(f"{operation}: the broker left it out of its answer")


async def _by_leader(
    cluster: Cluster, missing: Mapping[TopicPartition, int], deadline_ms: int
) -> tuple[dict[int, dict[TopicPartition, int]], _LastingError | None]:
    trouble: _LastingError | None = None
    by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for partition, timestamp in missing.items():
        known = await cluster.topic(partition.topic, deadline_ms)
        if partition.partition not in known.partitions:
            raise error_for(E.UNKNOWN_TOPIC_OR_PARTITION, f"{partition.topic}-{partition.partition}")
        leader = cluster.leader(partition.topic, partition.partition)
        if leader >= 0:
            by_leader[leader][partition] = timestamp
        else:
            trouble = _request_name(partition), error_for(E.LEADER_NOT_AVAILABLE, _request_name(partition))
    return by_leader, trouble


def _take(
    lasting_errors: LastingErrors,
    answers: Mapping[TopicPartition, tuple[int, OffsetAt]],
    found: dict[TopicPartition, OffsetAt],
    missing: dict[TopicPartition, int],
) -> _LastingError | None:
    """Move answered partitions from `missing` to `found`. Return the last retriable error. Raises the others."""
    trouble: _LastingError | None = None
    for partition, (code, at) in answers.items():
        if partition not in missing:
            continue  # not requested
        if code == 0:
            found[partition] = at
            del missing[partition]
            lasting_errors.succeeded(_request_name(partition))
            continue
        error = error_for(code, _request_name(partition))
        if retry.action(retry.LIST_OFFSETS, code) not in retry.RETRIABLE:
            raise error
        trouble = _request_name(partition), error
    return trouble


async def _ask(
    cluster: Cluster, leader: int, timestamps: Mapping[TopicPartition, int], isolation: Isolation, deadline_ms: int
) -> dict[TopicPartition, tuple[int, OffsetAt]]:
    connection = await cluster.connection(leader, deadline_ms)
    lowest = max(_SINCE.get(timestamp, 2) for timestamp in timestamps.values())
    version = connection.version(retry.LIST_OFFSETS, lowest, 11)
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for partition, timestamp in timestamps.items():
        topics[partition.topic].append(ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp))
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(isolation),
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        timeout_ms=cluster.server_timeout_ms(deadline_ms),
    )
    left = deadline_ms - cluster.runtime.now_ms()
    reply: ListOffsetsResponse = await connection.request(request, version, timeout_ms=left)
    return {
        TopicPartition(topic.name, partition.partition_index): (
            partition.error_code,
            OffsetAt(partition.offset, partition.timestamp, partition.leader_epoch),
        )
        for topic in reply.topics
        for partition in topic.partitions
    }
