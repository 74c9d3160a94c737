"""The topics of the broker: names, ids, partition counts and settings, and the logs of their partitions.

On disk, `topics.fencepost` is one small file that is replaced as a whole before a change is answered; its form is that
of `sealed_json`, magic "FPTC". Version 1 payload:
{"topics": [{"name", "id" (32 hex digits), "partitions", "configs": {key: value}}]}.

A partition's directory comes into being with its first use, and so do those of the 50 partitions of each internal
topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fencepost.broker.config import BrokerConfig, TopicConfig
from fencepost.broker.files import Files
from fencepost.broker.log.config import Fsync, LogConfig
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import CorruptSegment
from fencepost.broker.sealed_json import Damaged, seal_json, unseal_json

if TYPE_CHECKING:
    from fencepost.broker.fetching import ParkedFetch

__all__ = [
    "CONSUMER_OFFSETS",
    "TRANSACTION_STATE",
    "CatalogueCorrupt",
    "Partition",
    "Topic",
    "TopicCatalogue",
    "invalid_topic_name",
]

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
_INTERNAL_CONFIGS = {
    CONSUMER_OFFSETS: {"cleanup.policy": "compact", "segment.bytes": "104857600"},
    TRANSACTION_STATE: {"cleanup.policy": "compact", "segment.bytes": "104857600"},
}

# An internal topic is read whole at every start, and its last segment is never compacted: small ones make it short.
_INTERNAL_SEGMENT_BYTES = 1 << 20
# Nobody follows them but the broker itself, at its start: tombstones and markers need not wait for slow readers.
_INTERNAL_DELETE_RETENTION_MS = 60_000

_FILE = "topics.fencepost"
_MAGIC, _VERSION = b"FPTC", 1
_DELETED = "-delete"
_FSYNC: Mapping[str, Fsync] = {"commit": "commit", "interval": "interval", "never": "never"}
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_NAME = 249


class CatalogueCorrupt(Exception):
    """The file of topics is damaged or of a version that this broker does not know."""


class Partition:
    """One partition: its log, opened on first use, and the fetches that wait for more of it."""

    __slots__ = ("_open", "directory", "index", "opened", "topic", "waiting")

    def __init__(self, topic: Topic, index: int, opener: Callable[[Partition], PartitionLog]) -> None:
        self.topic = topic
        self.index = index
        self.directory = f"{topic.name}-{index}"
        self.opened: PartitionLog | None = None
        self.waiting: set[ParkedFetch] = set()
        self._open = opener

    @property
    def log(self) -> PartitionLog:
        """The log. Opening may recover it; raises OSError when that fails."""
        log = self.opened
        return self._open(self) if log is None else log


class Topic:
    """One topic. `partitions` are in order of their numbers."""

    __slots__ = ("config", "given", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: UUID, given: Mapping[str, str], broker: BrokerConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.given = dict(given)
        self.config = TopicConfig(self.given, broker)
        self.partitions: list[Partition] = []

    @property
    def internal(self) -> bool:
        """Whether it belongs to the broker itself."""
        return self.name in _INTERNAL_CONFIGS


class TopicCatalogue:
    """All topics.

    Every change is on disk, and synced as `files` does it, before the method returns; OSError otherwise.
    """

    def __init__(
        self, files: Files, config: BrokerConfig, new_id: Callable[[], UUID], on_open: Callable[[Partition], None]
    ) -> None:
        self._files = files
        self._config = config
        self._new_id = new_id
        self._on_open = on_open
        self.now_ms = 0
        self.stopped_cleanly = False
        self.version = 0  # another one whenever a topic comes, goes or grows
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def get(self, name: str) -> Topic | None:
        """The topic of that name."""
        return self._topics.get(name)

    def by_id(self, topic_id: UUID | None) -> Topic | None:
        """The topic of that id."""
        return None if topic_id is None else self._by_id.get(topic_id)

    def partition(self, name: str, index: int) -> Partition | None:
        """The partition, None when there is none."""
        topic = self._topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def colliding(self, name: str) -> str | None:
        """A topic whose name differs from this one by dots and underscores only: metrics cannot tell the two apart."""
        if "." not in name and "_" not in name:
            return None
        flat = name.replace(".", "_")
        return next((other for other in self._topics if other != name and other.replace(".", "_") == flat), None)

    def tick(self, now_ms: int) -> None:
        """Tell the time, which logs need when they are opened."""
        self.now_ms = now_ms

    def load(self) -> None:
        """Read the catalogue and remove what a crash left of deleted topics. Raises CatalogueCorrupt."""
        for name in self._files.listdir(""):
            if name.endswith(_DELETED):
                self._files.remove_tree(name)
        if not self._files.exists(_FILE):
            return
        for entry in _decode(self._files.read_bytes(_FILE))["topics"]:
            topic = Topic(entry["name"], UUID(hex=entry["id"]), entry["configs"], self._config)
            self._extend(topic, entry["partitions"])
            self._add(topic)

    def create(self, name: str, partitions: int, given: Mapping[str, str]) -> Topic:
        """Add a topic; the caller has checked the name, the count and the settings."""
        topic = Topic(name, self._new_id(), given, self._config)
        self._extend(topic, partitions)
        for partition in topic.partitions:
            # A crash between "no longer listed" and "directory gone" must not give a new topic the old one's records.
            self._remove_directory(partition)
        self._save([*self._topics.values(), topic])
        self._add(topic)
        return topic

    def internal(self, name: str) -> Topic:
        """An internal topic, created when it is needed for the first time."""
        topic = self._topics.get(name)
        if topic is None:
            key = "offsets.topic.num.partitions" if name == CONSUMER_OFFSETS else "transaction.state.log.num.partitions"
            topic = self.create(name, self._config.number(key), _INTERNAL_CONFIGS[name])
        return topic

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Grow the topic to `count` partitions."""
        self._save(self._topics.values(), grown=(topic, count))
        self._extend(topic, count)
        self.version += 1

    def set_configs(self, topic: Topic, given: Mapping[str, str]) -> None:
        """Replace the topic's own settings."""
        before = dict(topic.given)
        topic.given.clear()
        topic.given.update(given)
        topic.config.given = topic.given
        try:
            self._save(self._topics.values())
        except OSError:
            topic.given.clear()
            topic.given.update(before)
            raise
        self._configure(topic)

    def broker_settings_changed(self) -> None:
        """The broker's settings are others: let the logs know, which take their defaults from them."""
        for topic in self._topics.values():
            self._configure(topic)

    def _configure(self, topic: Topic) -> None:
        config = self.log_config(topic)
        for partition in topic.partitions:
            if partition.opened is not None:
                partition.opened.config = config

    def delete(self, topic: Topic) -> None:
        """Remove the topic and its records."""
        self._save(other for other in self._topics.values() if other is not topic)
        del self._topics[topic.name]
        del self._by_id[topic.topic_id]
        self.version += 1
        for partition in topic.partitions:
            if partition.opened is not None:
                partition.opened.close()
                partition.opened = None
            self._remove_directory(partition)

    def close(self) -> None:
        """Close every open log cleanly."""
        for topic in self._topics.values():
            for partition in topic.partitions:
                if partition.opened is not None:
                    partition.opened.close()
                    partition.opened = None

    def log_config(self, topic: Topic) -> LogConfig:
        """The settings of the logs of a topic's partitions."""
        config = topic.config
        append_time = config.text("message.timestamp.type") == "LogAppendTime"
        return LogConfig(
            segment_bytes=min(
                config.number("segment.bytes"),
                min(_INTERNAL_SEGMENT_BYTES, self._config.number("log.segment.bytes")) if topic.internal else 2**31,
            ),
            # What has to be compacted by a certain age has to be in a closed segment by then.
            segment_ms=min(
                config.number("segment.ms"), config.number("max.compaction.lag.ms") if config.compacted else 2**63
            ),
            index_interval_bytes=config.number("index.interval.bytes"),
            segment_index_bytes=config.number("segment.index.bytes"),
            max_message_bytes=config.number("max.message.bytes"),
            message_timestamp_type="LogAppendTime" if append_time else "CreateTime",
            message_timestamp_before_max_ms=config.number("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms=config.number("message.timestamp.after.max.ms"),
            retention_ms=config.number("retention.ms"),
            retention_bytes=config.number("retention.bytes"),
            cleanup_policy=config.text("cleanup.policy"),
            min_cleanable_dirty_ratio=float(config.text("min.cleanable.dirty.ratio")),
            min_compaction_lag_ms=config.number("min.compaction.lag.ms"),
            max_compaction_lag_ms=config.number("max.compaction.lag.ms"),
            delete_retention_ms=min(
                config.number("delete.retention.ms"), _INTERNAL_DELETE_RETENTION_MS if topic.internal else 2**63
            ),
            producer_id_expiration_ms=self._config.number("producer.id.expiration.ms"),
            fsync=_FSYNC[self._config.text("fsync")],
            producer_state_check="kafka" if self._config.text("producer.state.check") == "kafka" else "strict",
        )

    def _add(self, topic: Topic) -> None:
        self.version += 1
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def _extend(self, topic: Topic, count: int) -> None:
        for index in range(len(topic.partitions), count):
            topic.partitions.append(Partition(topic, index, self._open_log))

    def _open_log(self, partition: Partition) -> PartitionLog:
        try:
            log = self._recover(partition)
        except CorruptSegment as error:
            raise OSError(f"{partition.directory} cannot be opened: {error}") from error
        partition.opened = log
        self._on_open(partition)
        return log

    def _recover(self, partition: Partition) -> PartitionLog:
        return PartitionLog.open(
            self._files,
            partition.directory,
            self.log_config(partition.topic),
            self.now_ms,
            clean=self.stopped_cleanly,
            topic_id=partition.topic.topic_id,
        )

    def _remove_directory(self, partition: Partition) -> None:
        if self._files.exists(partition.directory):
            doomed = partition.directory + _DELETED
            self._files.rename(partition.directory, doomed)
            self._files.remove_tree(doomed)

    def _save(self, topics: Iterable[Topic], grown: tuple[Topic, int] | None = None) -> None:
        entries = []
        for topic in topics:
            count = grown[1] if grown is not None and grown[0] is topic else len(topic.partitions)
            entries.append({"name": topic.name, "id": topic.topic_id.hex, "partitions": count, "configs": topic.given})
        self._files.write_atomic(_FILE, seal_json(_MAGIC, _VERSION, {"topics": entries}))


def _decode(data: bytes) -> dict[str, Any]:
    try:
        result: dict[str, Any] = unseal_json(_MAGIC, _VERSION, data)
    except Damaged as error:
        raise CatalogueCorrupt(f"{_FILE}: {error}") from error
    return result


def invalid_topic_name(name: str) -> str | None:
    """Why the name is not one for a topic, None when it is fine. Rules and words are Kafka's."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > _LONGEST_NAME:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {_LONGEST_NAME}"
    if _LEGAL_NAME.fullmatch(name) is None:
        allowed = "ASCII alphanumerics, '.', '_' and '-'"
        return f"Topic name is invalid: '{name}' contains one or more characters other than {allowed}"
    return None
