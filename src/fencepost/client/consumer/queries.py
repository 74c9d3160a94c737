"""Questions of a consumer about offsets and partitions, which change nothing that it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from fencepost.arguments import Milliseconds
from fencepost.client.net import list_offsets as offsets
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.open_clients import CLOSE_MS
from fencepost.client.net.turn import Polls, Soon, Turn, at_once
from fencepost.client.types import Isolation, K, OffsetAt, TopicPartition


class ConsumerQueries(ABC):
    """Calls of `ConsumerCore` that ask brokers. The core has the abstract methods."""

    cluster: Cluster
    isolation: Isolation
    turn: Turn
    poll_ends: Polls

    @abstractmethod
    def _check(self) -> None: ...

    @abstractmethod
    def _deadline(self, timeout_ms: int | None) -> int: ...

    @abstractmethod
    def wakeup(self, soon: Soon = at_once) -> None: ...

    @abstractmethod
    async def close(self, timeout_ms: Milliseconds | None = CLOSE_MS) -> None: ...

    @abstractmethod
    async def leave(self, timeout_ms: int) -> None: ...

    @abstractmethod
    def unsaid(self) -> str: ...

    async def offsets_for(
        self, wanted: Mapping[K, offsets.TimestampOrEnd], timeout_ms: Milliseconds | None = None
    ) -> dict[TopicPartition, OffsetAt]:
        """Return offsets for timestamps, EARLIEST or LATEST, at this consumer's isolation level."""
        asked = {TopicPartition(*partition): at for partition, at in wanted.items()}
        return await offsets.list_offsets(self.cluster, asked, self.isolation, self._deadline(timeout_ms))

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

    async def partitions_for(self, topic: str, timeout_ms: Milliseconds | None = None) -> list[int]:
        """Return the topic's current partition numbers."""
        self._check()
        return sorted((await self.cluster.topic(topic, self._deadline(timeout_ms), fresh=True)).partitions)
