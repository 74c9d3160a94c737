"""Admin calls for topics, brokers and offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, cast
from uuid import UUID

from fencepost.arguments import Int16OrMinusOne, Int32, Int32OrMinusOne, OrMinusOne
from fencepost.client.admin.base import AdminBase
from fencepost.client.admin.items import ItemAnswer, ManyItems, Outcomes, each_item
from fencepost.client.net import list_offsets as offsets
from fencepost.client.net.cluster import Controller
from fencepost.client.net.links import HIGHEST_METADATA, LOWEST_METADATA
from fencepost.client.net.topology import KnownPartition, Node
from fencepost.client.types import Isolation, K, OffsetAt, TopicPartition
from fencepost.counted import counted_noun
from fencepost.errors import KafkaTimeoutError, UsageError, error_for
from fencepost.protocol.acls import AclOperation, operations_in
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

CREATION_VERSIONS: Final = (4, 7)  # of CreateTopics


class NewTopic(NamedTuple):
    """A topic to create. -1 is the broker's default.

    Attributes:
        name: Name of the topic.
        num_partitions: Number of partitions.
        replication_factor: Number of replicas.
        configs: Settings of the topic.
        replica_assignments: Brokers by partition, instead of the two numbers.
    """

    name: str
    num_partitions: Int32OrMinusOne = -1
    replication_factor: Int16OrMinusOne = -1
    configs: Mapping[str, str] | None = None
    replica_assignments: Mapping[Int32, Sequence[Int32]] | None = None


class CreatedTopic(NamedTuple):
    """A topic that was created or validated. Kafka before 2.8 does not report the id, nor before 2.4 the numbers."""

    topic_id: UUID | None
    num_partitions: OrMinusOne
    replication_factor: OrMinusOne


class TopicDescription(NamedTuple):
    """A topic and its partitions by number.

    `authorized_operations` are those of this principal; None if not asked for, or not reported.
    """

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: dict[int, KnownPartition]
    authorized_operations: frozenset[AclOperation] | None = None


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
        partitions: Int32OrMinusOne = -1,
        replication_factor: Int16OrMinusOne = -1,
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
        topic = NewTopic(name, partitions, replication_factor, configs)
        outcomes = await self._create([topic], self._deadline(api_timeout_ms), exist_ok=exist_ok)
        outcomes.only()

    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        exist_ok: bool = False,
        validate_only: bool = False,
        api_timeout_ms: int | None = None,
    ) -> dict[str, CreatedTopic]:
        """Create many topics in one request, and wait until all responding brokers show their leaders.

        Args:
            topics: The topics; a name alone takes the broker's defaults.
            exist_ok: Do nothing for a topic that exists. It is not in the result.
            validate_only: Only check the topics.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Returns:
            The created topics by name.

        Raises:
            ItemsFailedError: Some topics could not be created; the others exist now.
            KafkaTimeoutError: The brokers did not answer in time.
        """
        wanted = [NewTopic(topic) if isinstance(topic, str) else topic for topic in topics]
        deadline_ms = self._deadline(api_timeout_ms)
        outcomes = await self._create(wanted, deadline_ms, exist_ok=exist_ok, validate_only=validate_only)
        created = outcomes.results("validate topics" if validate_only else "create topics")
        return {name: topic for name, topic in created.items() if topic is not None}

    async def _create(
        self, topics: Sequence[NewTopic], deadline_ms: int, *, exist_ok: bool, validate_only: bool = False
    ) -> Outcomes[str]:
        """Create topics; the result of a topic that exists is None."""
        named = {topic.name: topic for topic in topics}
        if len(named) < len(topics):
            raise UsageError("create topics: a name is given twice")

        def make(names: Sequence[str]) -> ct.CreateTopicsRequest:
            return self._creation([named[name] for name in names], deadline_ms, validate_only=validate_only)

        def read(reply: ct.CreateTopicsResponse) -> dict[str, ItemAnswer]:
            return {topic.name: _created(topic, exist_ok=exist_ok) for topic in reply.topics}

        call = ManyItems(make, CREATION_VERSIONS, read, lambda name: f"create topic {name!r}")
        outcomes = await each_item(self.cluster, Controller(), named, call, deadline_ms)
        if not validate_only:
            totals = {
                name: 1 if exist_ok else max(named[name].num_partitions, len(named[name].replica_assignments or ()), 1)
                for name in outcomes.done
            }
            await self._shown(outcomes, totals, deadline_ms)
        return outcomes

    def _creation(self, topics: Iterable[NewTopic], deadline_ms: int, *, validate_only: bool) -> ct.CreateTopicsRequest:
        """Return a request in one of CREATION_VERSIONS."""
        return ct.CreateTopicsRequest(
            topics=list(map(_creatable, topics)),
            timeout_ms=self.cluster.server_timeout_ms(deadline_ms),
            validate_only=validate_only,
        )

    async def _shown(self, outcomes: Outcomes[str], totals: Mapping[str, int], deadline_ms: int) -> None:
        """Wait until all brokers show the topics. Topics that a broker does not show in time fail with the timeout."""
        if not totals:
            return
        waiting: dict[int, list[str]] = {}
        try:
            await self._until_led(totals, waiting, deadline_ms)
        except KafkaTimeoutError as error:
            for name in {name for names in waiting.values() for name in names} or totals:
                outcomes.done.pop(name, None)
                outcomes.failed[name] = error

    async def _until_led(self, totals: Mapping[str, int], waiting: dict[int, list[str]], deadline_ms: int) -> None:
        """Wait until all brokers show at least this number of partitions of each topic, each with a leader.

        `waiting` has the topics that a broker did not show yet, by broker.
        """

        async def shown_difference(node_id: int) -> str:
            names = waiting.get(node_id, list(totals))
            found = await self._topics_at(node_id, names, deadline_ms)
            differences = {name: _difference(found.get(name), totals[name]) for name in names}
            waiting[node_id] = [name for name, difference in differences.items() if difference]
            return _summary({name: difference for name, difference in differences.items() if difference})

        operation = (
            f"leaders of topic {next(iter(totals))!r}" if len(totals) == 1 else f"leaders of {len(totals)} topics"
        )
        await self._until_shown(operation, shown_difference, deadline_ms)
        await self.cluster.refresh_quietly(list(totals), deadline_ms)

    async def _topics_at(
        self, node_id: int, names: Sequence[str], deadline_ms: int
    ) -> dict[str, MetadataResponseTopic | None]:
        """Return the topics as this broker shows them. Raises KafkaError, also if one may not be described."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        reply: MetadataResponse = await self._ask_once(
            node_id, request, (LOWEST_METADATA, HIGHEST_METADATA), deadline_ms
        )
        for topic in reply.topics:
            if topic.error_code == E.TOPIC_AUTHORIZATION_FAILED:
                raise error_for(topic.error_code, f"topic {topic.name!r}")
        return {
            topic.name: None if topic.error_code == E.UNKNOWN_TOPIC_OR_PARTITION else topic
            for topic in reply.topics
            if topic.name is not None
        }

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
        (await self._delete([name], self._deadline(api_timeout_ms), missing_ok=missing_ok)).only()

    async def delete_topics(
        self, names: Iterable[str], *, missing_ok: bool = False, api_timeout_ms: int | None = None
    ) -> None:
        """Delete many topics in one request, and wait until no responding broker shows them.

        Args:
            names: Names of the topics.
            missing_ok: Do nothing for a topic that does not exist.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            ItemsFailedError: Some topics could not be deleted; the others were.
            KafkaTimeoutError: The brokers did not answer in time.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        (await self._delete(names, deadline_ms, missing_ok=missing_ok)).results("delete topics")

    async def _delete(self, names: Iterable[str], deadline_ms: int, *, missing_ok: bool) -> Outcomes[str]:
        def make(wanted: Sequence[str]) -> dt.DeleteTopicsRequest:
            timeout_ms = self.cluster.server_timeout_ms(deadline_ms)
            states = [dt.DeleteTopicState(name=name) for name in wanted]
            return dt.DeleteTopicsRequest(topics=states, topic_names=list(wanted), timeout_ms=timeout_ms)

        def read(reply: dt.DeleteTopicsResponse) -> dict[str, ItemAnswer]:
            ignored = (E.UNKNOWN_TOPIC_OR_PARTITION,) if missing_ok else ()
            return {
                each.name: ItemAnswer(
                    0 if each.error_code in ignored else each.error_code, each.error_message, each.topic_id
                )
                for each in reply.responses
                if each.name is not None
            }

        final = {E.UNKNOWN_TOPIC_OR_PARTITION}
        call = ManyItems(make, (1, 6), read, lambda name: f"delete topic {name!r}", final)
        outcomes = await each_item(self.cluster, Controller(), names, call, deadline_ms)
        gone = {name: topic_id for name, topic_id in outcomes.done.items() if topic_id is not None and topic_id.int}

        async def shown_difference(node_id: int) -> str:
            found = await self._topics_at(node_id, list(gone), deadline_ms)
            there = {name: topic for name, topic in found.items() if topic is not None and topic.topic_id == gone[name]}
            return "" if not there else "the topic" if len(gone) == 1 else _summary(dict.fromkeys(there, "there"))

        if gone:
            operation = (
                f"deletion of topic {next(iter(gone))!r}" if len(gone) == 1 else f"deletion of {len(gone)} topics"
            )
            await self._until_shown_or_failed(outcomes, operation, shown_difference, deadline_ms)
        for name in outcomes.done:
            self.cluster.topics.pop(name, None)
        return outcomes

    async def create_partitions(
        self,
        name: str | Mapping[str, Int32],
        total: Int32 | None = None,
        *,
        validate_only: bool = False,
        api_timeout_ms: int | None = None,
    ) -> None:
        """Increase the number of partitions, and wait until all responding brokers show a leader for each.

        Args:
            name: Name of the topic, or the new total numbers by topic, which go in one request.
            total: New total number of partitions of the one topic.
            validate_only: Check the numbers, and create nothing.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            InvalidTopicError: The number is not larger than the current one. With `outcome_unknown` an earlier attempt
                of this call, which had no response, may have created the partitions.
            ItemsFailedError: With a mapping: some topics failed; the others were changed.
            KafkaTimeoutError: The brokers did not answer or do not show the partitions in time.
        """
        if isinstance(name, str) != (total is not None):
            raise UsageError("create_partitions takes a topic and its new total, or a dict of totals by topic")
        totals = {name: total} if isinstance(name, str) and total is not None else dict(cast("Mapping[str, int]", name))
        deadline_ms = self._deadline(api_timeout_ms)

        def make(names: Sequence[str]) -> cp.CreatePartitionsRequest:
            timeout_ms = self.cluster.server_timeout_ms(deadline_ms)
            grown = [cp.CreatePartitionsTopic(name=each, count=totals[each], assignments=None) for each in names]
            return cp.CreatePartitionsRequest(topics=grown, timeout_ms=timeout_ms, validate_only=validate_only)

        def read(reply: cp.CreatePartitionsResponse) -> dict[str, ItemAnswer]:
            return {each.name: ItemAnswer(each.error_code, each.error_message) for each in reply.results}

        call = ManyItems(make, (0, 3), read, lambda each: f"partitions of {each!r}")
        outcomes = await each_item(self.cluster, Controller(), totals, call, deadline_ms)
        if not validate_only:
            await self._shown(outcomes, {each: totals[each] for each in outcomes.done}, deadline_ms)
        if isinstance(name, str):
            outcomes.only()
        outcomes.results("create partitions")

    async def list_topics(self, *, internal: bool = False, api_timeout_ms: int | None = None) -> list[str]:
        """Return the names of all topics that this client may see, sorted; with `internal` also internal topics."""
        deadline_ms = self._deadline(api_timeout_ms)
        reply = await self.cluster.fetch_metadata(None, deadline_ms, create=False)
        return sorted(
            topic.name for topic in reply.topics if topic.name is not None and (internal or not topic.is_internal)
        )

    async def describe_topics(
        self,
        names: Iterable[str] | None = None,
        *,
        include_authorized_operations: bool = False,
        api_timeout_ms: int | None = None,
    ) -> dict[str, TopicDescription]:
        """Return the existing topics (None: all) by name. Missing topics are left out and are not created.

        Args:
            names: Names of the topics; None: all.
            include_authorized_operations: Ask for the operations on the topics that this principal may perform.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            KafkaError: A topic cannot be described.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        requested = None if names is None else list(names)
        reply = await self.cluster.fetch_metadata(
            requested, deadline_ms, create=False, rights=include_authorized_operations
        )
        described = {}
        for topic in reply.topics:
            if topic.error_code == E.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            if topic.error_code not in (0, E.LEADER_NOT_AVAILABLE):
                raise error_for(topic.error_code, f"topic {topic.name!r}")
            partitions = dict(sorted(self.cluster.topics[topic.name].partitions.items()))
            rights = operations_in(topic.topic_authorized_operations) if include_authorized_operations else None
            described[topic.name] = TopicDescription(topic.name, topic.topic_id, topic.is_internal, partitions, rights)
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
        """Return offsets by partition for a timestamp in ms, or for an OffsetSpec.

        LATEST is the high watermark, or with READ_COMMITTED the last stable offset. OffsetAt.offset is -1 if there is
        no record at or after the timestamp.

        Raises:
            ItemsFailedError: Some partitions failed, such as those of a leader that does not answer; `results` has the
                offsets of the others.
            KafkaError: All partitions failed.
        """
        requested = {TopicPartition(*partition): timestamp for partition, timestamp in wanted.items()}
        outcomes = await self._offsets(requested, isolation, self._deadline(api_timeout_ms))
        return outcomes.results("ListOffsets")

    async def _offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline_ms: int
    ) -> Outcomes[TopicPartition]:
        return Outcomes(*await offsets.offset_outcomes(self.cluster, wanted, isolation, deadline_ms))


