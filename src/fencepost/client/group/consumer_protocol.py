"""Membership by KIP-848 (group_protocol="consumer"). The coordinator assigns to each member separately.

Heartbeats carry joins, assignments and acknowledgements of assignments. They run in a task of their own. `settle`
applies a new assignment: it revokes partitions (the application is informed during its poll), takes new ones, and lets
the next heartbeat acknowledge the assignment. The consumer reads its other partitions meanwhile.
"""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections import defaultdict
from typing import Final, NamedTuple
from uuid import UUID

from fencepost.client.group.committed_offsets import GROUP_LANE
from fencepost.client.group.consumer_protocol_states import ConsumerMemberEvent, ConsumerMemberState, step
from fencepost.client.group.leaving import send_leave
from fencepost.client.group.member import LOOK_PATIENCE_MS, MISSING_TOPIC_CHECK_MS, Listener, Member, SubscribedTopics
from fencepost.client.metrics import ConsumerMetrics
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.runtime import Runtime
from fencepost.client.types import TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.counted import counted_noun
from fencepost.errors import (
    ClosedError,
    DisconnectedError,
    GroupFencedError,
    KafkaError,
    KafkaTimeoutError,
    RetriableError,
    error_for,
)
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

log = logging.getLogger("fencepost.client.group")

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
# A static member returns soon: the coordinator keeps its assignment until the session ends.
STATIC_LEAVE_EPOCH: Final = -2
REGEX_VERSION: Final = 1  # ConsumerGroupHeartbeat v1: the broker can match patterns
FENCED: Final = (E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH)
WAIT_STEP_MS: Final = 1_000
_SWITCHED_OFF: Final = (
    "the brokers have groups of the consumer protocol (KIP-848) switched off; Apache Kafka has them on since 4.0, "
    "unless group.coordinator.rebalance.protocols leaves out consumer"
)
LEAVE_PATIENCE_MS: Final = 5_000
_S = ConsumerMemberState
_E = ConsumerMemberEvent


def new_member_id(runtime: Runtime) -> str:
    """Return 128 random bits in Kafka's text form of UUIDs. The client chooses its member id (KIP-1082)."""
    bits = bytes(int(runtime.random() * 256) for _ in range(16))
    return urlsafe_b64encode(bits).rstrip(b"=").decode()


class Subscribed(NamedTuple):
    """A subscription: topic names, or an expression that the broker matches."""

    names: tuple[str, ...]
    regex: str | None


