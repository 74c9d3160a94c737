"""The client's view of the cluster: nodes, connections, topics, leaders, coordinators. `call` retries requests.

The client uses the bootstrap addresses until metadata has named the nodes, and again if no node can be reached.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from fencepost.arguments import MAX_INT32
from fencepost.client.calling import Caller
from fencepost.client.net import retry
from fencepost.client.net.answers import only, with_unknown_outcome
from fencepost.client.net.connection import BrokerConnection, api_name, login_of
from fencepost.client.net.lasting_errors import ClientCallbacks, LastingErrors
from fencepost.client.net.links import HIGHEST_METADATA, LOWEST_METADATA, Links, ask_nodes
from fencepost.client.net.retry import RETRIABLE, Action
from fencepost.client.net.runtime import Event, Runtime
from fencepost.client.net.topology import Address, KnownPartition, KnownTopic, Node, parse_bootstrap
from fencepost.config import CommonConfig
from fencepost.errors import (
    ClusterChangedError,
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for,
)
from fencepost.protocol.codec import Message
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages.find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

MOST_FAILED_CONNECTS_BEFORE_BOOTSTRAP: Final = 3
MARKERS_PAUSE_MS: Final = 2
LEAST_PATIENCE_MS: Final = 50  # minimum time for the last attempt


class CoordinatorKind(IntEnum):
    """FindCoordinator's key types."""

    GROUP = 0
    TRANSACTION = 1


class Coordinator(NamedTuple):
    """A target of `call`: the coordinator of a group or transactional id."""

    kind: CoordinatorKind
    key: str


class AnyNode:
    """A target of `call`: any broker."""


class Controller:
    """A target of `call`: the controller according to metadata. On KRaft it is any broker, which forwards requests."""


class Leader(NamedTuple):
    """A target of `call`: the leader of a partition."""

    topic: str
    partition: int


_ANY_NODE: Final = AnyNode()
T = TypeVar("T")
Target = Coordinator | AnyNode | Controller | Leader | int
CodeOf = Callable[[Any], int]
Versions = tuple[int, int] | Callable[[BrokerConnection], tuple[int, int]]


