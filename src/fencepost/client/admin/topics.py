"""Admin calls for topics, brokers and offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from fencepost.client.admin.base import AdminBase, unless_missing
from fencepost.client.net import list_offsets as offsets
from fencepost.client.net.answers import only
from fencepost.client.net.cluster import HIGHEST_METADATA, LOWEST_METADATA, Controller
from fencepost.client.net.topology import Node, Partition
from fencepost.client.types import Isolation, K, OffsetAt, TopicPartition
from fencepost.errors import KafkaError, error_for
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.codes import describe
from fencepost.protocol.messages import create_partitions as cp
from fencepost.protocol.messages import create_topics as ct
from fencepost.protocol.messages import delete_topics as dt
from fencepost.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)


class TopicDescription(NamedTuple):
    """A topic and its partitions by number."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: dict[int, Partition]


class ClusterDescription(NamedTuple):
    """The brokers and the controller (-1: not reported)."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Node, ...]


class AdminTopics(AdminBase):
    """Topic calls of `AdminCore`."""

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
        """Create a topic, and wait until all responding brokers show a leader for each partition.

        Args:
            name: Name of the topic.
            partitions: Number of partitions; -1: the broker's default.
            replication_factor: Number of replicas; -1: the broker's default.
            configs: Settings of the topic.
            exist_ok: Do nothing if the topic exists.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            TopicAlreadyExistsError: The topic exists. With `outcome_unknown` an earlier attempt of this call, which had
                no response, may have created it.
            InvalidTopicError: The name or a number is invalid.
            AuthorizationError: The principal may not create the topic.
            KafkaTimeoutError: The brokers did not answer or do not show the topic in time.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        topic = ct.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[ct.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        left = deadline_ms - self.cluster.runtime.now_ms()
        unanswered: list[KafkaError] = []
        reply: ct.CreateTopicsResponse = await self.cluster.call(
            Controller(),
            ct.CreateTopicsRequest(topics=[topic], timeout_ms=left),
            (4, 7),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(only(answer.topics).error_code),
            what=f"create topic {name!r}",
            unanswered=unanswered,
        )
        result = only(reply.topics)
        if result.error_code != 0 and not (exist_ok and result.error_code == E.TOPIC_ALREADY_EXISTS):
            raise _refusal(result.error_code, f"create topic {name!r}", result.error_message, unanswered)
        await self._until_led(name, 1 if exist_ok else max(partitions, 1), deadline_ms)

    async def _until_led(self, name: str, total: int, deadline_ms: int) -> None:
        """Wait until all brokers show at least `total` partitions of the topic, each with a leader."""

        async def look(node_id: int) -> str:
            topic = await self._topic_at(node_id, name, deadline_ms)
            if topic is None:
                return "no such topic"
            if len(topic.partitions) < total:
                return f"{len(topic.partitions)} of {total} partitions"
            leaderless = sum(partition.leader_id < 0 for partition in topic.partitions)
            code = topic.error_code or (E.LEADER_NOT_AVAILABLE if leaderless else 0)
            return f"{leaderless} partitions without leader: {describe(code)}" if code else ""

        await self._until_shown(f"leaders of topic {name!r}", look, deadline_ms)
        await self.cluster.refresh_quietly([name], deadline_ms)

    async def _topic_at(self, node_id: int, name: str, deadline_ms: int) -> MetadataResponseTopic | None:
        """Return the topic as this broker shows it, or None. Raises KafkaError, also if it may not be described."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        reply: MetadataResponse = await self._ask_once(
            node_id, request, (LOWEST_METADATA, HIGHEST_METADATA), deadline_ms
        )
        topic = only(reply.topics)
        if topic.error_code == E.TOPIC_AUTHORIZATION_FAILED:
            raise error_for(topic.error_code, f"topic {name!r}")
        return None if topic.error_code == E.UNKNOWN_TOPIC_OR_PARTITION else topic

    async def delete_topic(self, name: str, *, missing_ok: bool = False, api_timeout_ms: int | None = None) -> None:
        """Delete a topic, and wait until no responding broker shows it.

        With Kafka before 2.8, which cannot distinguish the topic from a new one of the same name, the call does not
        wait.

        Args:
            name: Name of the topic.
            missing_ok: Do nothing if the topic does not exist.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            UnknownTopicOrPartitionError: The topic does not exist. With `outcome_unknown` an earlier attempt of this
                call, which had no response, may have deleted it.
            KafkaTimeoutError: The brokers did not answer or still show the topic.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        left = deadline_ms - self.cluster.runtime.now_ms()
        request = dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=name)], topic_names=[name], timeout_ms=left)
        unanswered: list[KafkaError] = []
        reply: dt.DeleteTopicsResponse = await self.cluster.call(
            Controller(),
            request,
            (1, 6),
            deadline_ms=deadline_ms,
            code_of=lambda answer: unless_missing(only(answer.responses).error_code),
            what=f"delete topic {name!r}",
            unanswered=unanswered,
        )
        result = only(reply.responses)
        if result.error_code != 0 and not (missing_ok and result.error_code == E.UNKNOWN_TOPIC_OR_PARTITION):
            raise _refusal(result.error_code, f"delete topic {name!r}", result.error_message, unanswered)
        deleted = result.topic_id
        if result.error_code == 0 and deleted is not None and deleted.int:

            async def look(node_id: int) -> str:
                topic = await self._topic_at(node_id, name, deadline_ms)
                return "the topic" if topic is not None and topic.topic_id == deleted else ""

            await self._until_shown(f"deletion of topic {name!r}", look, deadline_ms)
        self.cluster.topics.pop(name, None)

    async def create_partitions(self, name: str, total: int, *, api_timeout_ms: int | None = None) -> None:
        """Increase the number of partitions, and wait until all responding brokers show a leader for each.

        Args:
            name: Name of the topic.
            total: New total number of partitions.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            InvalidTopicError: The number is not larger than the current one. With `outcome_unknown` an earlier attempt
                of this call, which had no response, may have created the partitions.
            KafkaTimeoutError: The brokers did not answer or do not show the partitions in time.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        left = deadline_ms - self.cluster.runtime.now_ms()
        topic = cp.CreatePartitionsTopic(name=name, count=total, assignments=None)
        unanswered: list[KafkaError] = []
        reply: cp.CreatePartitionsResponse = await self.cluster.call(
            Controller(),
            cp.CreatePartitionsRequest(topics=[topic], timeout_ms=left),
            (0, 3),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(only(answer.results).error_code),
            unanswered=unanswered,
        )
        result = only(reply.results)
        if result.error_code != 0:
            raise _refusal(result.error_code, f"partitions of {name!r}", result.error_message, unanswered)
        await self._until_led(name, total, deadline_ms)

    async def list_topics(self, *, internal: bool = False, api_timeout_ms: int | None = None) -> list[str]:
        """Return the names of all topics that this client may see, sorted; with `internal` also internal topics."""
        deadline_ms = self._deadline(api_timeout_ms)
        reply = await self.cluster.fetch_metadata(None, deadline_ms, create=False)
        return sorted(
            topic.name for topic in reply.topics if topic.name is not None and (internal or not topic.is_internal)
        )

    async def describe_topics(
        self, names: Iterable[str] | None = None, *, api_timeout_ms: int | None = None
    ) -> dict[str, TopicDescription]:
        """Return the existing topics (None: all) by name. Missing topics are left out and are not created.

        Raises:
            KafkaError: A topic cannot be described.
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
        """Return the cluster's id, brokers and controller."""
        await self.cluster.refresh([], self._deadline(api_timeout_ms))
        nodes = tuple(self.cluster.nodes[node] for node in sorted(self.cluster.nodes))
        return ClusterDescription(self.cluster.cluster_id, self.cluster.controller_id, nodes)

    async def partitions_of(self, topics: Iterable[str], *, api_timeout_ms: int | None = None) -> list[TopicPartition]:
        """Return all partitions of the topics, which must exist. Raises KafkaTimeoutError."""
        deadline_ms = self._deadline(api_timeout_ms)
        found: dict[str, list[int]] = defaultdict(list)
        for name in topics:
            found[name] = sorted((await self.cluster.topic(name, deadline_ms)).partitions)
        return [TopicPartition(name, number) for name, numbers in found.items() for number in numbers]

    async def list_offsets(
        self,
        wanted: Mapping[K, offsets.TimestampOrEnd],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        api_timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAt]:
        """Return offsets by partition for a timestamp in ms, or OffsetSpec.EARLIEST, LATEST or MAX_TIMESTAMP.

        LATEST is the high watermark, or with READ_COMMITTED the last stable offset. OffsetAt.offset is -1 if there is
        no record at or after the timestamp.
        """
        asked = {TopicPartition(*partition): timestamp for partition, timestamp in wanted.items()}
        return await offsets.list_offsets(self.cluster, asked, isolation, self._deadline(api_timeout_ms))


def _refusal(code: int, what: str, detail: str | None, unanswered: Sequence[KafkaError]) -> KafkaError:
    """Return the error, with the remark that an earlier attempt without a response may have succeeded."""
    if not unanswered:
        return error_for(code, what, detail)
    doubt = "an earlier attempt of this call was not answered and may have done it"
    error = error_for(code, what, f"{detail}; {doubt}" if detail else doubt)
    error.outcome_unknown = True
    return error
