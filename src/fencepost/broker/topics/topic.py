"""A topic of the broker, and its partitions with their logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.metrics.traffic import TopicTraffic
from fencepost.broker.settings.values import BrokerConfig, TopicConfig
from fencepost.broker.topics.internal import is_internal
from fencepost.broker.topics.replaced import Replacement
from fencepost.broker.topics.waiting import WaitingFetch

__all__ = ["Partition", "Topic"]


class Partition:
    """A partition: its log, opened on first use, and the fetches that wait for its records."""

    __slots__ = ("_open", "directory", "index", "opened", "topic", "waiting")

    def __init__(self, topic: Topic, index: int, opener: Callable[[Partition], PartitionLog]) -> None:
        self.topic = topic
        self.index = index
        self.directory = f"{topic.name}-{index}"
        self.opened: PartitionLog | None = None
        # in order of arrival, so that the order of answers is deterministic
        self.waiting: dict[WaitingFetch, None] = {}
        self._open = opener

    @property
    def log(self) -> PartitionLog:
        """The log, opened and if necessary recovered at first use. Raises OSError if that fails."""
        log = self.opened
        return self._open(self) if log is None else log


class Topic:
    """A topic. `partitions` are in order of their numbers."""

    __slots__ = (
        "config",
        "given",
        "internal",
        "log_config",
        "name",
        "partitions",
        "replacement",
        "topic_id",
        "traffic",
    )

    def __init__(self, name: str, topic_id: UUID, given: Mapping[str, str], broker: BrokerConfig) -> None:
        self.name = name
        self.internal = is_internal(name)
        """True for the broker's internal topics."""
        self.topic_id = topic_id
        self.given = dict(given)
        self.config = TopicConfig(self.given, broker)
        self.log_config: LogConfig | None = None
        """Settings of its logs; None after a change of settings, until the next use."""
        self.partitions: list[Partition] = []
        self.replacement = Replacement()
        self.traffic = TopicTraffic()

    def partition(self, index: int) -> Partition | None:
        """Return the partition with this number, or None."""
        try:
            return self.partitions[index] if index >= 0 else None
        except IndexError:
            return None