def _creatable(topic: NewTopic) -> ct.CreatableTopic:
    assigned = [
        ct.CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
        for number, brokers in (topic.replica_assignments or {}).items()
    ]
    return ct.CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assigned else topic.num_partitions,
        replication_factor=-1 if assigned else topic.replication_factor,
        assignments=assigned,
        configs=[ct.CreatableTopicConfig(name=key, value=value) for key, value in (topic.configs or {}).items()],
    )


def _created(topic: ct.CreatableTopicResult, *, exist_ok: bool) -> ItemAnswer:
    if exist_ok and topic.error_code == E.TOPIC_ALREADY_EXISTS:
        return ItemAnswer(0)
    topic_id = topic.topic_id if topic.topic_id is not None and topic.topic_id.int else None
    created = CreatedTopic(topic_id, topic.num_partitions, topic.replication_factor)
    return ItemAnswer(topic.error_code, topic.error_message, created)


def _difference(topic: MetadataResponseTopic | None, total: int) -> str:
    """Return what a shown topic lacks: partitions up to this number, or leaders; "" if nothing."""
    if topic is None:
        return "no such topic"
    if len(topic.partitions) < total:
        return f"{len(topic.partitions)} of {counted_noun(total, 'partition')}"
    leaderless = sum(partition.leader_id < 0 for partition in topic.partitions)
    code = topic.error_code or (E.LEADER_NOT_AVAILABLE if leaderless else 0)
    return f"{counted_noun(leaderless, 'partition')} without leader: {describe(code)}" if code else ""


def _summary(differences: Mapping[str, str]) -> str:
    """Return the differences of many topics as text: their number and the first of them."""
    if not differences:
        return ""
    name, difference = next(iter(differences.items()))
    return (
        difference
        if len(differences) == 1
        else f"{name!r}: {difference}, and {counted_noun(len(differences) - 1, 'other topic')}"
    )