class Cluster:
    """The view of one client, shared by its parts."""

    def __init__(self, runtime: Runtime, config: CommonConfig, caller: Caller | None = None) -> None:
        """Create a view without connections. `caller` runs the application's callbacks.

        Raises ConfigurationError for an invalid bootstrap address.
        """
        self.runtime = runtime
        self.config = config
        self._bootstrap = parse_bootstrap(config.bootstrap_servers)
        self.login = login_of(config)
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, KnownTopic] = {}
        self.controller_id = -1
        self._silent_controller = -1
        self.cluster_id: str | None = None
        self.features: dict[str, int] = {}
        self._features_epoch = -2
        self._coordinators: dict[Coordinator, int] = {}
        self._wanted: set[str] = set()
        self._refreshing: Event | None = None
        self._met: set[Address] = set()  # addresses to which a connection has been open
        self.callbacks = ClientCallbacks(runtime, config, caller)
        self.lasting_errors = LastingErrors(runtime.now_ms, self.callbacks.failed)
        self.links = Links(runtime, config, self.lasting_errors, self._open, lambda: list(self.nodes.values()))

    def close(self) -> None:
        """Close every connection. Requests in flight fail with DisconnectedError."""
        self.links.close()

    # --- connections ---

    async def connection(self, node_id: int, deadline_ms: int, lane: str = "") -> BrokerConnection:
        """Return an open connection to the node.

        Args:
            node_id: The node.
            deadline_ms: Time limit by the runtime's clock, in ms.
            lane: Name of a separate connection. A broker processes the requests of a connection one after another.
                Requests that it may hold for long (a join, a fetch) must not delay urgent ones (a heartbeat, a commit).

        Raises:
            DisconnectedError: Connecting failed, or a broker of another cluster listens there: the node may have moved.
            KafkaTimeoutError: The deadline passed.
        """
        node = self.nodes.get(node_id)
        if node is None:
            raise DisconnectedError(f"broker {node_id} is not known")
        try:
            return await self.links.connect((node.host, node.port), deadline_ms, lane)
        except ClusterChangedError as error:
            raise DisconnectedError(str(error)) from error

    def live(self, node_id: int) -> BrokerConnection | None:
        """Return the open connection to the node, or None."""
        node = self.nodes.get(node_id)
        return None if node is None else self.links.link((node.host, node.port)).live

    async def any_connection(self, deadline_ms: int) -> BrokerConnection:
        """Return an open connection to any broker, or connect to the first address that answers.

        Raises DisconnectedError, KafkaTimeoutError, and ClusterChangedError if all addresses lead to another cluster.
        """
        if (idlest := self.links.idlest()) is not None:
            return idlest
        addresses = [(node.host, node.port) for node in self.nodes.values()]
        failing = [self.links.link(address).failures for address in addresses]
        others = [address for address in self._bootstrap if address not in addresses]
        if not addresses or min(failing) >= MOST_FAILED_CONNECTS_BEFORE_BOOTSTRAP:
            addresses, others = addresses + others, []
        addresses.sort(key=lambda address: (self.links.link(address).not_before_ms, self.runtime.random()))
        try:
            return await self.links.first_of(addresses, deadline_ms)
        except ClusterChangedError:
            if not others or self.runtime.now_ms() >= deadline_ms:
                raise
        return await self.links.first_of(others, deadline_ms)

    async def reached(self, operation: str, deadline_ms: int) -> BrokerConnection:
        """Return a connection to any broker, also to one that is away until then. Raises KafkaTimeoutError."""
        return await self.until_answered(operation, lambda: self.any_connection(deadline_ms), deadline_ms)

    async def _open(self, address: Address) -> BrokerConnection:
        """Open a connection. After a lost connection, check that the broker belongs to the same cluster as before."""
        lost = address in self._met and not self.links.is_live(address)
        connection = await BrokerConnection.connect(self.runtime, *address, self.config, self.login)
        self._met.add(address)
        if lost and self.cluster_id is not None:
            try:
                self._check_cluster((await ask_nodes(connection, self.config.request_timeout_ms)).cluster_id)
            except BaseException:
                connection.close()
                raise
        self._learn_features(connection)
        return connection

    def _check_cluster(self, cluster_id: str | None) -> None:
        """Raise ClusterChangedError if it is another cluster than before."""
        if cluster_id is not None and self.cluster_id not in (None, cluster_id):
            raise ClusterChangedError(
                f"this client has worked with cluster {self.cluster_id!r}, and its addresses lead to cluster "
                f"{cluster_id!r} now; positions, sequences and transactions are not valid there: make a new client"
            )

    def _learn_features(self, connection: BrokerConnection) -> None:
        if connection.features_epoch >= self._features_epoch:
            self._features_epoch = connection.features_epoch
            self.features = dict(connection.features)

    # --- topics and leaders ---

    async def refresh(self, topics: Iterable[str], deadline_ms: int) -> None:
        """Fetch metadata of the nodes and of `topics`. Concurrent callers share requests. Raises KafkaError."""
        self._wanted.update(topics)
        while self._refreshing is not None:
            if not await self._refreshing.wait(deadline_ms - self.runtime.now_ms()):
                raise KafkaTimeoutError("metadata was not refreshed in time")
        wanted, self._wanted = self._wanted, set()
        self._refreshing = self.runtime.event()
        fetched = False
        try:
            await self.fetch_metadata(sorted(wanted), deadline_ms)
            fetched = True
        finally:
            if not fetched:
                self._wanted |= wanted  # other callers requested these topics, and may have more time
            refreshing, self._refreshing = self._refreshing, None
            if refreshing is not None:
                refreshing.set()

    async def fetch_metadata(
        self, topics: Sequence[str] | None, deadline_ms: int, *, create: bool | None = None, rights: bool = False
    ) -> MetadataResponse:
        """Send a Metadata request and store the response in the cache.

        Args:
            topics: Names of topics; None: all topics.
            deadline_ms: Time limit by the runtime's clock, in ms.
            create: Allow the broker to create the topics; None: as in the settings.
            rights: Include the authorized operations.
        """
        allow = self.config.allow_auto_create_topics if create is None else create
        requested = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(
            topics=requested, allow_auto_topic_creation=allow, include_topic_authorized_operations=rights
        )
        return await self._metadata(request, 8 if rights else LOWEST_METADATA, deadline_ms)

    async def learn_topic_ids(self, ids: Iterable[UUID], deadline_ms: int) -> None:
        """Look topics up by id (Metadata v12). Topics that do not exist (yet) stay unknown. Raises KafkaError."""
        requested = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
        await self._metadata(MetadataRequest(topics=requested, allow_auto_topic_creation=False), 12, deadline_ms)

    async def _metadata(self, request: MetadataRequest, lowest: int, deadline_ms: int) -> MetadataResponse:
        versions, code = (lowest, HIGHEST_METADATA), attrgetter("error_code")
        reply: MetadataResponse = await self.call(AnyNode(), request, versions, deadline_ms=deadline_ms, code_of=code)
        if reply.error_code != 0:
            raise error_for(reply.error_code, "metadata")
        self._take_metadata(reply)
        return reply

    def _take_metadata(self, reply: MetadataResponse) -> None:
        self._check_cluster(reply.cluster_id)
        if reply.brokers:
            self.nodes = {
                broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in reply.brokers
            }
        self.controller_id = reply.controller_id
        self.cluster_id = reply.cluster_id or self.cluster_id
        now_ms = self.runtime.now_ms()
        for topic in reply.topics:
            if topic.name is None:
                continue
            partitions = {
                partition.partition_index: KnownPartition(
                    partition.partition_index,
                    partition.leader_id,
                    partition.leader_epoch,
                    tuple(partition.replica_nodes),
                    tuple(partition.isr_nodes),
                )
                for partition in topic.partitions
            }
            known = self.topics.get(topic.name)
            topic_id = topic.topic_id if topic.topic_id and topic.topic_id.int else None  # all zeros: unknown
            if (
                topic.error_code != 0
                and not partitions
                and known is not None
                and retry.action(0, topic.error_code) in (Action.RETRY, Action.REFRESH_LEADER)
            ):
                partitions = known.partitions  # a broker that restarts may not know its topics for a moment
                topic_id = known.topic_id
            self.topics[topic.name] = KnownTopic(
                topic.name, topic_id, topic.error_code, topic.is_internal, partitions, now_ms
            )

    def leader(self, topic: str, partition: int) -> int:
        """Return the node id of the partition's leader according to the last metadata; -1 if unknown."""
        known = self.topics.get(topic)
        found = known.partitions.get(partition) if known is not None else None
        if found is None or found.leader not in self.nodes:
            return -1
        return found.leader

    def is_stale(self, topic: str) -> bool:
        """Return true if the topic is unknown or its metadata is older than metadata_max_age_ms."""
        known = self.topics.get(topic)
        return known is None or self.runtime.now_ms() - known.fetched_ms > self.config.metadata_max_age_ms

    async def topic(self, name: str, deadline_ms: int, *, fresh: bool = False) -> KnownTopic:
        """Return the topic with its partitions. Waits until the topic is usable.

        A topic that no broker knows may just have been created. The call waits `topic_metadata_propagation_max_ms` for
        it.

        Args:
            name: The topic's name.
            deadline_ms: Time limit by the runtime's clock, in ms.
            fresh: Send at least one request, even if the topic is in the cache.

        Raises:
            UnknownTopicOrPartitionError: The topic does not exist.
            KafkaTimeoutError: The deadline passed.
            KafkaError: The broker's final error for the topic (authorization, invalid name).
        """
        attempt = 0
        operation = f"topic {name!r}"
        believed_ms: int | None = None  # time from which its absence counts as a fact
        answer: KafkaError | None = None  # the last error in a response
        while True:
            known = self.topics.get(name)
            is_current = known is not None and not self.is_stale(name) and not (fresh and attempt == 0)
            if is_current and known is not None and known.error_code == 0 and known.partitions:
                self.lasting_errors.succeeded(operation)
                return known
            error: KafkaError | None = None
            try:
                await self.refresh([name], deadline_ms)
            except (DisconnectedError, KafkaTimeoutError) as failure:
                error = failure
            known = self.topics.get(name)
            if error is None and known is not None and known.error_code != 0:
                error = answer = error_for(known.error_code, operation)
                if retry.action(retry.METADATA, known.error_code) in (Action.REJECT, Action.FATAL):
                    raise error
            if known is not None and known.partitions and (error is None or known.error_code == 0):
                self.lasting_errors.succeeded(operation)
                return known
            if error is not None:
                self.lasting_errors.record(operation, answer or error)
            if isinstance(answer, UnknownTopicOrPartitionError) and (known is None or not known.partitions):
                now_ms = self.runtime.now_ms()
                if believed_ms is None:
                    believed_ms = min(now_ms + self.config.topic_metadata_propagation_max_ms, deadline_ms)
                deadline_ms = min(deadline_ms, believed_ms)
            await self.pause(attempt, deadline_ms, operation, answer or error, None if believed_ms is None else answer)
            attempt += 1

    async def pause(
        self, tries: int, deadline_ms: int, operation: str, error: KafkaError | None, instead: KafkaError | None = None
    ) -> None:
        """Wait before the next attempt.

        Raises:
            KafkaTimeoutError: Time is up. Its cause is `error`. If `instead` is given, that is raised.
            ClosedError: The client was closed meanwhile.
        """
        wait = retry.backoff_ms(
            tries,
            self.runtime.random(),
            first_ms=self.config.retry_backoff_ms,
            most_ms=self.config.retry_backoff_max_ms,
        )
        left = deadline_ms - self.runtime.now_ms()
        if left >= 2 * LEAST_PATIENCE_MS:
            await self.links.pause(min(wait, left / 2))
            return
        # A request without time for a response is useless, and the broker may still execute it.
        await self.links.pause(max(left, 0))
        if instead is not None:
            raise instead
        reason = f"; the last error: {retry.first_cause(error)}" if error is not None else ""
        unknown = error is not None and error.may_have_taken_effect
        raise KafkaTimeoutError(f"{operation}: time is up{reason}", outcome_unknown=unknown) from error

    async def pause_after(self, error: KafkaError, attempt: int, deadline_ms: int, operation: str) -> None:
        """Report `error` as lasting, then back off with `pause`.

        On success the caller calls `lasting_errors.succeeded(operation)`.
        """
        self.lasting_errors.failed(operation, error)
        await self.pause(attempt, deadline_ms, operation, error)

    @staticmethod
    def worth_retrying(error: KafkaError) -> bool:
        """Return true if a later retry may succeed."""
        return isinstance(error, (DisconnectedError, KafkaTimeoutError)) or (
            error.code is not None and retry.action(retry.METADATA, error.code) in RETRIABLE
        )

    # --- coordinators ---

    async def coordinator(self, target: Coordinator, deadline_ms: int) -> int:
        """Return the node id of the coordinator. Raises KafkaError, which is retriable for a retriable error code."""
        known = self._coordinators.get(target)
        if known is not None and known in self.nodes:
            return known
        connection = await self.any_connection(deadline_ms)
        version = connection.version(retry.FIND_COORDINATOR, 1, 6)
        request = FindCoordinatorRequest(key_type=int(target.kind), key=target.key, coordinator_keys=[target.key])
        reply = await connection.request(request, version, timeout_ms=deadline_ms - self.runtime.now_ms())
        found = only(reply.coordinators) if version >= 4 else reply
        if found.error_code != 0:
            raise error_for(found.error_code, f"coordinator of {target.key!r}", found.error_message)
        self.nodes[found.node_id] = Node(found.node_id, found.host, found.port)
        self._coordinators[target] = int(found.node_id)
        return int(found.node_id)

    async def learn_coordinators(self, kind: CoordinatorKind, ids: Sequence[str], deadline_ms: int) -> None:
        """Look up the coordinators of groups or transactional ids with one request, if the broker supports it (v4).

        `coordinator` looks up those that are not found here one by one, and raises the error of each.
        """
        if not (unknown := [key for key in ids if Coordinator(kind, key) not in self._coordinators]):
            return
        request = FindCoordinatorRequest(key_type=int(kind), coordinator_keys=unknown)
        with suppress(KafkaTimeoutError, UnsupportedVersionError):
            reply = await self.call(_ANY_NODE, request, (4, 6), deadline_ms=deadline_ms, code_of=lambda _: 0)
            for found in reply.coordinators:
                if found.error_code == 0:
                    self.nodes[found.node_id] = Node(found.node_id, found.host, found.port)
                    self._coordinators[Coordinator(kind, found.key)] = found.node_id

    def known_coordinator(self, target: Coordinator) -> int | None:
        """Return the node id of the coordinator according to the last response, or None."""
        return self._coordinators.get(target)

    def forget_coordinator(self, target: Coordinator) -> None:
        """Forget the coordinator. The next call looks it up."""
        self._coordinators.pop(target, None)

    # --- calls ---

    async def reach(self, target: Target, deadline_ms: int, lane: str = "") -> BrokerConnection:
        """Return a connection to the target. `lane` applies to coordinators and to any node. Raises KafkaError."""
        if isinstance(target, Coordinator):
            return await self.connection(await self.coordinator(target, deadline_ms), deadline_ms, lane)
        if isinstance(target, Leader):
            topic = await self.topic(target.topic, deadline_ms)
            if target.partition not in topic.partitions:
                raise error_for(E.UNKNOWN_TOPIC_OR_PARTITION, f"{target.topic}-{target.partition}")
            leader = self.leader(target.topic, target.partition)
            if leader < 0:
                await self.refresh([target.topic], deadline_ms)
                leader = self.leader(target.topic, target.partition)
            if leader < 0:
                raise error_for(E.LEADER_NOT_AVAILABLE, f"{target.topic}-{target.partition}")
            return await self.connection(leader, deadline_ms)
        if isinstance(target, Controller):
            if self.controller_id not in self.nodes:
                await self.refresh([], deadline_ms)
            # Any other broker is a controller too, or answers that it is none (NOT_CONTROLLER).
            if self.controller_id in self.nodes and self.controller_id != self._silent_controller:
                return await self.connection(self.controller_id, deadline_ms)
        elif isinstance(target, int):
            if target not in self.nodes:
                await self.refresh([], deadline_ms)
            return await self.connection(target, deadline_ms)
        connection = await self.any_connection(deadline_ms)
        return await self.links.connect(connection.address, deadline_ms, lane) if lane else connection

    def server_timeout_ms(self, deadline_ms: int) -> int:
        """Return the broker's time limit in ms for a request with this deadline. The protocol's field has 32 bits."""
        return min(max(deadline_ms - self.runtime.now_ms(), 0), MAX_INT32)

    async def call(
        self,
        target: Target,
        message: Message,
        versions: Versions,
        *,
        deadline_ms: int,
        code_of: CodeOf,
        server_ms: float = 0,
        operation: str = "",
        lane: str = "",
        again: Callable[[], Message] | None = None,
        unanswered: list[KafkaError] | None = None,
    ) -> Any:
        """Send a request. Retry until the deadline while the error is retriable.

        Args:
            target: The broker to send to, looked up again before each attempt.
            message: The request.
            versions: Lowest and highest version, or a function that returns these for a connection.
            deadline_ms: Time limit by the runtime's clock, in ms.
            code_of: Returns the error code of a response.
            server_ms: Time for which the broker may hold the request, in ms.
            operation: Text for errors and log lines; "": the name of the API.
            lane: See `connection`.
            again: Makes the message of each further attempt, for requests that the broker may have executed already.
            unanswered: Receives the errors of attempts that the broker may have executed.

        Returns:
            The response. Its error code is 0 or not retriable.

        Raises:
            KafkaTimeoutError: The deadline passed. The cause is the last error.
            UnsupportedVersionError, ClosedError, AuthorizationError: A retry cannot succeed.

        `outcome_unknown` of each is true if any attempt was sent and not answered, because a later refusal proves
        nothing about that attempt.
        """
        operation = operation or api_name(message.API_KEY)
        messages = repeat(message) if again is None else chain((message,), iter(again, None))
        unknown = False  # true once a request was sent that has no response

        async def ask() -> Any:
            nonlocal unknown
            attempted = next(messages)
            try:
                connection = await self.reach(target, deadline_ms, lane)
                lowest, highest = versions(connection) if callable(versions) else versions
                version = connection.version(message.API_KEY, lowest, highest)
                # If any broker can answer, leave time to ask another one.
                share = 2 if isinstance(target, AnyNode) and len(self.nodes) > 1 else 1
                left = (deadline_ms - self.runtime.now_ms()) // share
                reply = await connection.request(attempted, version, timeout_ms=max(left, 0), server_ms=server_ms)
            except KafkaError as failure:
                unknown = unknown or failure.may_have_taken_effect
                if failure.may_have_taken_effect and unanswered is not None:
                    unanswered.append(failure)
                raise
            code = code_of(reply)
            if retry.action(message.API_KEY, code) in RETRIABLE:
                raise error_for(code, operation)
            return reply

        try:
            return await self.until_answered(operation, ask, deadline_ms, target=target, api_key=message.API_KEY)
        except KafkaError as gave_up:
            raise with_unknown_outcome(gave_up, unknown) from gave_up.__cause__

    async def until_answered(
        self,
        operation: str,
        ask: Callable[[], Awaitable[T]],
        deadline_ms: int,
        *,
        target: Target = _ANY_NODE,
        api_key: int = retry.METADATA,
    ) -> T:
        """Return the result of `ask`. Retries it while it raises errors that may pass.

        `target` is looked up again before each retry. The retry table of `api_key` defines the codes that may pass.
        Raises KafkaTimeoutError with the last error as cause, and errors that a retry cannot heal.
        """
        attempt = 0
        absent_ms: int | None = None  # time of the first answer that there is no such topic or partition
        last_error: KafkaError | None = None  # of the broker; without one, of the last failure other than a timeout
        while True:
            try:
                answer = await ask()
            except KafkaError as error:
                if not self._may_pass(api_key, error, target):
                    raise
                if isinstance(error, UnknownTopicOrPartitionError) and api_key not in retry.OUTLAST_ABSENCE:
                    now_ms = self.runtime.now_ms()
                    absent_ms = now_ms if absent_ms is None else absent_ms
                    if now_ms - absent_ms >= self.config.topic_metadata_propagation_max_ms:
                        raise
                late = isinstance(error, KafkaTimeoutError)
                if error.code is not None or last_error is None or (last_error.code is None and not late):
                    last_error = error
                if error.code == E.CONCURRENT_TRANSACTIONS and attempt == 0:
                    # The brokers usually finish writing the markers in a moment.
                    await self.links.pause(MARKERS_PAUSE_MS)
                else:
                    await self._before_next(attempt, deadline_ms, operation, error, last_error, target)
                attempt += 1
            else:
                self.lasting_errors.succeeded(operation)
                return answer

    async def _before_next(
        self, attempt: int, deadline_ms: int, operation: str, error: KafkaError, last_error: KafkaError, target: Target
    ) -> None:
        """Prepare the next attempt: refresh the metadata of a leader and back off. Raises KafkaTimeoutError."""
        self.lasting_errors.failed(operation, error)
        if isinstance(target, Leader) and self.runtime.now_ms() < deadline_ms:
            await self.refresh_quietly([target.topic], deadline_ms)
        await self.pause(attempt, deadline_ms, operation, last_error)

    def _may_pass(self, api_key: int, error: KafkaError, target: Target) -> bool:
        """Return true if a retry may help after the error. Drops metadata that the error shows to be outdated."""
        if error.code is not None:
            step = retry.action(api_key, error.code)
        elif isinstance(error, (DisconnectedError, KafkaTimeoutError)):
            step = Action.REFRESH_COORDINATOR  # another broker may be the coordinator by now
        else:
            return False
        if step is Action.REFRESH_COORDINATOR and isinstance(target, Coordinator):
            self.forget_coordinator(target)
        elif error.code is None and isinstance(target, Controller):
            self._silent_controller, self.controller_id = self.controller_id, -1
        elif step is Action.REFRESH_LEADER and isinstance(target, Controller):
            self.controller_id = self._silent_controller = -1
        return step in RETRIABLE

    async def refresh_quietly(self, topics: Iterable[str], deadline_ms: int) -> None:
        """Refresh metadata before the next attempt. Ignores failures, which that attempt will meet itself."""
        try:
            await self.refresh(topics, deadline_ms)
        except (DisconnectedError, KafkaTimeoutError):
            return
