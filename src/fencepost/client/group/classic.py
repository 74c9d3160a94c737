"""Membership by the classic protocol: join, sync, heartbeat, leave. The group's leader assigns partitions.

With eager assignors (range, roundrobin, sticky) a member gives up all partitions before a rebalance, and gets new ones
after it. With the cooperative assignor (cooperative-sticky, KIP-429) members keep their partitions. A partition that
moves is revoked after the sync, and a second rebalance assigns it to its new owner. Heartbeats run in a task of their
own. A consumer that does not poll for max_poll_interval_ms leaves the group, so that others get its partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from fencepost.client.group.assigning import Assignors
from fencepost.client.group.assignors_wire import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from fencepost.client.group.classic_states import ClassicMemberEvent, ClassicMemberState, step
from fencepost.client.group.committed_offsets import GROUP_LANE
from fencepost.client.group.leaving import send_leave
from fencepost.client.group.member import LOOK_PATIENCE_MS, Listener, Member, SubscribedTopics
from fencepost.client.metrics import ConsumerMetrics
from fencepost.client.net.cluster import Cluster
from fencepost.client.partition_assignor import Assignment, Subscription
from fencepost.config import ConsumerConfig
from fencepost.counted import counted_noun
from fencepost.errors import DisconnectedError, GroupFencedError, KafkaError, KafkaTimeoutError, error_for
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages.heartbeat import HeartbeatRequest
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fencepost.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fencepost.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

log = logging.getLogger("fencepost.client.group")

PROTOCOL_TYPE: Final = "consumer"
JOIN_LANE: Final = "join"  # the broker holds joins, so heartbeats and commits need another connection
JOIN_GRACE_MS: Final = 5_000  # in addition to the rebalance timeout, as in Java's consumer
LOST_MEMBERSHIP: Final = (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION)
BEATING: Final = (ClassicMemberState.STABLE, ClassicMemberState.REBALANCING)


class ClassicMember(Member):
    """One member of a classic group."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, listener: Listener, metrics: ConsumerMetrics) -> None:
        super().__init__(cluster, config, listener, metrics)
        self.state = ClassicMemberState.UNJOINED
        self._assignors = Assignors(config, cluster.runtime)  # raises ConfigurationError before anything is sent
        self.cooperative = self._assignors.cooperative
        self._counts: dict[str, int] = {}  # partitions per topic when this leader last assigned them
        self._leading = False
        self._owns = False  # the assignment was reported to the application, and not revoked
        self._held = Assignment()  # the last assignment
        self._protocol_name: str | None = None  # the assignor of that assignment

    def describe(self) -> str:
        return (
            f"group {self._group_id!r}: {self.state.name}, generation {self.generation_id}, member {self.member_id!r}, "
            f"{'leading' if self._leading else 'following'}, counts {self._counts}, awaiting {self.waiting_for()}"
        )

    def subscribe(self, wanted: SubscribedTopics) -> None:
        if self.topics.asks_for_the_same(wanted):
            return  # a rebalance would stop the whole group for no reason, endlessly if a listener subscribes
        self.topics = wanted
        self._next_refresh_ms = 0
        self._rebalance()

    def _rebalance(self) -> None:
        self.state = step(self.state, ClassicMemberEvent.REBALANCE)

    def _is(self, state: ClassicMemberState) -> bool:
        """Return true if the member is in this state. For use after an await, as other tasks may change the state."""
        return self.state is state

    def _topics_changed(self) -> None:
        log.info("group %r: the pattern matches %s now", self._group_id, self.topics.names_now())
        self._rebalance()

    def polled(self) -> None:
        super().polled()
        if self.state is not ClassicMemberState.STABLE:
            return
        if self._leading and self._counts_changed():
            self._rebalance()
            return
        pattern = self.topics.pattern is not None
        missing = (self._leading and 0 in self._counts.values()) or (pattern and not self.topics.names_now())
        if self._leading or pattern:
            self._refresh_if_due(list(self._counts) if self._leading else [], often=missing)

    def _counts_changed(self) -> bool:
        for topic, count in self._counts.items():
            known = self._cluster.topics.get(topic)
            if known is not None and known.error_code == 0 and len(known.partitions) != count:
                return True
        return False

    @property
    def settled(self) -> bool:
        return self.state is ClassicMemberState.STABLE and self._owns

    @property
    def holds_back(self) -> bool:
        return not self.cooperative or self.generation_id < 0

    async def settle(self, deadline_ms: int) -> bool:
        attempt, operation = 0, f"group {self._group_id!r}"
        while not self.settled:
            if self.state is not ClassicMemberState.STABLE:
                error = await self._rejoin(deadline_ms)
                if not self._is(ClassicMemberState.STABLE):
                    if self._runtime.now_ms() >= deadline_ms:
                        return False
                    if error is not None:
                        self._awaiting = f"another try after: {error}"
                        await self._cluster.pause_after(error, attempt, deadline_ms, operation)
                        attempt += 1
                    continue
                self._cluster.lasting_errors.succeeded(operation)
            await self._take_over()
        return True

    async def _rejoin(self, deadline_ms: int) -> KafkaError | None:
        """Make one attempt to join. Return an error to back off for, or None after a success or to retry at once."""
        await self._prepare(deadline_ms)
        self.state = step(self.state, ClassicMemberEvent.JOIN)
        try:
            return await self._join_and_sync()
        except (KafkaTimeoutError, DisconnectedError) as failure:
            return failure
        finally:
            if self.state in (ClassicMemberState.JOINING, ClassicMemberState.SYNCING):
                self.state = step(self.state, ClassicMemberEvent.LOST)

    async def _prepare(self, deadline_ms: int) -> None:
        """Give up partitions that may not be kept over a join. Match the pattern if it has no topics yet."""
        if self._owns and (self.generation_id < 0 or not self.cooperative):
            self._owns = False
            self._awaiting = "a poll that serves the rebalance listener"
            await self._give_up("revoked" if self.generation_id >= 0 else "lost", self.assignment)
        if self.topics.pattern is not None and not self.topics.names_now():
            self._awaiting = "metadata of all topics"
            try:
                await self.topics.match(self._cluster, min(deadline_ms, self._runtime.now_ms() + LOOK_PATIENCE_MS))
            except (DisconnectedError, KafkaTimeoutError) as error:
                log.warning("group %r: joining without topics for now: %s", self._group_id, error)

    async def _take_over(self) -> None:
        """Adopt the new assignment, and report the difference to the application."""
        self._metrics.rebalance_total += 1
        assigned, self._owns = sorted(self._held.partitions), True
        self._awaiting = "a poll that serves the rebalance listener"
        revoked = [partition for partition in self.assignment if partition not in assigned]
        added = [partition for partition in assigned if partition not in self.assignment]
        generation_id = self.generation_id
        owner = self._owner = self._identity()
        if revoked:
            await self._give_up("revoked", revoked)
        self._awaiting = f"on_assignment of the assignor {self._protocol_name!r}"
        await self._assignors.assigned(self._protocol_name, self._held, owner)
        self._awaiting = "a poll that serves the rebalance listener"
        if generation_id != self.generation_id:
            self._owns = bool(self.assignment)
            return  # the membership was lost meanwhile; the next join gives up the remaining partitions
        self.assignment = sorted({*self.assignment, *added})
        await self._listener("assigned", added)
        self._awaiting = "nothing"
        if revoked and self.state is ClassicMemberState.STABLE:
            self._rebalance()  # so that the other members get the revoked partitions

    # --- join and sync ---

    async def _join_and_sync(self) -> KafkaError | None:
        """Make one attempt to join and sync. Return an error to back off for, or None if STABLE or to retry at once."""
        joined = await self._join()
        if isinstance(joined, KafkaError) or joined is None:
            return joined
        if not self._is(ClassicMemberState.JOINING):  # the subscription changed meanwhile: join again as this member
            self.member_id = joined.member_id
            return None
        self.state = step(self.state, ClassicMemberEvent.JOINED)
        self.generation_id, self.member_id = joined.generation_id, joined.member_id
        self._leading = joined.leader == joined.member_id
        assignments = await self._assign(joined) if self._leading else []
        self._awaiting = "SyncGroup's answer" if self._leading else "the leader's assignment (SyncGroup)"
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        # If the leader never assigns, the coordinator starts a new rebalance. A longer wait would only hide a lost
        # response.
        synced: SyncGroupResponse = await self._call(request, (0, 5), 0)
        if synced.error_code != 0:
            return self._refused(synced.error_code, "SyncGroup")
        if not self._is(ClassicMemberState.SYNCING):
            return None  # left, or subscribed to other topics
        self._held, self._protocol_name = decode_assignment(synced.assignment), joined.protocol_name
        self._owns = False
        self.state = step(self.state, ClassicMemberEvent.SYNCED)
        self._start_heartbeats()
        return None

    async def _join(self) -> JoinGroupResponse | KafkaError | None:
        self._awaiting = "subscription_user_data of the assignors"
        topics = self.topics.names_now()
        offered = await self._assignors.user_data(topics)
        self._awaiting = "JoinGroup's answer (a coordinator that is reached waits for the other members)"
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._config.session_timeout_ms,
            rebalance_timeout_ms=self._config.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=self._subscription(topics, user_data))
                for name, user_data in offered.items()
            ],
        )
        reply: JoinGroupResponse = await self._call(
            request, (1, 9), max(self._config.max_poll_interval_ms + JOIN_GRACE_MS - self._config.request_timeout_ms, 0)
        )
        if reply.error_code == E.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            self._rebalance()
            return None
        if reply.error_code != 0:
            return self._refused(reply.error_code, "JoinGroup")
        return reply

    def _subscription(self, topics: Sequence[str], user_data: bytes | None) -> bytes:
        return encode_subscription(
            Subscription(
                topics=topics,
                owned=self.assignment,
                generation=self.generation_id if self.assignment else -1,
                rack=self._config.client_rack or None,
                user_data=user_data,
            )
        )

    async def _call(
        self, request: JoinGroupRequest | SyncGroupRequest, versions: tuple[int, int], server_ms: int
    ) -> Any:
        """Send a request that the coordinator may hold. The connection's request timeout detects a lost response."""
        patience_ms = server_ms + self._config.request_timeout_ms
        static_join = self._config.group_instance_id is not None and isinstance(request, JoinGroupRequest)
        return await self._cluster.call(
            self._target,
            request,
            (5 if static_join else versions[0], versions[1]),
            deadline_ms=self._runtime.now_ms() + patience_ms,
            server_ms=server_ms,
            code_of=lambda answer: int(answer.error_code),
            lane=JOIN_LANE,
        )

    def _refused(self, code: int, operation: str) -> KafkaError | None:
        """Return None to retry now or an error to retry after a back-off. Raises errors that end the attempt."""
        error = error_for(code, f"{operation} of group {self._group_id!r}")
        if code == E.REBALANCE_IN_PROGRESS:
            self._rebalance()
            return None
        if code in LOST_MEMBERSHIP:
            self._lose()
            return error  # the back-off protects a coordinator that is loading
        raise error

    def _lose(self) -> None:
        self.state = step(self.state, ClassicMemberEvent.LOST)
        self.generation_id, self.member_id = -1, ""

    async def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Return the leader's assignment of each member."""
        members = {
            member.member_id: decode_subscription(member.metadata)._replace(instance_id=member.group_instance_id)
            for member in joined.members
        }
        topics = sorted({topic for wanted in members.values() for topic in wanted.topics})
        self._awaiting = f"metadata of {counted_noun(len(topics), 'topic')} for the assignment"
        await self._refresh(topics)
        known = {name: self._cluster.topics.get(name) for name in topics}
        counts = {name: len(topic.partitions) for name, topic in known.items() if topic is not None}
        self._counts = {name: counts.get(name, 0) for name in topics}
        if joined.skip_assignment:
            return []  # a static leader came back, and the old assignment stays valid (KIP-814)
        self._awaiting = f"assign of the assignor {joined.protocol_name!r}"
        assigned = await self._assignors.assign(joined.protocol_name, members, counts)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(assignment))
            for member, assignment in assigned.items()
        ]

    async def _refresh(self, topics: Sequence[str]) -> None:
        """Refresh metadata, for a short time only, because no heartbeats run now.

        A leader with outdated metadata checks again when it is stable.
        """
        try:
            await self._cluster.refresh(topics, self._runtime.now_ms() + LOOK_PATIENCE_MS)
        except (DisconnectedError, KafkaTimeoutError) as error:
            log.warning("group %r: assigning with older metadata of the topics: %s", self._group_id, error)
            self._next_refresh_ms = 0

    # --- heartbeats ---

    def _start_heartbeats(self) -> None:
        if self._heartbeats is None or self._heartbeats.done():
            self._heartbeats = self._runtime.spawn(self._beat())

    async def _beat(self) -> None:
        try:
            await self._beat_on()
        except Exception as error:  # noqa: BLE001 (the next poll raises it)
            self._fatal = error

    async def _beat_on(self) -> None:
        while self.state is not ClassicMemberState.LEFT:
            await self._runtime.sleep_ms(self._config.heartbeat_interval_ms)
            if self.state not in BEATING:
                continue
            if self._late():
                await self.leave()
                self._lose()
                return
            await self._beat_once(self._runtime.now_ms() + self._config.session_timeout_ms)

    async def _beat_once(self, deadline_ms: int) -> None:
        generation_id = self.generation_id
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=generation_id,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        self._metrics.heartbeat_total += 1
        try:
            reply = await self._cluster.call(
                self._target,
                request,
                (0, 4),
                deadline_ms=deadline_ms,
                code_of=lambda answer: int(answer.error_code),
                lane=GROUP_LANE,
            )
        except KafkaError as error:
            self._metrics.heartbeat_failed_total += 1
            log.warning("group %r: heartbeat failed: %s", self._group_id, error)
            if isinstance(error, KafkaTimeoutError) and self.state in BEATING:
                self._lose()
            return
        if generation_id != self.generation_id or self.state not in BEATING:
            return
        if reply.error_code == E.REBALANCE_IN_PROGRESS:
            self._rebalance()
        elif reply.error_code in LOST_MEMBERSHIP:
            self._lose()
        elif reply.error_code == E.FENCED_INSTANCE_ID:
            self._fatal = GroupFencedError(
                f"another member of group {self._group_id!r} took group_instance_id {self._config.group_instance_id!r}",
                code=reply.error_code,
            )
            self._lose()
        elif reply.error_code != 0:
            log.warning("group %r: heartbeat refused: %s", self._group_id, error_for(reply.error_code))

    # --- leaving ---

    async def leave(self, deadline_ms: int | None = None) -> None:
        """Leave the group. A static member (group_instance_id) stays, so that it can return without a rebalance."""
        if self.member_id and self._config.group_instance_id is None and self.state is not ClassicMemberState.LEFT:
            request = LeaveGroupRequest(
                group_id=self._group_id,
                members=[MemberIdentity(member_id=self.member_id)],
                member_id=self.member_id,
            )
            patience_ms = self._config.request_timeout_ms
            error = await send_leave(self._cluster, self._target, request, (0, 5), patience_ms, deadline_ms)
            if error is not None:
                self._not_left(error)

    async def end(self, deadline_ms: int) -> None:
        try:
            if self._owns or self.assignment:
                self._owns = False
                await self._give_up("revoked" if self.generation_id >= 0 else "lost", self.assignment)
            await self.leave(deadline_ms)
        finally:  # also after a cancellation: no other code ends the heartbeats
            self.state = step(self.state, ClassicMemberEvent.LEAVE)
            self.generation_id, self.member_id, self._owner = -1, "", None
            if self._heartbeats is not None:
                self._heartbeats.cancel()
                self._heartbeats = None