class ConsumerProtocolMember(Member):
    """One member of a KIP-848 group. `generation_id` is the member epoch, -1 outside the group."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, listener: Listener, metrics: ConsumerMetrics) -> None:
        super().__init__(cluster, config, listener, metrics)
        self.state = _S.UNJOINED
        self.member_id = new_member_id(self._runtime)
        self._goal: set[tuple[UUID, int]] = set()
        self._ids: dict[TopicPartition, UUID] = {}  # topic ids of the owned partitions
        self._regex: bool | None = None  # true if the broker matches the pattern; None: not decided yet
        # The subscription that the coordinator has; None: the next heartbeat sends all fields.
        self._known: Subscribed | None = None
        self._has_strays = False  # heartbeats without a response exist, which may still arrive
        self._has_regex = False  # the coordinator may have a pattern
        self._interval_ms = config.heartbeat_interval_ms
        self._wake = self._runtime.event()  # send a heartbeat now
        self._moved = self._runtime.event()  # the state changed, or heartbeats ended
        self._unreleased_since_ms: int | None = None

    def describe(self) -> str:
        return (
            f"group {self._group_id!r}: {self.state.name}, epoch {self.generation_id}, member {self.member_id!r}, "
            f"goal {len(self._goal)}, owned {len(self.assignment)}, awaiting {self.waiting_for()}"
        )

    def names(self) -> list[str]:
        if self._regex:
            return sorted({partition.topic for partition in self.assignment})
        return super().names()

    def subscribe(self, wanted: SubscribedTopics) -> None:
        self.topics = wanted
        self._regex = None
        self._next_refresh_ms = 0
        if self.state is _S.LEFT:
            self.state = _S.UNJOINED
        self._wake.set()

    def _topics_changed(self) -> None:
        log.info("group %r: the pattern matches %s now", self._group_id, self.topics.names_now())
        self._wake.set()

    def polled(self) -> None:
        super().polled()
        if self.topics.pattern is not None and self._regex is False:
            self._refresh_if_due([], often=not self.topics.names_now())

    @property
    def settled(self) -> bool:
        # A pending acknowledgement changes nothing for the application.
        return self.state in (_S.STABLE, _S.ACKNOWLEDGING)

    @property
    def holds_back(self) -> bool:
        return self.state is _S.FENCED

    def _set(self, event: ConsumerMemberEvent) -> None:
        self.state = step(self.state, event)
        self._moved.set()

    # --- applying the target assignment ---

    async def settle(self, deadline_ms: int) -> bool:
        if self._heartbeats is None or self._heartbeats.done():
            self._heartbeats = self._runtime.spawn(self._beat())
        while not self.settled and self.state is not _S.LEFT:
            self._moved.clear()
            left = deadline_ms - self._runtime.now_ms()
            if left <= 0 or self._fatal is not None:
                return False
            if self.state is _S.FENCED:
                self._awaiting = "a poll that serves the rebalance listener"
                await self._give_up("lost", self.assignment)
                self._set(_E.LOSS_REPORTED)
                self._wake.set()
            elif self.state is _S.RECONCILING:
                await self._reconcile()
            else:
                self._awaiting = "the answer to the first heartbeat"
                await self._moved.wait(min(left, WAIT_STEP_MS))
        return self.settled

    async def _reconcile(self) -> None:
        """Revoke partitions that are not in the target, and take new ones.

        Acknowledge once all topic ids have names.
        """
        goal = set(self._goal)
        named, unnamed = await self._named(goal)
        revoked = [
            partition for partition in self.assignment if (self._ids.get(partition), partition.partition) not in goal
        ]
        self._awaiting = "a poll that serves the rebalance listener"
        await self._give_up("revoked", revoked)
        if self.state is not _S.RECONCILING:
            return
        added = sorted(topic_partition for topic_partition in named if topic_partition not in self.assignment)
        self._ids = {name: topic_id for name, topic_id in self._ids.items() if name in self.assignment}
        self._ids |= {partition: named[partition] for partition in added}
        self.assignment = sorted({*self.assignment, *added})
        if added or revoked or not self.assignment:
            self._metrics.rebalance_total += 1
            await self._listener("assigned", added)
        if self._goal != goal:
            return
        if unnamed:
            self._awaiting = f"metadata of {counted_noun(len(unnamed), 'assigned topic')}"
            await self._moved.wait(MISSING_TOPIC_CHECK_MS)
            return
        self._awaiting = "nothing"
        self._set(_E.RECONCILED)  # has no effect if the member was fenced meanwhile
        self._wake.set()

    async def _named(self, goal: set[tuple[UUID, int]]) -> tuple[dict[TopicPartition, UUID], set[UUID]]:
        """Return the target's partitions by name, and the topic ids that metadata does not know (yet)."""
        names = self._names_by_id()
        unnamed = {topic_id for topic_id, _ in goal if topic_id not in names}
        if unnamed:
            self._awaiting = f"metadata of {len(unnamed)} topic ids"
            try:
                await self._cluster.learn_topic_ids(unnamed, self._runtime.now_ms() + LOOK_PATIENCE_MS)
            except (DisconnectedError, KafkaTimeoutError) as error:
                log.warning("group %r: assigned topics are not known yet: %s", self._group_id, error)
            names = self._names_by_id()
        named = {TopicPartition(names[topic_id], number): topic_id for topic_id, number in goal if topic_id in names}
        return named, {topic_id for topic_id in unnamed if topic_id not in names}

    def _names_by_id(self) -> dict[UUID, str]:
        return {topic.topic_id: name for name, topic in self._cluster.topics.items() if topic.topic_id is not None}

    # --- heartbeats ---

    async def _beat(self) -> None:
        while self.state is not _S.LEFT and self._fatal is None:
            self._wake.clear()
            if self.state is _S.FENCED:
                await self._wake.wait(self._interval_ms)  # until the application was informed
                continue
            if self._late():
                await self._leave()
                self._forget(_E.FENCE)
                return  # the next poll settles, and thereby joins again
            pause_ms: float = self._interval_ms
            try:
                pause_ms = await self._beat_once()
            except RetriableError as error:
                self._metrics.heartbeat_failed_total += 1
                self._awaiting = f"another heartbeat after: {error}"
                log.warning("group %r: heartbeat failed: %s", self._group_id, error)
                self._cluster.forget_coordinator(self._target)
                pause_ms = min(pause_ms, WAIT_STEP_MS)
            except ClosedError:
                return
            except Exception as error:  # noqa: BLE001 (the next poll raises it)
                self._fatal = error
                self._moved.set()
                return
            await self._wake.wait(pause_ms)

    async def _beat_once(self) -> float:
        """Send one heartbeat. Return the wait before the next, in ms.

        Raises errors that end the membership, and errors of lost responses.
        """
        deadline_ms = self._runtime.now_ms() + self._config.request_timeout_ms
        connection = await self._cluster.reach(self._target, deadline_ms, GROUP_LANE)
        await self._choose_regex(connection.version(ConsumerGroupHeartbeatRequest.API_KEY, 0, 1), deadline_ms)
        if self.state in (_S.UNJOINED, _S.JOINING):
            self._known = None
            self.state = step(self.state, _E.JOIN)
        subscribed = self._wanted()
        acknowledging = False

        def request() -> ConsumerGroupHeartbeatRequest:
            nonlocal acknowledging
            acknowledging = self.state is _S.ACKNOWLEDGING
            return self._request(subscribed)

        self._has_regex = self._has_regex or subscribed.regex is not None
        self._metrics.heartbeat_total += 1
        unanswered: list[KafkaError] = []
        try:
            reply: ConsumerGroupHeartbeatResponse = await self._cluster.call(
                self._target,
                request(),
                (REGEX_VERSION if self._has_regex else 0, 1),
                deadline_ms=deadline_ms,
                code_of=lambda answer: int(answer.error_code),
                lane=GROUP_LANE,
                again=request,
                unanswered=unanswered,
            )
        finally:
            self._has_strays = self._has_strays or bool(unanswered)
        if self.state in (_S.LEFT, _S.FENCED):
            return self._interval_ms
        if reply.error_code != 0:
            return self._refused(reply)
        self._known, self._has_regex = subscribed, subscribed.regex is not None
        self._take(reply, acknowledging=acknowledging)
        # A reconciliation during the request is acknowledged at once.
        return 0 if self.state is _S.ACKNOWLEDGING else self._interval_ms

    def _take(self, reply: ConsumerGroupHeartbeatResponse, *, acknowledging: bool) -> None:
        """Apply a successful response.

        `acknowledging`: the heartbeat contained the partitions that this member owns.
        """
        self._unreleased_since_ms = None
        self._cluster.lasting_errors.succeeded(f"group {self._group_id!r}")
        self._interval_ms = reply.heartbeat_interval_ms or self._interval_ms
        self.generation_id = reply.member_epoch
        self.member_id = reply.member_id or self.member_id
        self._owner = self._identity()
        if reply.assignment is not None:
            self._goal = {
                (topic.topic_id, number)
                for topic in reply.assignment.topic_partitions
                if topic.topic_id is not None
                for number in topic.partitions
            }
            self._set(_E.TARGET)
        elif acknowledging or self.state in (_S.JOINING, _S.STABLE):
            self._set(_E.ANSWERED)

    async def _choose_regex(self, version: int, deadline_ms: int) -> None:
        """Choose if broker or client matches the pattern.

        A pattern with flags needs the client: requests have no flags.
        """
        while (pattern := self.topics.pattern) is not None and self._regex is None:
            plain = pattern.flags & ~32 == 0  # re.UNICODE is always set
            self._regex = version >= REGEX_VERSION and plain
            if not self._regex:
                await self.topics.match(self._cluster, deadline_ms)  # the subscription may change meanwhile

    def _wanted(self) -> Subscribed:
        pattern = self.topics.pattern if self._regex else None
        return Subscribed(tuple(self.topics.names_now()), pattern.pattern if pattern is not None else None)

    def _request(self, subscribed: Subscribed) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat. It omits fields that the coordinator knows.

        The coordinator sends an assignment in one response only. It repeats the assignment only after a heartbeat with
        all fields. If an unanswered heartbeat arrives late, its response may carry an assignment that no caller
        receives. Therefore a member with unanswered heartbeats sends all fields from then on.
        """
        known, self._known = None if self._has_strays else self._known, None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=JOIN_EPOCH if self.state is _S.JOINING else self.generation_id,
            instance_id=self._config.group_instance_id,
            topic_partitions=None,
        )
        if known is None:
            request.rack_id = self._config.client_rack or None
            request.rebalance_timeout_ms = self._config.max_poll_interval_ms
            request.server_assignor = self._config.group_remote_assignor
        if known is None or known.names != subscribed.names:
            request.subscribed_topic_names = subscribed.names
        if self._has_regex and (known is None or known.regex != subscribed.regex):
            request.subscribed_topic_regex = subscribed.regex or ""  # an omitted field does not change the pattern
        if known is None or self.state is _S.ACKNOWLEDGING:
            owned: dict[UUID, list[int]] = defaultdict(list)
            if self.state is not _S.JOINING:
                for partition in self.assignment:
                    owned[self._ids[partition]].append(partition.partition)
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in owned.items()
            ]
        return request

    def _refused(self, reply: ConsumerGroupHeartbeatResponse) -> float:
        """Handle an error code.

        Return the wait before the next heartbeat, in ms. Raises errors that end the membership.
        """
        code = reply.error_code
        message = reply.error_message or (_SWITCHED_OFF if code == E.UNSUPPORTED_VERSION else None)
        error = error_for(code, f"group {self._group_id!r}", message)
        self._metrics.heartbeat_failed_total += 1
        if code in FENCED:
            log.warning("%s; joining again", error)
            self._forget(_E.FENCE)
            return 0
        if code == E.INVALID_REGULAR_EXPRESSION and self._regex:
            log.warning("%s; matching the pattern here", error)
            self._regex = False
            self._next_refresh_ms = 0
            return 0
        if code == E.UNRELEASED_INSTANCE_ID:
            # The id's former owner may have been killed. Its session then ends by timeout.
            now_ms = self._runtime.now_ms()
            self._unreleased_since_ms = self._unreleased_since_ms or now_ms
            if now_ms - self._unreleased_since_ms < self._config.session_timeout_ms + self._interval_ms:
                self._awaiting = f"the end of another member's session: {error}"
                self._cluster.lasting_errors.record(f"group {self._group_id!r}", error)
                return min(self._interval_ms, WAIT_STEP_MS)
        if code in (E.FENCED_INSTANCE_ID, E.UNRELEASED_INSTANCE_ID):
            raise GroupFencedError(str(error), code=code)
        raise error

    def _forget(self, event: ConsumerMemberEvent) -> None:
        """Forget the membership."""
        self.generation_id = -1
        self._goal, self._known = set(), None
        self._set(event)

    # --- leaving ---

    async def _leave(self, deadline_ms: int | None = None) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_EPOCH if self._config.group_instance_id is None else STATIC_LEAVE_EPOCH,
            instance_id=self._config.group_instance_id,
            topic_partitions=None,
        )
        error = await send_leave(self._cluster, self._target, request, (0, 1), LEAVE_PATIENCE_MS, deadline_ms)
        if error is not None:
            self._not_left(error)

    async def end(self, deadline_ms: int) -> None:
        try:
            await self._give_up("revoked" if self.generation_id >= 0 else "lost", self.assignment)
            self._end_heartbeats()
            if self.generation_id >= 0:
                await self._leave(deadline_ms)
        finally:  # also after a cancellation: no other code ends the heartbeats
            self._end_heartbeats()
            self._forget(_E.LEAVE)
            self._owner = None

    def _end_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            self._heartbeats = None
