"""Admin: topics, records, offsets, settings, log directories; groups, ACLs and transactions have modules of their own.

Every method takes `api_timeout_ms`, the patience for the whole call (default: default.api.timeout.ms), and raises
KafkaTimeoutError when it runs out, ClosedError after close, and the error class of a final wire code otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from fencepost.arguments import MaybeEmpty, OrMinusOne
from fencepost.client.admin.acls import AdminAcls
from fencepost.client.admin.groups import AdminGroups
from fencepost.client.admin.placement import AdminPlacement
from fencepost.client.admin.scram import AdminScram
from fencepost.client.admin.transactions import AdminTransactions
from fencepost.client.net import list_offsets as offsets
from fencepost.client.net.answers import only
from fencepost.client.net.cluster import AnyNode, Controller, Leader
from fencepost.client.net.tasks import first_error, gather
from fencepost.client.net.topology import Node, Partition
from fencepost.client.types import Isolation, K, OffsetAt, TopicPartition
from fencepost.errors import error_for
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages import create_partitions as cp
from fencepost.protocol.messages import create_topics as ct
from fencepost.protocol.messages import delete_records as dr
from fencepost.protocol.messages import delete_topics as dt
from fencepost.protocol.messages import describe_configs as dc
from fencepost.protocol.messages import describe_log_dirs as ld
from fencepost.protocol.messages import incremental_alter_configs as ic

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
LOGGER_RESOURCE: Final = 8
GROUP_RESOURCE: Final = 32


class TopicDescription(NamedTuple):
    """A topic and its partitions by number."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: dict[int, Partition]


class ClusterDescription(NamedTuple):
    """The brokers, and which of them is named as controller (-1: not told)."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Node, ...]


class LogDirReplica(NamedTuple):
    """A partition's log in a directory: its size, how far it is behind, whether it moves in from another directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A directory of a broker. `error_code` 56: it is offline. The sizes of its disk are -1 where not told."""

    broker: int
    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    replicas: dict[TopicPartition, LogDirReplica]


