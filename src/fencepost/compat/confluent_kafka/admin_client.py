"""AdminClient with the interface of confluent-kafka, over Fencepost's Admin. Its calls return futures."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, Final, TypeVar

from fencepost.client.admin.configs import ConfigChange, ConfigOperation
from fencepost.client.admin.configs import ConfigResource as OurResource
from fencepost.client.admin.topics import NewTopic as OurTopic
from fencepost.client.blocking.admin import Admin
from fencepost.client.net.cluster import Coordinator, CoordinatorKind
from fencepost.client.types import Isolation
from fencepost.compat.confluent_kafka import admin_results as results
from fencepost.compat.confluent_kafka.admin_kinds import (
    ConsumerGroupState,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
    ResourceType,
)
from fencepost.compat.confluent_kafka.admin_values import (
    ConfigResource,
    ConsumerGroupTopicPartitions,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicCollection,
)
from fencepost.compat.confluent_kafka.clients import Events, MetadataClient, refusal
from fencepost.compat.confluent_kafka.errors import KafkaException, calling, error_of
from fencepost.compat.confluent_kafka.settings import given, milliseconds
from fencepost.compat.confluent_kafka.values import (
    TopicPartition,
    checked_partitions,
    committed_partition,
    place_of,
    position_to_commit,
)
from fencepost.config import AdminConfig
from fencepost.errors import ItemsFailedError
from fencepost.errors import KafkaError as OurError

K = TypeVar("K", bound=Hashable)

_CLOSED: Final = "AdminClient has been closed"
_THREADS: Final = 4
_LOOK_S: Final = 0.1  # poll() looks for errors and statistics at this interval
# The numbers of resource types in DescribeConfigs, which are not those of ACLs.
_CONFIG_TYPES: Final = {ResourceType.TOPIC: 2, ResourceType.BROKER: 4, ResourceType.GROUP: 32}

Futures = dict[K, "Future[Any]"]


class AdminClient(MetadataClient):
    """An admin client. Each future has the result of an item, or raises its KafkaException.

    `request_timeout` is the time limit of a call in seconds, by default default_api_timeout_ms. `operation_timeout` has
    no effect: a call waits within `request_timeout` until the brokers show its result.
    """

    _closed_text: ClassVar[str] = _CLOSED

    def __init__(self, conf: Mapping[str, Any], **kwargs: Any) -> None:
        """Create a client from a dict of settings with librdkafka's names."""
        self._given = given(AdminConfig, (conf,), kwargs)
        self._events = Events(self._given, "producer")  # as librdkafka calls it
        with calling(_CLOSED):
            self._client = Admin(**self._given.config)
        self._events.begin(self._client)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="fencepost-admin")

    def __len__(self) -> int:
        return 0

    def _end(self) -> None:
        if not self._ended():
            self._threads.shutdown()
            self._client.close()

    def __del__(self) -> None:
        if "_threads" in self.__dict__:
            self._threads.shutdown(wait=False)
        super().__del__()

    def poll(self, timeout: float = -1) -> int:
        """Call error_cb and stats_cb during `timeout` seconds. Returns 0, because futures need no poll."""
        self._open()
        until_s = time.monotonic() + max(timeout, 0)
        self._events.tell()
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _LOOK_S))
            self._events.tell()
        return 0

    # --- futures ---

    def _each(
        self,
        items: Mapping[K, Any],
        call: Callable[[], Mapping[Any, Any] | None],
        read: Callable[[Any], Any] = lambda _: None,
    ) -> Futures[K]:
        """Return a future for each item.

        Args:
            items: The key of each item in the results of `call`, by its key in the answer.
            call: The call, which returns results by key, or raises ItemsFailedError.
            read: Converts a result of the call to the result of confluent-kafka.
        """
        futures: Futures[K] = {item: Future() for item in items}
        for future in futures.values():
            future.set_running_or_notify_cancel()

        def run() -> None:
            errors: Mapping[Any, OurError] = {}
            found: Mapping[Any, Any] = {}
            try:
                found = call() or {}
            except ItemsFailedError as error:
                found, errors = error.results, error.errors
            except Exception as error:  # noqa: BLE001 (each future raises it)
                for future in futures.values():
                    future.set_exception(_exception(error))
                return
            for item, key in items.items():
                _settle(futures[item], errors.get(key), lambda key=key: read(found.get(key)))  # type: ignore[misc]

        self._threads.submit(run)
        return futures

    def _one(self, call: Callable[[], Any]) -> Future[Any]:
        """Return a future for the result of a call."""
        self._open()
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self._threads.submit(_settle, future, None, call)
        return future

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
        client, topics = self._open(), _filled("new_topics", new_topics, NewTopic)
        wanted = [_new_topic(each) for each in topics]
        limit_ms = _limit_ms(request_timeout)
        return self._each(
            {each.name: each.name for each in wanted},
            lambda: client.create_topics(wanted, validate_only=validate_only, api_timeout_ms=limit_ms),
        )

    def delete_topics(
        self, topics: list[str], *, operation_timeout: float | None = None, request_timeout: float | None = None
    ) -> Futures[str]:
        """Delete topics. Each future has None."""
        client, names = self._open(), _filled("topics", topics, str)
        limit_ms = _limit_ms(request_timeout)
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
        client, wanted = self._open(), _filled("new_partitions", new_partitions, NewPartitions)
        if any(each.replica_assignment for each in wanted):
            raise refusal("NewPartitions.replica_assignment", "call fencepost.Admin.alter_partition_reassignments")
        totals = {each.topic: each.new_total_count for each in wanted}
        limit_ms = _limit_ms(request_timeout)
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
        names = _filled("topic_names", topics.topic_names, str) if topics.topic_names != [] else []
        limit_ms = _limit_ms(request_timeout)

        def call() -> dict[str, Any]:
            rights = include_authorized_operations
            found = client.describe_topics(names, include_authorized_operations=rights, api_timeout_ms=limit_ms)
            return {name: (found.get(name), client._core.cluster.nodes) for name in names}

        return self._each({name: name for name in names}, call, results.topic)

    def describe_cluster(
        self, *, include_authorized_operations: bool = False, request_timeout: float | None = None
    ) -> Future[Any]:
        """Describe the cluster. The future has a DescribeClusterResult."""
        client, limit_ms = self._open(), _limit_ms(request_timeout)

        def call() -> Any:
            found = client.describe_cluster(api_timeout_ms=limit_ms)
            rights = client.authorized_operations(api_timeout_ms=limit_ms) if include_authorized_operations else None
            return results.cluster(found, rights)

        return self._one(call)

    def delete_records(
        self,
        topic_partition_offsets: list[TopicPartition],
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> Futures[TopicPartition]:
        """Delete the records before the offsets; OFFSET_END deletes all. Each future has DeletedRecords."""
        client, wanted = self._open(), checked_partitions(topic_partition_offsets)
        before = {place_of(each): each.offset for each in wanted}
        limit_ms = _limit_ms(request_timeout)
        return self._each(
            {each: place_of(each) for each in wanted},
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
        wanted = {place_of(each): spec.value for each, spec in topic_partition_offsets.items()}
        isolation, limit_ms = Isolation(isolation_level.value), _limit_ms(request_timeout)
        return self._each(
            {each: place_of(each) for each in topic_partition_offsets},
            lambda: client.list_offsets(wanted, isolation=isolation, api_timeout_ms=limit_ms),
            results.offset,
        )

    # --- settings ---

    def describe_configs(
        self, resources: list[ConfigResource], *, request_timeout: float | None = None
    ) -> Futures[ConfigResource]:
        """Read settings. Each future has a dict of ConfigEntry by name."""
        client, wanted = self._open(), _resources(resources)
        limit_ms = _limit_ms(request_timeout)
        asked = list(wanted.values())
        return self._each(
            wanted, lambda: client.config_entries_of(asked, api_timeout_ms=limit_ms), results.config_entries
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
        limit_ms = _limit_ms(request_timeout)
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
        """List groups. The future has a ListConsumerGroupsResult."""
        client, limit_ms = self._open(), _limit_ms(request_timeout)
        for each in (*(states or ()), *(types or ())):
            if not isinstance(each, (ConsumerGroupState, ConsumerGroupType)):
                raise TypeError(f"states and types have members of their enumerations, not {each!r:.80}")
        wanted_states = [results.STATE_NAMES[state] for state in states or ()]
        wanted_types = [kind.name.lower() for kind in types or ()]
        return self._one(
            lambda: results.listed(
                client.list_groups(states=wanted_states, types=wanted_types, api_timeout_ms=limit_ms)
            )
        )

    def describe_consumer_groups(
        self,
        group_ids: list[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> Futures[str]:
        """Describe groups. Each future has a ConsumerGroupDescription."""
        client, names = self._open(), _filled("group_ids", group_ids, str)
        rights, limit_ms = include_authorized_operations, _limit_ms(request_timeout)
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
        client, names = self._open(), _filled("group_ids", group_ids, str)
        limit_ms = _limit_ms(request_timeout)
        return self._each({name: name for name in names}, lambda: client.delete_groups(names, api_timeout_ms=limit_ms))

    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        require_stable: bool = False,
        request_timeout: float | None = None,
    ) -> Futures[str]:
        """Read committed offsets of a group. The future has ConsumerGroupTopicPartitions."""
        client, asked = self._open(), _only_group(list_consumer_group_offsets_request)
        limit_ms = _limit_ms(request_timeout)
        places = None if asked.topic_partitions is None else [place_of(each) for each in asked.topic_partitions]

        def call() -> dict[str, Any]:
            found = client.group_offsets(asked.group_id, places, require_stable=require_stable, api_timeout_ms=limit_ms)
            listed = [committed_partition(place, found.get(place)) for place in (places or sorted(found))]
            return {asked.group_id: ConsumerGroupTopicPartitions(asked.group_id, listed)}

        return self._each({asked.group_id: asked.group_id}, call, lambda result: result)

    def alter_consumer_group_offsets(
        self,
        alter_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = None,
    ) -> Futures[str]:
        """Set committed offsets of a group without members. The future has ConsumerGroupTopicPartitions.

        If the group has members, the future raises. confluent-kafka sets the error of each partition instead.
        """
        client, asked = self._open(), _only_group(alter_consumer_group_offsets_request)
        limit_ms = _limit_ms(request_timeout)
        wanted = {place_of(each): position_to_commit(each) for each in asked.topic_partitions or ()}

        def call() -> dict[str, Any]:
            client.alter_group_offsets(asked.group_id, wanted, api_timeout_ms=limit_ms)
            done = [committed_partition(place, at) for place, at in wanted.items()]
            return {asked.group_id: ConsumerGroupTopicPartitions(asked.group_id, done)}

        return self._each({asked.group_id: asked.group_id}, call, lambda result: result)

    # --- refused ---

    def list_groups(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: use list_consumer_groups() and describe_consumer_groups()."""
        self._open()
        raise refusal("AdminClient.list_groups", "call list_consumer_groups() and describe_consumer_groups()")

    def elect_leaders(self, election_type: ElectionType, partitions: Any = None, **kwargs: Any) -> Any:
        """Refuse: use fencepost.Admin.elect_leaders."""
        self._open()
        raise refusal("AdminClient.elect_leaders", "call fencepost.Admin.elect_leaders")

    def create_acls(self, acls: Any, **kwargs: Any) -> Any:
        """Refuse: use fencepost.Admin.create_acls."""
        self._open()
        raise refusal("AdminClient.create_acls", "call fencepost.Admin.create_acls")

    def describe_acls(self, acl_binding_filter: Any, **kwargs: Any) -> Any:
        """Refuse: use fencepost.Admin.describe_acls."""
        self._open()
        raise refusal("AdminClient.describe_acls", "call fencepost.Admin.describe_acls")

    def delete_acls(self, acl_binding_filters: Any, **kwargs: Any) -> Any:
        """Refuse: use fencepost.Admin.delete_acls."""
        self._open()
        raise refusal("AdminClient.delete_acls", "call fencepost.Admin.delete_acls")

    def describe_user_scram_credentials(self, users: Any = None, **kwargs: Any) -> Any:
        """Refuse: use fencepost.Admin.describe_user_scram_credentials."""
        self._open()
        raise refusal(
            "AdminClient.describe_user_scram_credentials", "call fencepost.Admin.describe_user_scram_credentials"
        )

    def alter_user_scram_credentials(self, alterations: Any, **kwargs: Any) -> Any:
        """Refuse: use fencepost.Admin.alter_user_scram_credentials."""
        self._open()
        raise refusal("AdminClient.alter_user_scram_credentials", "call fencepost.Admin.alter_user_scram_credentials")


def _settle(future: Future[Any], error: OurError | None, read: Callable[[], Any]) -> None:
    """Set the future's exception to `error` if there is one, else set its result or exception from `read`."""
    try:
        if error is not None:
            raise error
        result = read()
    except Exception as raised:  # noqa: BLE001 (the future raises it)
        future.set_exception(_exception(raised))
    else:
        future.set_result(result)


def _exception(error: Exception) -> Exception:
    if not isinstance(error, OurError):
        return error
    made = KafkaException(error_of(error))
    made.__cause__ = error
    return made


def _limit_ms(request_timeout: float | None) -> int | None:
    """Return `request_timeout` in ms; None if it is not given. Raises TypeError, and ValueError if it is negative."""
    limit_ms = milliseconds(request_timeout)
    if request_timeout is not None and limit_ms is None:
        raise ValueError(f"request_timeout={request_timeout}: must not be negative")
    return limit_ms


def _filled(name: str, items: object, kind: type[K]) -> list[K]:
    """Return a list with items of a type. Raises TypeError, and ValueError for an empty list or an item None."""
    if isinstance(items, list) and None in items:
        raise ValueError(f"{name}: an item is None")
    if not isinstance(items, list) or not all(isinstance(each, kind) for each in items):
        raise TypeError(f"{name}: expected a list of {kind.__name__}")
    if not items:
        raise ValueError(f"{name}: expected a non-empty list of {kind.__name__}")
    return items


def _new_topic(topic: NewTopic) -> OurTopic:
    assigned = None if topic.replica_assignment is None else dict(enumerate(topic.replica_assignment))
    return OurTopic(topic.topic, topic.num_partitions, topic.replication_factor, topic.config, assigned)


def _resources(resources: list[ConfigResource]) -> dict[ConfigResource, OurResource]:
    found = {}
    for each in _filled("resources", resources, ConfigResource):
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
    found = _filled("request", requests, ConsumerGroupTopicPartitions)
    if len(found) != 1:
        raise ValueError("Currently only one group per request is supported")
    return found[0]
