"""Offsets by timestamp, for admin and consumer: ListOffsets requests to all leaders at once, retried per partition."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, Self

from fencepost.arguments import MAX_INT64, Between, brief_repr
from fencepost.client.net import retry
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.tasks import first_error, gather
from fencepost.client.net.topology import KnownTopic
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


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation,
    deadline_ms: int,
) -> dict[TopicPartition, OffsetAt]:
    """Return the offset for each partition's timestamp (ms, or EARLIEST, LATEST, MAX_TIMESTAMP).

    Raises KafkaError at the first partition that fails.
    """
    search = _OffsetSearch(cluster, wanted, isolation, deadline_ms, deadline_ms)
    attempt = 0
    while search.missing:
        trouble = await search.ask()
        if search.failed:
            raise search.first_failure()
        await search.pause_after(trouble, attempt)
        attempt += 1
    return search.found


async def offset_outcomes(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline_ms: int
) -> tuple[dict[TopicPartition, OffsetAt], dict[TopicPartition, KafkaError]]:
    """Return the offsets like `list_offsets`, and the errors of the partitions that have none.

    Raises KafkaError, the first one, if no partition has an offset.
    """
    now_ms = cluster.runtime.now_ms()
    several = len({partition.topic for partition in wanted}) > 1
    topics_until_ms = now_ms + (deadline_ms - now_ms) // 2 if several else deadline_ms  # the rest is for the others
    search = _OffsetSearch(cluster, wanted, isolation, deadline_ms, topics_until_ms)
    attempt = 0
    while search.missing:
        try:
            await search.pause_after(await search.ask(), attempt)
        except KafkaError as failure:
            search.failed |= dict.fromkeys(search.missing, failure)
            break
        attempt += 1
    if search.failed and not search.found:
        raise search.first_failure()
    return search.found, search.failed


async def offsets_as_they_come(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation,
    deadline_ms: int,
    arrived: Callable[[Mapping[TopicPartition, OffsetAt]], None],
) -> None:
    """Call `arrived` with the offsets of each leader when it has answered. Raises KafkaError when the last one has."""
    unknown = {partition.topic for partition in wanted if cluster.leader(*partition) < 0}
    if unknown:
        await cluster.refresh(unknown, deadline_ms)

    async def ask(together: Sequence[TopicPartition]) -> None:
        some = {partition: wanted[partition] for partition in together}
        arrived(await list_offsets(cluster, some, isolation, deadline_ms))

    await each_leader(cluster, wanted, ask)


async def each_leader(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: Callable[[Sequence[TopicPartition]], Coroutine[Any, Any, None]],
) -> None:
    """Call `ask` with the partitions of each leader, side by side. A leader that hangs does not delay the others.

    Raises the first error when all calls have ended.
    """
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition in partitions:
        by_leader[cluster.leader(*partition)].append(partition)
    failure = first_error(await gather(cluster.runtime, [ask(together) for together in by_leader.values()]))
    if failure is not None:
        raise failure


_LastingError = tuple[str, KafkaError]  # the failed request and the reason


class _OffsetSearch:
    """Requests to the leaders of the partitions whose offset is not known yet."""

    def __init__(
        self,
        cluster: Cluster,
        wanted: Mapping[TopicPartition, int],
        isolation: Isolation,
        deadline_ms: int,
        topics_until_ms: int,
    ) -> None:
        """Start without results. A topic that is not known at `topics_until_ms` has failed."""
        self.found: dict[TopicPartition, OffsetAt] = {}
        self.failed: dict[TopicPartition, KafkaError] = {}
        self.missing = dict(wanted)
        self._cluster = cluster
        self._isolation = isolation
        self._deadline_ms = deadline_ms
        self._topics_until_ms = topics_until_ms

    async def ask(self) -> _LastingError | None:
        """Send a request to each leader. Return the last error that may pass, if there is one."""
        cluster = self._cluster
        by_leader, trouble = await self._by_leader()
        calls = [
            _ask(cluster, leader, timestamps, self._isolation, self._deadline_ms)
            for leader, timestamps in by_leader.items()
        ]
        for timestamps, result in zip(by_leader.values(), await gather(cluster.runtime, calls), strict=True):
            if isinstance(result, RetriableError):
                trouble = _request_name(next(iter(timestamps))), result
            elif isinstance(result, KafkaError):
                self._fail(timestamps, result)
            elif isinstance(result, Exception):
                raise result
            else:
                trouble = self._take(result) or trouble
        return trouble

    async def pause_after(self, trouble: _LastingError | None, attempt: int) -> None:
        """Wait before the next request, and learn the leaders, if offsets are missing. Raises KafkaTimeoutError."""
        if not self.missing:
            return
        operation, error = trouble or _left_out(self.missing)
        await self._cluster.pause_after(error, attempt, self._deadline_ms, operation)
        await self._cluster.refresh_quietly({partition.topic for partition in self.missing}, self._deadline_ms)

    def first_failure(self) -> KafkaError:
        """Remove and return the first error. An error that stayed would refer to itself when it is raised."""
        return self.failed.pop(next(iter(self.failed)))

    async def _by_leader(self) -> tuple[dict[int, dict[TopicPartition, int]], _LastingError | None]:
        trouble: _LastingError | None = None
        by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        known: dict[str, KnownTopic] = {}
        for topic in dict.fromkeys(partition.topic for partition in self.missing):
            try:
                known[topic] = await self._cluster.topic(topic, self._topics_until_ms)
            except KafkaError as error:  # other topics may be known
                self._fail([partition for partition in self.missing if partition.topic == topic], error)
        for partition, timestamp in list(self.missing.items()):
            leader = self._cluster.leader(partition.topic, partition.partition)
            if partition.partition not in known[partition.topic].partitions:
                name = f"{partition.topic}-{partition.partition}"
                self._fail([partition], error_for(E.UNKNOWN_TOPIC_OR_PARTITION, name))
            elif leader >= 0:
                by_leader[leader][partition] = timestamp
            else:
                trouble = _request_name(partition), error_for(E.LEADER_NOT_AVAILABLE, _request_name(partition))
        return by_leader, trouble

    def _take(self, answers: Mapping[TopicPartition, tuple[int, OffsetAt]]) -> _LastingError | None:
        """Move answered partitions from `missing` to `found` and `failed`. Return the last retriable error."""
        trouble: _LastingError | None = None
        for partition, (code, at) in answers.items():
            if partition not in self.missing:
                continue  # not requested
            if code == 0:
                self.found[partition] = at
                del self.missing[partition]
                self._cluster.lasting_errors.succeeded(_request_name(partition))
                continue
            error = error_for(code, _request_name(partition))
            if retry.action(retry.LIST_OFFSETS, code) in retry.RETRIABLE:
                trouble = _request_name(partition), error
            else:
                self._fail([partition], error)
        return trouble

    def _fail(self, partitions: Iterable[TopicPartition], error: KafkaError) -> None:
        for partition in partitions:
            self.failed[partition] = error
            del self.missing[partition]


def _request_name(partition: TopicPartition) -> str:
    return f"list offsets of {partition.topic}-{partition.partition}"


def _left_out(missing: Iterable[TopicPartition]) -> _LastingError:
    operation = _request_name(next(iter(missing)))
    return operation, ProtocolError(f"{operation}: the broker left it out of its answer")


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
