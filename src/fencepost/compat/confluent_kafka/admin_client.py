"""AdminClient with the interface of confluent-kafka, over Fencepost's Admin. Its calls return futures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Any, Final

from fencepost.arguments import brief_repr
from fencepost.client.admin.configs import ConfigChange, ConfigOperation
from fencepost.client.admin.configs import ConfigResource as OurResource
from fencepost.client.admin.elections import ElectionType as OurElection
from fencepost.client.admin.topics import NewTopic as OurTopic
from fencepost.client.net.cluster import Coordinator, CoordinatorKind
from fencepost.client.types import Isolation
from fencepost.compat.confluent_kafka import admin_results as results
from fencepost.compat.confluent_kafka.admin_futures import Futures, filled, limit_of
from fencepost.compat.confluent_kafka.admin_kinds import (
    ConsumerGroupState,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
    ResourceType,
)
from fencepost.compat.confluent_kafka.admin_security import SecurityCalls
from fencepost.compat.confluent_kafka.admin_values import (
    ConfigResource,
    ConsumerGroupTopicPartitions,
    ListConsumerGroupsResult,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicCollection,
)
from fencepost.compat.confluent_kafka.base.error_codes import NUMBERS
from fencepost.compat.confluent_kafka.base.errors import KafkaError, error_of
from fencepost.compat.confluent_kafka.base.values import (
    TopicPartition,
    checked_partitions,
    committed_partition,
    position_to_commit,
    topic_partition_of,
)
from fencepost.compat.confluent_kafka.clients import refusal
from fencepost.errors import ConfigurationError, ItemsFailedError, UnknownTopicOrPartitionError
from fencepost.errors import KafkaError as OurError

# The numbers of resource types in DescribeConfigs, which are not those of ACLs.
_CONFIG_TYPES: Final = {ResourceType.TOPIC: 2, ResourceType.BROKER: 4, ResourceType.GROUP: 32}


class AdminClient(SecurityCalls):
    """An admin client. Each future has the result of an item, or raises its KafkaException.

    `request_timeout` is the time limit of a call in seconds, by default default_api_timeout_ms. `operation_timeout` has
    no effect: a call waits within `request_timeout` until the brokers show its result.
    """

    # --- topics ---

    def create_topics(
        self,
        new_topics: list[NewTopic],
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> Futures[str]:
        """Create topics. Each future has None."""
        client, topics = self._open(), filled("new_topics", new_topics, NewTopic)
        wanted = [_new_topic(each) for each in topics]
        limit_ms = limit_of(request_timeout)
        return self._each(
            {each.name: each.name for each in wanted},
            lambda: client.create_topics(wanted, validate_only=validate_only, api_timeout_ms=limit_ms),
        )

    def delete_topics(
        self, topics: list[str], *, operation_timeout: float | None = None, request_timeout: float | None = None
    ) -> Futures[str]:
        """Delete topics. Each future has None."""
        client, names = self._open(), filled("topics", topics, str)
        limit_ms = limit_of(request_timeout)
        return self._each({name: name for name in names}, lambda: client.delete_topics(names, api_timeout_ms=limit_ms))

    def create_partitions(
        self,
        new_partitions: list[NewPartitions],
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> Futures[str]:
        """Add partitions to topics. Each future has None."""
        client, wanted = self._open(), filled("new_partitions", new_partitions, NewPartitions)
        if any(each.replica_assignment for each in wanted):
            raise refusal("NewPartitions.replica_assignment", "call fencepost.Admin.alter_partition_reassignments")
        totals = {each.topic: each.new_total_count for each in wanted}
        limit_ms = limit_of(request_timeout)
        return self._each(
            {name: name for name in totals},
            lambda: client.create_partitions(totals, validate_only=validate_only, api_timeout_ms=limit_ms),
        )

    def describe_topics(
        self,
        topics: TopicCollection,
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> Futures[str]:
        """Describe topics. Each future has a TopicDescription."""
        client = self._open()
        if not isinstance(topics, TopicCollection):
            raise TypeError("Expected input to be instance of TopicCollection")
        if not isinstance(include_authorized_operations, bool):
            raise TypeError("include_authorized_operations must be a bool")
        names = filled("topic_names", topics.topic_names, str) if topics.topic_names != [] else []
        limit_ms = limit_of(request_timeout)

        def call() -> dict[str, Any]:
            rights = include_authorized_operations
            found = client.describe_topics(names, include_authorized_operations=rights, api_timeout_ms=limit_ms)
            return {name: (found.get(name), client._core.cluster.nodes) for name in names}

        return self._each({name: name for name in names}, call, results.topic)

    def describe_cluster(
        self, *, include_authorized_operations: bool = False, request_timeout: float | None = None
    ) -> Future[Any]:
        """Describe the cluster. The future has a DescribeClusterResult."""
        client, limit_ms = self._open(), limit_of(request_timeout)

        def call() -> Any:
            found = client.describe_cluster(api_timeout_ms=limit_ms)
            rights = client.authorized_operations(api_timeout_ms=limit_ms) if include_authorized_operations else None
            return results.cluster(found, rights)

        return self._future(call)

    def delete_records(
        self,
        topic_partition_offsets: list[TopicPartition],
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> Futures[TopicPartition]:
        """Delete the records before the offsets; OFFSET_END deletes all. Each future has DeletedRecords."""
        client, wanted = self._open(), checked_partitions(topic_partition_offsets)
        before = {topic_partition_of(each): each.offset for each in wanted}
        limit_ms = limit_of(request_timeout)
        return self._each(
            {each: topic_partition_of(each) for each in wanted},
            lambda: client.delete_records(before, api_timeout_ms=limit_ms),
            results.deleted,
        )

    def list_offsets(
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float | None = None,
    ) -> Futures[TopicPartition]:
        """Find offsets by OffsetSpec. Each future has a ListOffsetsResultInfo."""
        client = self._open()
        if not isinstance(isolation_level, IsolationLevel):
            raise TypeError("isolation_level must be an IsolationLevel")
        wanted = {topic_partition_of(each): spec.value for each, spec in topic_partition_offsets.items()}
        isolation, limit_ms = Isolation(isolation_level.value), limit_of(request_timeout)
        return self._each(
            {each: topic_partition_of(each) for each in topic_partition_offsets},
            lambda: client.list_offsets(wanted, isolation=isolation, api_timeout_ms=limit_ms),
            results.offset,
        )

    # --- settings ---

    def describe_configs(
        self, resources: list[ConfigResource], *, request_timeout: float | None = None
    ) -> Futures[ConfigResource]:
        """Read settings. Each future has a dict of ConfigEntry by name."""
        client, wanted = self._open(), _resources(resources)
        limit_ms = limit_of(request_timeout)
        own_resources = list(wanted.values())
        return self._each(
            wanted, lambda: client.config_entries_of(own_resources, api_timeout_ms=limit_ms), results.config_entries
        )

    def incremental_alter_configs(
        self,
        resources: list[ConfigResource],
        *,
        request_timeout: float | None = None,
        validate_only: bool = False,
        broker: int | None = None,
    ) -> Futures[ConfigResource]:
        """Apply the changes in the resources' `incremental_configs`. Each future has None."""
        client, wanted = self._open(), _resources(resources)
        if broker is not None:
            raise refusal("argument broker", "a broker's resource goes to this broker")
        changes = {own: _changes(resource) for resource, own in wanted.items()}
        limit_ms = limit_of(request_timeout)
        return self._each(
            wanted,
            lambda: client.incremental_alter_configs(changes, validate_only=validate_only, api_timeout_ms=limit_ms),
        )

    def alter_configs(self, resources: list[ConfigResource], **kwargs: Any) -> Futures[ConfigResource]:
        """Refuse: it resets all settings that are left out. Use incremental_alter_configs()."""
        self._open()
        raise refusal("AdminClient.alter_configs", "call incremental_alter_configs(), which resets nothing else")

    # --- groups ---

    def list_consumer_groups(
        self,
        *,
        request_timeout: float | None = None,
        states: Iterable[ConsumerGroupState] | None = None,
        types: Iterable[ConsumerGroupType] | None = None,
    ) -> Future[Any]:
        """List groups. The future has a ListConsumerGroupsResult, with the errors of brokers that do not answer."""
        client, limit_ms = self._open(), limit_of(request_timeout)
        for each in (*(states or ()), *(types or ())):
            if not isinstance(each, (ConsumerGroupState, ConsumerGroupType)):
                raise TypeError(f"states and types have members of their enumerations, not {brief_repr(each)}")
        wanted_states = [results.STATE_NAMES[state] for state in states or ()]
        wanted_types = [kind.name.lower() for kind in types or ()]

        def call() -> ListConsumerGroupsResult:
            try:
                return results.listed(
                    client.list_groups(states=wanted_states, types=wanted_types, api_timeout_ms=limit_ms)
                )
            except ItemsFailedError as error:
                return results.listed(sorted(chain.from_iterable(error.results.values())), error.errors.values())

        return self._future(call)

    def describe_consumer_groups(
        self,
        group_ids: list[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> Futures[str]:
        """Describe groups. Each future has a ConsumerGroupDescription."""
        client, names = self._open(), filled("group_ids", group_ids, str)
        rights, limit_ms = include_authorized_operations, limit_of(request_timeout)
        cluster = client._core.cluster

        def coordinator(name: str) -> Any:
            return cluster.nodes.get(cluster.known_coordinator(Coordinator(CoordinatorKind.GROUP, name)))

        return self._each(
            {name: name for name in names},
            lambda: client.describe_groups(names, include_authorized_operations=rights, api_timeout_ms=limit_ms),
            lambda found: results.group(found, coordinator(found.group_id)),
        )

    def delete_consumer_groups(self, group_ids: list[str], *, request_timeout: float | None = None) -> Futures[str]:
        """Delete groups. Each future has None."""
        client, names = self._open(), filled("group_ids", group_ids, str)
        limit_ms = limit_of(request_timeout)
        return self._each({name: name for name in names}, lambda: client.delete_groups(names, api_timeout_ms=limit_ms))

    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        require_stable: bool = False,
        request_timeout: float | None = None,
    ) -> Futures[str]:
        """Read committed offsets of a group. The future has ConsumerGroupTopicPartitions."""
        client, group = self._open(), _only_group(list_consumer_group_offsets_request)
        limit_ms = limit_of(request_timeout)
        partitions = (
            None if group.topic_partitions is None else [topic_partition_of(each) for each in group.topic_partitions]
        )

        def call() -> dict[str, Any]:
            found = client.group_offsets(
                group.group_id, partitions, require_stable=require_stable, api_timeout_ms=limit_ms
            )
            listed = [
                committed_partition(partition, found.get(partition)) for partition in (partitions or sorted(found))
            ]
            return {group.group_id: ConsumerGroupTopicPartitions(group.group_id, listed)}

        return self._each({group.group_id: group.group_id}, call, lambda result: result)

    def alter_consumer_group_offsets(
        self,
        alter_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = None,
    ) -> Futures[str]:
        """Set committed offsets of a group without members.

        The future has ConsumerGroupTopicPartitions, with the error of each partition that failed. If the group has
        members, the future raises. confluent-kafka sets the error of each partition instead.
        """
        client, group = self._open(), _only_group(alter_consumer_group_offsets_request)
        limit_ms = limit_of(request_timeout)
        offsets = {topic_partition_of(each): position_to_commit(each) for each in group.topic_partitions or ()}

        def call() -> dict[str, Any]:
            errors: Mapping[Any, OurError] = {}
            try:
                client.alter_group_offsets(group.group_id, offsets, api_timeout_ms=limit_ms)
            except ItemsFailedError as failed:
                errors = failed.errors
            except UnknownTopicOrPartitionError as unknown:
                errors = dict.fromkeys(offsets, unknown)
            done = [
                committed_partition(partition, at).with_error(
                    error_of(errors[partition]) if partition in errors else None
                )
                for partition, at in offsets.items()
            ]
            return {group.group_id: ConsumerGroupTopicPartitions(group.group_id, done)}

        return self._each({group.group_id: group.group_id}, call, lambda result: result)

    # --- leaders ---

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: list[TopicPartition] | None = None,
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> Future[Any]:
        """Elect leaders of partitions; None: all. The future has a dict of KafkaError or None by partition."""
        client, limit_ms = self._open(), limit_of(request_timeout)
        if not isinstance(election_type, ElectionType):
            raise TypeError("Expected 'election_type' to be of type 'ElectionType'")
        if not isinstance(partitions, (list, type(None))):
            raise TypeError("Expected 'partitions' to be a list")
        topic_partitions = (
            None if partitions is None else [topic_partition_of(each) for each in checked_partitions(partitions)]
        )
        if any(number < 0 for _, number in topic_partitions or ()):
            raise ValueError("Elements of the 'partitions' list must not have negative value for 'partition' field")
        kind = OurElection(election_type.value)

        def call() -> dict[TopicPartition, KafkaError | None]:
            if topic_partitions is not None and len(set(topic_partitions)) != len(topic_partitions):
                raise ConfigurationError("elect_leaders: a partition is named twice")
            try:
                done, errors = client.elect_leaders(topic_partitions, kind, api_timeout_ms=limit_ms), {}
            except ItemsFailedError as error:
                done, errors = error.results, error.errors
            not_needed = KafkaError(NUMBERS["ELECTION_NOT_NEEDED"])
            outcomes = {partition: None if is_new else not_needed for partition, is_new in done.items()}
            outcomes |= {partition: error_of(error) for partition, error in errors.items()}
            return {TopicPartition(*partition): outcome for partition, outcome in outcomes.items()}

        return self._future(call)

    # --- refused ---

    def list_groups(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: use list_consumer_groups() and describe_consumer_groups()."""
        self._open()
        raise refusal("AdminClient.list_groups", "call list_consumer_groups() and describe_consumer_groups()")


def _new_topic(topic: NewTopic) -> OurTopic:
    assigned = None if topic.replica_assignment is None else dict(enumerate(topic.replica_assignment))
    return OurTopic(topic.topic, topic.num_partitions, topic.replication_factor, topic.config, assigned)


def _resources(resources: list[ConfigResource]) -> dict[ConfigResource, OurResource]:
    found = {}
    for each in filled("resources", resources, ConfigResource):
        if each.restype not in _CONFIG_TYPES:
            raise ValueError(f"{each!r}: a topic, broker or group has settings")
        found[each] = OurResource(each.name, _CONFIG_TYPES[each.restype])
    return found


def _changes(resource: ConfigResource) -> Sequence[ConfigChange]:
    found = []
    for entry in resource.incremental_configs:
        if entry.incremental_operation is None:
            raise ValueError(f"{resource!r}: setting {entry.name!r} has no incremental_operation")
        found.append(ConfigChange(entry.name, entry.value, ConfigOperation(entry.incremental_operation.value)))
    return found


def _only_group(requests: list[ConsumerGroupTopicPartitions]) -> ConsumerGroupTopicPartitions:
    found = filled("request", requests, ConsumerGroupTopicPartitions)
    if len(found) != 1:
        raise ValueError("Currently only one group per request is supported")
    return found[0]
