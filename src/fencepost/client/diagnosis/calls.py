"""The Admin calls that a diagnosis needs. They create nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fencepost.client.admin.acls import AclOperation
from fencepost.client.admin.configs import BROKER_RESOURCE, AdminConfigs, ConfigResource
from fencepost.client.admin.group_descriptions import AdminGroupDescriptions
from fencepost.client.admin.groups import AdminGroups
from fencepost.client.admin.items import Outcomes
from fencepost.client.admin.logs import AdminLogs
from fencepost.client.admin.placement import CONTROLLER_LANE, AdminPlacement
from fencepost.client.admin.share_offsets import AdminShareOffsets
from fencepost.client.admin.topics import CREATION_VERSIONS, NewTopic
from fencepost.client.admin.transactions import FENCING_BY_GROUP, AdminTransactions
from fencepost.client.diagnosis.coordinator_topics import StateTopic, UncreatedTopic
from fencepost.client.diagnosis.visibility import VisibilityCalls
from fencepost.client.net.cluster import AnyNode
from fencepost.client.net.links import HIGHEST_METADATA, LOWEST_METADATA
from fencepost.client.types import Isolation, TopicPartition
from fencepost.errors import AuthorizationError, KafkaError, UnsupportedVersionError, error_for
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.codes import describe
from fencepost.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from fencepost.protocol.messages.list_transactions import ListTransactionsRequest
from fencepost.protocol.messages.metadata import MetadataRequest

__all__ = ["DiagnosisCalls"]

PING_LANE: Final = "ping"
FETCH_OF_3_9: Final = {1: 17}  # API key and version
MOST_TOPICS: Final = 500  # maximum number in one DescribeConfigs request


class DiagnosisCalls(
    VisibilityCalls,
    AdminConfigs,
    AdminLogs,
    AdminGroups,
    AdminGroupDescriptions,
    AdminShareOffsets,
    AdminPlacement,
    AdminTransactions,
):
    """Calls for the facts of a diagnosis."""

    async def ping(self, api_timeout_ms: int) -> None:
        """Request metadata of no topic from any broker. Raises KafkaError if none answers.

        The request has a connection of its own, because it would wait behind a request that a broker does not answer.
        """
        await self.cluster.call(
            AnyNode(),
            MetadataRequest(topics=[], allow_auto_topic_creation=False),
            (LOWEST_METADATA, HIGHEST_METADATA),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda _: 0,
            lane=PING_LANE,
        )

    def throttled_since(self, since_ms: int) -> dict[int, int]:
        """Return the throttle time in ms by broker, of those whose quota held this client back after `since_ms`."""
        found = self.cluster.links.throttled_since(since_ms)
        nodes = self.cluster.nodes.values()
        return {node.id: found[node.host, node.port] for node in nodes if (node.host, node.port) in found}

    async def ping_node(self, node: int, api_timeout_ms: int) -> None:
        """Request metadata of no topic from one broker, on a connection like that of `ping`.

        Raises KafkaError.
        """
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        versions = (LOWEST_METADATA, HIGHEST_METADATA)
        await self._ask_once(node, request, versions, self._deadline(api_timeout_ms), PING_LANE)

    async def groups_by_broker(self, away: Mapping[int, KafkaError], api_timeout_ms: int) -> Outcomes[int]:
        """Return the groups of the brokers that answer, by broker id. Raises KafkaError if none does."""
        return await self._groups_by_broker(self._deadline(api_timeout_ms), away=away)

    async def transactions_by_broker(self, away: Mapping[int, KafkaError], api_timeout_ms: int) -> Outcomes[int]:
        """Return the transactional ids of the brokers that answer, by broker id. Raises KafkaError if none does."""
        return await self._transactions_by_broker(self._deadline(api_timeout_ms), ListTransactionsRequest(), away)

    async def offsets_at(
        self,
        timestamp: int,
        partitions: Iterable[TopicPartition],
        api_timeout_ms: int,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Outcomes[TopicPartition]:
        """Return the offsets of the partitions whose leaders answer. Raises KafkaError if none does.

        `timestamp` in ms, or an OffsetSpec.
        """
        return await self._offsets(dict.fromkeys(partitions, timestamp), isolation, self._deadline(api_timeout_ms))

    async def brokers_in_cluster(self, api_timeout_ms: int) -> int:
        """Return the number of brokers, with those that have stopped: the controller places replicas on these, too.

        Brokers before Kafka 4.0 count only those that run. Raises KafkaError.
        """
        try:
            reply: DescribeClusterResponse = await self.cluster.call(
                AnyNode(),
                DescribeClusterRequest(include_fenced_brokers=True),
                (2, 2),
                deadline_ms=self._deadline(api_timeout_ms),
                code_of=lambda answer: int(answer.error_code),
            )
        except UnsupportedVersionError:
            return len((await self.describe_cluster(api_timeout_ms=api_timeout_ms)).brokers)
        if reply.error_code != 0:
            raise error_for(reply.error_code, "DescribeCluster", reply.error_message)
        return len(reply.brokers)

    async def uncreated(self, topic: StateTopic, nodes: Sequence[int], api_timeout_ms: int) -> UncreatedTopic | None:
        """Return how brokers would create a coordinator's topic. Raises KafkaError.

        The first broker that needs a coordinator has the topic created with its own settings, whether or not
        auto.create.topics.enable is on.

        Returns:
            None if the topic exists or is hidden from this principal, or if the brokers have no such coordinators or
            settings.
        """
        if topic.feature and not (await self.features(api_timeout_ms=api_timeout_ms)).get(topic.feature):
            return None
        try:
            if topic.name in await self.describe_topics([topic.name], api_timeout_ms=api_timeout_ms):
                return None
        except AuthorizationError:
            return None
        resources = {ConfigResource(str(node), BROKER_RESOURCE): topic.settings for node in nodes}
        found = await self._entries_of(resources, self._deadline(api_timeout_ms), documentation=False)
        if not found.done:
            found.results("DescribeConfigs of the brokers")
        of_brokers = [
            values
            for entries in found.done.values()
            if (values := {name: entry.value for name, entry in entries.items() if entry.value is not None})
            if set(topic.settings) <= set(values)
        ]
        if not of_brokers:
            return None
        values = min(of_brokers, key=lambda each: (int(each[topic.replicas]), int(each[topic.in_sync])))
        replicas, in_sync = int(values[topic.replicas]), int(values[topic.in_sync])
        if in_sync > replicas and await self.limits_in_sync(nodes, api_timeout_ms):
            in_sync = replicas
        refusal = await self._refusal(topic.created(values), nodes, api_timeout_ms)
        return UncreatedTopic(replicas, in_sync, await self.brokers_in_cluster(api_timeout_ms), refusal)

    async def _refusal(self, topic: NewTopic, nodes: Sequence[int], api_timeout_ms: int) -> str | None:
        """Return the controller's reason for refusing to create a topic, as in UncreatedTopic. Raises KafkaError.

        The request only checks the topic, and creates nothing. Brokers before Kafka 2.8, which do not report rights,
        create internal topics without asking the policy that the check would ask.
        """
        try:
            operations = await self.authorized_operations(api_timeout_ms=api_timeout_ms)
        except UnsupportedVersionError:
            return None
        if operations is None or AclOperation.CREATE not in operations:
            return None
        deadline_ms = self._deadline(api_timeout_ms)
        request = self._creation([topic], deadline_ms, validate_only=True)
        # Any broker with KRaft asks the controller. With ZooKeeper only the controller itself answers the question.
        for node in nodes:
            (answer,) = (await self._ask_once(node, request, CREATION_VERSIONS, deadline_ms, CONTROLLER_LANE)).topics
            if answer.error_code in (0, E.TOPIC_ALREADY_EXISTS):
                return ""
            if answer.error_code in (E.POLICY_VIOLATION, E.INVALID_REPLICATION_FACTOR):
                return f"{describe(answer.error_code)}: {answer.error_message}"
            if answer.error_code in (E.TOPIC_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED):
                return None
            if answer.error_code != E.NOT_CONTROLLER:
                raise error_for(answer.error_code, f"check of topic {topic.name!r}", answer.error_message)
        return None

    async def these_fence_by_group(self, nodes: Sequence[int], api_timeout_ms: int) -> bool:
        """Return true if these brokers fence transactional offsets by group (KIP-447). Raises KafkaError."""
        return await self._offered_by(nodes, FENCING_BY_GROUP, self._deadline(api_timeout_ms))

    async def limits_in_sync(self, nodes: Sequence[int], api_timeout_ms: int) -> bool:
        """Return true if no partition of these brokers needs more in-sync replicas than it has replicas.

        Kafka 3.9.1 and later accept writes with acks=all to one replica also with min.insync.replicas=2. Kafka 3.6.2
        and earlier reject them. The version of Fetch tells the releases apart. Raises KafkaError.
        """
        return await self._offered_by(nodes, FETCH_OF_3_9, self._deadline(api_timeout_ms))

    async def least_in_sync(
        self, topics: Sequence[str], api_timeout_ms: int
    ) -> tuple[dict[str, int], AuthorizationError | None]:
        """Return min.insync.replicas by topic, and the first refusal. Raises KafkaError."""
        deadline_ms, found = self._deadline(api_timeout_ms), {}
        refusal: AuthorizationError | None = None
        for begin in range(0, len(topics), MOST_TOPICS):
            resources = {ConfigResource(name): ["min.insync.replicas"] for name in topics[begin : begin + MOST_TOPICS]}
            outcomes = await self._entries_of(resources, deadline_ms, documentation=False)
            for resource, entries in outcomes.done.items():
                for entry in entries.values():
                    if entry.value is not None:
                        found[resource.name] = int(entry.value)
            refused = (error for error in outcomes.failed.values() if isinstance(error, AuthorizationError))
            refusal = refusal or next(refused, None)
        return found, refusal
