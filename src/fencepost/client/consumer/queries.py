"""A consumer's requests about offsets and partitions that do not change its positions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace

from fencepost.arguments import Int32, Milliseconds
from fencepost.client.consumer.fetch_requests import RANGE_FETCH_BYTES, FetchSettings, fetch_range
from fencepost.client.consumer.subscription import SubscriptionState
from fencepost.client.group.committed_offsets import GROUP_LANE, fetch_committed
from fencepost.client.metrics import ConsumerMetrics, lags
from fencepost.client.net import list_offsets as offsets
from fencepost.client.net.open_clients import CLOSE_MS
from fencepost.client.net.turn import Polls, Soon, Turn, at_once
from fencepost.client.records import Fetched
from fencepost.client.telemetry.reporting import ReportingCore
from fencepost.client.telemetry.standard_names import CONSUMER
from fencepost.client.types import GroupMetadata, Isolation, K, OffsetAndMetadata, OffsetAt, TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import UsageError


class ConsumerQueries(ReportingCore, ABC):
    """Calls of `ConsumerCore` that query brokers. The core implements the abstract methods."""

    ROLE = CONSUMER
    config: ConsumerConfig
    _reading: SubscriptionState
    _settings: FetchSettings
    _metrics: ConsumerMetrics
    isolation: Isolation
    turn: Turn
    poll_ends: Polls

    @abstractmethod
    def _check(self) -> None: ...

    @abstractmethod
    def _deadline(self, timeout_ms: int | None) -> int: ...

    @abstractmethod
    def group_metadata(self) -> GroupMetadata: ...

    @abstractmethod
    def wakeup(self, soon: Soon = at_once) -> None: ...

    @abstractmethod
    async def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None: ...

    @abstractmethod
    async def leave(self, timeout_ms: int) -> None: ...

    @abstractmethod
    def close_warning(self) -> str: ...

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions being read."""
        return self._reading.assigned()

    def lag(self, partition: tuple[str, int]) -> int | None:
        """Return the offsets between position and end (read_committed: last stable offset) as of the last fetch.

        None before the first fetch. Markers and aborted records count until the position is after them.
        """
        return self._reading.lag(partition, self.isolation)

    def metrics(self) -> dict[str, float]:
        """Return counters by the names of Kafka's consumer metrics, and the current lag. Any thread may call it."""
        found = self._reading.distances(self.isolation)
        assigned: dict[str, float] = {
            "assigned_partitions": len(self._reading.states),
            "records_lag_max": max((lag for lag, _ in found.values()), default=0),
        }
        return self._metrics.snapshot() | assigned | lags(found) | self.cluster.links.metrics(self.cluster.nodes)

    def check_group(self) -> None:
        """Raise UsageError if close() cannot commit. Any thread may call it."""
        if self.config.group_id is None:
            raise UsageError("close(commit=True) needs a group_id; the consumer is still open")

    async def offsets_for(
        self, wanted: Mapping[K, offsets.TimestampOrEnd], timeout_ms: Milliseconds | None = None
    ) -> dict[TopicPartition, OffsetAt]:
        """Return offsets for timestamps, EARLIEST or LATEST, at this consumer's isolation level."""
        timestamps = {TopicPartition(*partition): at for partition, at in wanted.items()}
        return await offsets.list_offsets(self.cluster, timestamps, self.isolation, self._deadline(timeout_ms))

    async def offsets_as_they_come(
        self,
        wanted: Mapping[TopicPartition, int],
        arrived: Callable[[Mapping[TopicPartition, OffsetAt]], None],
    ) -> None:
        """Call `arrived` with the offsets of each leader when it has answered. Raises KafkaError when all have."""
        deadline_ms = self._deadline(None)
        await offsets.offsets_as_they_come(self.cluster, wanted, self.isolation, deadline_ms, arrived)

    async def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]], timeout_ms: Milliseconds | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition.

        Args:
            partitions: The partitions; they need not be assigned.
            timeout_ms: Time limit in ms; default: default_api_timeout_ms.

        Raises:
            KafkaTimeoutError: The leaders did not answer in time.
        """
        found = await self.offsets_for(dict.fromkeys(partitions, offsets.EARLIEST), timeout_ms)
        return {partition: at.offset for partition, at in found.items()}

    async def end_offsets(
        self, partitions: Iterable[tuple[str, int]], timeout_ms: Milliseconds | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record that this consumer may read, for each partition.

        It is the last stable offset with read_committed, and else the high watermark.

        Args:
            partitions: The partitions; they need not be assigned.
            timeout_ms: Time limit in ms; default: default_api_timeout_ms.

        Raises:
            KafkaTimeoutError: The leaders did not answer in time.
        """
        found = await self.offsets_for(dict.fromkeys(partitions, offsets.LATEST), timeout_ms)
        return {partition: at.offset for partition, at in found.items()}

    async def committed(
        self, partitions: Iterable[tuple[str, int]], timeout_ms: Milliseconds | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are left out."""
        self._check()
        group_id = self.group_metadata().group_id
        wanted = [TopicPartition(*partition) for partition in partitions]
        return await fetch_committed(
            self.cluster, group_id, wanted, require_stable=True, deadline_ms=self._deadline(timeout_ms), lane=GROUP_LANE
        )

    def fetch_range(
        self, topic: str, partition: Int32, start: int, end: int, *, timeout_ms: Milliseconds | None = None
    ) -> AsyncIterator[Fetched]:
        """Iterate over all visible records of [start, end) without an assignment (`fetch_requests.fetch_range`)."""
        self._check()
        most = max(self._settings.partition_bytes, RANGE_FETCH_BYTES)
        settings = replace(self._settings, partition_bytes=most, min_bytes=1, rack="")
        patience_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return fetch_range(self.cluster, TopicPartition(topic, partition), start, end, settings, patience_ms)

    async def partitions_for(self, topic: str, timeout_ms: Milliseconds | None = None) -> list[int]:
        """Return the topic's current partition numbers."""
        self._check()
        return sorted((await self.cluster.topic(topic, self._deadline(timeout_ms), fresh=True)).partitions)