class ConfigSource(IntEnum):
    """Where a setting's value comes from."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigEntry(NamedTuple):
    """A setting. A sensitive value is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether nobody set it."""
        return self.source is ConfigSource.DEFAULT


_SOURCES: Final = frozenset(ConfigSource)


class AdminCore(AdminGroups, AdminAcls, AdminScram, AdminPlacement, AdminTransactions):
    """The async core of `Admin` and `AsyncAdmin`."""

    # --- topics ---

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
        api_timeout_ms: int | None = None,
    ) -> None:
        """Create a topic (-1: the broker's defaults) and wait until its leaders are known.

        Raises TopicAlreadyExistsError, InvalidTopicError (bad name or count), AuthorizationError.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        topic = ct.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[ct.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        left = deadline_ms - self.cluster.runtime.now_ms()
        reply: ct.CreateTopicsResponse = await self.cluster.call(
            Controller(),
            ct.CreateTopicsRequest(topics=[topic], timeout_ms=left),
            (4, 7),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(only(answer.topics).error_code),
            what=f"create topic {name!r}",
        )
        result = only(reply.topics)
        if result.error_code != 0 and not (exist_ok and result.error_code == E.TOPIC_ALREADY_EXISTS):
            raise error_for(result.error_code, f"create topic {name!r}", result.error_message)
        await self._wait_for_leaders(name, deadline_ms)

    async def _wait_for_leaders(self, name: str, deadline_ms: int) -> None:
        attempt = 0
        while True:
            await self.cluster.refresh_quietly([name], deadline_ms)
            known = self.cluster.topics.get(name)
            if (
                known is not None
                and known.error_code == 0
                and known.partitions
                and all(partition.leader in self.cluster.nodes for partition in known.partitions.values())
            ):
                return
            await self.cluster.pause(attempt, deadline_ms, f"leaders of topic {name!r}", None)
            attempt += 1

    async def delete_topic(self, name: str, *, missing_ok: bool = False, api_timeout_ms: int | None = None) -> None:
        """Delete a topic. Raises RetriableBrokerError (3) when there is none, unless `missing_ok`."""
        deadline_ms = self._deadline(api_timeout_ms)
        left = deadline_ms - self.cluster.runtime.now_ms()
        request = dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=name)], topic_names=[name], timeout_ms=left)
        reply: dt.DeleteTopicsResponse = await self.cluster.call(
            Controller(),
            request,
            (1, 6),
            deadline_ms=deadline_ms,
            # 3 is final here: waiting for a topic to appear, to delete it, is not what was asked.
            code_of=lambda answer: (
                0
                if only(answer.responses).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
                else int(only(answer.responses).error_code)
            ),
            what=f"delete topic {name!r}",
        )
        result = only(reply.responses)
        if result.error_code != 0 and not (missing_ok and result.error_code == E.UNKNOWN_TOPIC_OR_PARTITION):
            raise error_for(result.error_code, f"delete topic {name!r}", result.error_message)
        self.cluster.topics.pop(name, None)

    async def create_partitions(self, name: str, total: int, *, api_timeout_ms: int | None = None) -> None:
        """Grow a topic to `total` partitions. Raises InvalidTopicError."""
        deadline_ms = self._deadline(api_timeout_ms)
        left = deadline_ms - self.cluster.runtime.now_ms()
        topic = cp.CreatePartitionsTopic(name=name, count=total, assignments=None)
        reply: cp.CreatePartitionsResponse = await self.cluster.call(
            Controller(),
            cp.CreatePartitionsRequest(topics=[topic], timeout_ms=left),
            (0, 3),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(only(answer.results).error_code),
        )
        result = only(reply.results)
        if result.error_code != 0:
            raise error_for(result.error_code, f"partitions of {name!r}", result.error_message)
        await self._wait_for_leaders(name, deadline_ms)

    async def list_topics(self, *, internal: bool = False, api_timeout_ms: int | None = None) -> list[str]:
        """The names of all topics that this client may see, sorted."""
        deadline_ms = self._deadline(api_timeout_ms)
        reply = await self.cluster.fetch_metadata(None, deadline_ms, create=False)
        return sorted(
            topic.name for topic in reply.topics if topic.name is not None and (internal or not topic.is_internal)
        )

    async def describe_topics(
        self, names: Iterable[str] | None = None, *, api_timeout_ms: int | None = None
    ) -> dict[str, TopicDescription]:
        """Each topic that exists (None: all), by name; a name that does not exist is left out. Creates nothing.

        Raises the error of any other code.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        asked = None if names is None else list(names)
        reply = await self.cluster.fetch_metadata(asked, deadline_ms, create=False)
        described = {}
        for topic in reply.topics:
            if topic.error_code == E.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            if topic.error_code not in (0, E.LEADER_NOT_AVAILABLE):
                raise error_for(topic.error_code, f"topic {topic.name!r}")
            partitions = dict(sorted(self.cluster.topics[topic.name].partitions.items()))
            described[topic.name] = TopicDescription(topic.name, topic.topic_id, topic.is_internal, partitions)
        return described

    async def describe_cluster(self, *, api_timeout_ms: int | None = None) -> ClusterDescription:
        """The brokers and the controller."""
        await self.cluster.refresh([], self._deadline(api_timeout_ms))
        nodes = tuple(self.cluster.nodes[node] for node in sorted(self.cluster.nodes))
        return ClusterDescription(self.cluster.cluster_id, self.cluster.controller_id, nodes)

    # --- offsets ---

    async def list_offsets(
        self,
        wanted: Mapping[K, offsets.TimestampOrEnd],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        api_timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAt]:
        """Offset per partition for a timestamp in ms, or offsets.EARLIEST / LATEST / MAX_TIMESTAMP.

        LATEST is the high watermark, or with READ_COMMITTED the last stable offset. OffsetAt.offset is -1 when no
        record is that late.
        """
        asked = {TopicPartition(*partition): timestamp for partition, timestamp in wanted.items()}
        return await offsets.list_offsets(self.cluster, asked, isolation, self._deadline(api_timeout_ms))

    async def delete_records(
        self, before: Mapping[K, OrMinusOne], *, api_timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete records below the given offsets (-1: up to the high watermark); the new log start per partition."""
        deadline_ms = self._deadline(api_timeout_ms)
        calls = [
            self._delete_records_of(TopicPartition(*partition), at, deadline_ms) for partition, at in before.items()
        ]
        results = await gather(self.cluster.runtime, calls)
        failed = first_error(results)
        if failed is not None:
            raise failed
        return {
            TopicPartition(*partition): result
            for partition, result in zip(before, results, strict=True)
            if not isinstance(result, Exception)
        }

    async def _delete_records_of(self, place: TopicPartition, before: int, deadline_ms: int) -> int:
        left = deadline_ms - self.cluster.runtime.now_ms()
        partition = dr.DeleteRecordsPartition(partition_index=place.partition, offset=before)
        reply: dr.DeleteRecordsResponse = await self.cluster.call(
            Leader(place.topic, place.partition),
            dr.DeleteRecordsRequest(
                topics=[dr.DeleteRecordsTopic(name=place.topic, partitions=[partition])], timeout_ms=left
            ),
            (0, 2),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(only(only(answer.topics).partitions).error_code),
        )
        result = only(only(reply.topics).partitions)
        if result.error_code != 0:
            raise error_for(result.error_code, f"delete records of {place.topic}-{place.partition}")
        return int(result.low_watermark)

    # --- configurations ---

    async def describe_configs(
        self, name: MaybeEmpty, *, resource_type: int = TOPIC_RESOURCE, api_timeout_ms: int | None = None
    ) -> dict[str, str | None]:
        """The settings of a topic, a broker (its id as text, "": all), a group; sensitive values are None."""
        entries = await self.config_entries(name, resource_type=resource_type, api_timeout_ms=api_timeout_ms)
        return {entry.name: entry.value for entry in entries.values()}

    async def config_entries(
        self,
        name: MaybeEmpty,
        names: Sequence[str] | None = None,
        *,
        resource_type: int = TOPIC_RESOURCE,
        documentation: bool = False,
        api_timeout_ms: int | None = None,
    ) -> dict[str, ConfigEntry]:
        """As describe_configs (or only the settings `names`), with each value's source."""
        resource = dc.DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=None if names is None else list(names)
        )
        to_broker = resource_type in (BROKER_RESOURCE, LOGGER_RESOURCE) and name
        reply: dc.DescribeConfigsResponse = await self.cluster.call(
            int(name) if to_broker else AnyNode(),
            dc.DescribeConfigsRequest(resources=[resource], include_documentation=documentation),
            (3 if documentation else 1, 4),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: _unless_missing(only(answer.results).error_code),
        )
        result = only(reply.results)
        if result.error_code != 0:
            raise error_for(result.error_code, f"settings of {name!r}", result.error_message)
        return {
            entry.name: ConfigEntry(
                entry.name,
                entry.value,
                ConfigSource(entry.config_source) if entry.config_source in _SOURCES else ConfigSource.UNKNOWN,
                entry.read_only,
                entry.is_sensitive,
                entry.documentation,
            )
            for entry in result.configs
        }

    async def alter_configs(
        self,
        name: MaybeEmpty,
        changes: Mapping[str, str | None],
        *,
        resource_type: int = TOPIC_RESOURCE,
        api_timeout_ms: int | None = None,
    ) -> None:
        """Set settings of a topic or broker, leaving the others; None goes back to the default (KIP-339)."""
        altered = [
            ic.AlterableConfig(name=key, config_operation=1 if value is None else 0, value=value)
            for key, value in changes.items()
        ]
        resource = ic.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=altered)
        reply: ic.IncrementalAlterConfigsResponse = await self.cluster.call(
            int(name) if resource_type in (BROKER_RESOURCE, LOGGER_RESOURCE) and name else Controller(),
            ic.IncrementalAlterConfigsRequest(resources=[resource]),
            (0, 1),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: _unless_missing(only(answer.responses).error_code),
        )
        result = only(reply.responses)
        if result.error_code != 0:
            raise error_for(result.error_code, f"settings of {name!r}", result.error_message)

    # --- log directories ---

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, api_timeout_ms: int | None = None
    ) -> list[LogDir]:
        """The log directories of the brokers (None: all), with every partition's size."""
        deadline_ms = self._deadline(api_timeout_ms)
        await self.cluster.refresh([], deadline_ms)
        asked = sorted(self.cluster.nodes) if brokers is None else list(brokers)
        replies = await gather(
            self.cluster.runtime,
            [
                self.cluster.call(
                    node,
                    ld.DescribeLogDirsRequest(topics=None),
                    (1, 4),
                    deadline_ms=deadline_ms,
                    code_of=lambda answer: int(answer.error_code),
                )
                for node in asked
            ],
        )
        found = []
        for node, reply in zip(asked, replies, strict=True):
            if isinstance(reply, Exception):
                raise reply
            if reply.error_code != 0:
                raise error_for(reply.error_code, f"log directories of broker {node}")
            found += [_log_dir(node, result) for result in reply.results]
        return found

    async def partitions_of(self, topics: Iterable[str], *, api_timeout_ms: int | None = None) -> list[TopicPartition]:
        """All partitions of the topics, which have to exist. Raises KafkaTimeoutError."""
        deadline_ms = self._deadline(api_timeout_ms)
        found: dict[str, list[int]] = defaultdict(list)
        for name in topics:
            found[name] = sorted((await self.cluster.topic(name, deadline_ms)).partitions)
        return [TopicPartition(name, number) for name, numbers in found.items() for number in numbers]


def _unless_missing(code: Any) -> int:
    """3 is a final answer where nothing is going to create the topic."""
    return 0 if code == E.UNKNOWN_TOPIC_OR_PARTITION else int(code)


def _log_dir(broker: int, result: ld.DescribeLogDirsResult) -> LogDir:
    replicas = {
        TopicPartition(topic.name, partition.partition_index): LogDirReplica(
            partition.partition_size, partition.offset_lag, partition.is_future_key
        )
        for topic in result.topics
        for partition in topic.partitions
    }
    return LogDir(broker, result.log_dir, result.error_code, result.total_bytes, result.usable_bytes, replicas)
