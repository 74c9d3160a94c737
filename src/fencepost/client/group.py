"""Membership in a classic consumer group: join, sync, heartbeat, leave (eager rebalancing).

Each rebalance gives up all partitions first and hands out new ones after it. Heartbeats run in a task of their own; a
consumer that does not poll for max_poll_interval_ms leaves the group, so that its partitions go on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from fencepost.client.assignors import (
    assignor,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from fencepost.client.cluster import Cluster, Coordinator, CoordinatorKind
from fencepost.client.member_states import MemberEvent, MemberState, step
from fencepost.client.runtime import TaskHandle
from fencepost.client.types import GroupMetadata, TopicPartition
from fencepost.config import ConsumerConfig
from fencepost.errors import GroupFencedError, KafkaError, KafkaTimeoutError, error_for
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages.heartbeat import HeartbeatRequest
from fencepost.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fencepost.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fencepost.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

log = logging.getLogger("fencepost.client.group")

PROTOCOL_TYPE: Final = "consumer"
MISSING_TOPIC_CHECK_MS: Final = 1_000  # how often the leader looks for a subscribed topic that does not exist yet
LOST_MEMBERSHIP: Final = (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION)

# kind ("revoked", "assigned", "lost") and the partitions; awaited before the rebalance goes on
Listener = Callable[[str, list[TopicPartition]], Awaitable[None]]


class Membership:
    """One member. `assignment` is what it owns; `generation_id` is -1 outside the group."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, listener: Listener) -> None:
        self.state = MemberState.UNJOINED
        self.generation_id = -1
        self.member_id = ""
        self.assignment: list[TopicPartition] = []
        self.revocations = 0  # how often partitions were taken away or lost
        self._owner: GroupMetadata | None = None  # who we were when the assignment was handed out
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._config = config
        self._group_id = config.group_id or ""
        self._target = Coordinator(CoordinatorKind.GROUP, self._group_id)
        self._listener = listener
        self._topics: list[str] = []
        self._counts: dict[str, int] = {}  # partitions per topic when this leader last assigned them
        self._leading = False
        self._look_again_ms = 0
        self._owned_before = False
        self._last_poll_ms = self._runtime.now_ms()
        self._heartbeats: TaskHandle | None = None
        self._fenced: KafkaError | None = None
        for name in config.partition_assignment_strategy:
            assignor(name)  # fail now rather than in a rebalance

    def subscribe(self, topics: Sequence[str]) -> None:
        """The topics wanted from now on; the next poll joins with them."""
        self._topics = sorted(set(topics))
        self.state = step(self.state, MemberEvent.REBALANCE)

    def metadata(self) -> GroupMetadata:
        """For send_offsets_to_transaction and commits: who owns the partitions that are being read.

        A member that finds out in the background that it was thrown out must not forget who it was: with an unknown
        member and no generation, the coordinator would take its offsets unchecked, and records would be doubled.
        """
        if self._owner is not None:
            return self._owner
        return GroupMetadata(self._group_id, self.generation_id, self.member_id, self._config.group_instance_id)

    def polled(self) -> None:
        """The application is alive. Raises GroupFencedError when another member took our group.instance.id."""
        self._last_poll_ms = self._runtime.now_ms()
        if self._fenced is not None:
            raise self._fenced
        if not self._leading or self.state is not MemberState.STABLE:
            return
        if self._topics_changed():
            self.state = step(self.state, MemberEvent.REBALANCE)
        elif self._runtime.now_ms() >= self._look_again_ms:
            missing = 0 in self._counts.values()
            wait_ms = MISSING_TOPIC_CHECK_MS if missing else self._cluster.config.metadata_max_age_ms
            self._look_again_ms = self._runtime.now_ms() + wait_ms
            self._runtime.spawn(self._cluster.refresh_quietly(list(self._counts), self._look_again_ms))

    def _topics_changed(self) -> bool:
        for topic, count in self._counts.items():
            known = self._cluster.topics.get(topic)
            if known is not None and known.error_code == 0 and len(known.partitions) != count:
                return True
        return False

    @property
    def settled(self) -> bool:
        """Whether the assignment is current."""
        return self.state is MemberState.STABLE

    async def settle(self, deadline_ms: int) -> bool:
        """Join until there is an assignment; False when the time is over (going on later). Raises final errors."""
        attempt = 0
        while self.state is not MemberState.STABLE:
            if self._owned_before:
                await self._give_up("revoked" if self.generation_id >= 0 else "lost")
            self.state = step(self.state, MemberEvent.JOIN)
            error: KafkaError | None = None
            try:
                error = await self._join_and_sync()
            except KafkaTimeoutError as failure:
                error = failure
            finally:
                if self.state in (MemberState.JOINING, MemberState.SYNCING):
                    self.state = step(self.state, MemberEvent.LOST)
            if error is None and self.state is MemberState.STABLE:
                break
            if self._runtime.now_ms() >= deadline_ms:
                return False
            if error is not None:
                await self._cluster.pause(attempt, deadline_ms, f"group {self._group_id!r}", error)
                attempt += 1
        if not self._owned_before:
            self._owned_before = True
            self._owner = GroupMetadata(
                self._group_id, self.generation_id, self.member_id, self._config.group_instance_id
            )
            await self._listener("assigned", list(self.assignment))
        return True

    async def _give_up(self, kind: str) -> None:
        self._owned_before = False
        given_up, self.assignment = self.assignment, []
        self.revocations += 1 if given_up else 0
        await self._listener(kind, given_up)

    # --- join and sync ---

    async def _join_and_sync(self) -> KafkaError | None:
        """One try. None: STABLE, or to be tried again at once; an error to back off for otherwise."""
        joined = await self._join()
        if isinstance(joined, KafkaError) or joined is None:
            return joined
        self.state = step(self.state, MemberEvent.JOINED)
        self.generation_id, self.member_id = joined.generation_id, joined.member_id
        self._leading = joined.leader == joined.member_id
        assignments = await self._assign(joined) if self._leading else []
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        synced: SyncGroupResponse = await self._call(request, (0, 5), self._config.max_poll_interval_ms)
        if synced.error_code != 0:
            return self._refused(synced.error_code, "SyncGroup")
        if self.state is not MemberState.SYNCING:
            return None
        self.assignment = sorted(decode_assignment(synced.assignment))
        self.state = step(self.state, MemberEvent.SYNCED)
        self._start_heartbeats()
        return None

    async def _join(self) -> JoinGroupResponse | KafkaError | None:
        data = encode_subscription(self._topics)
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._config.session_timeout_ms,
            rebalance_timeout_ms=self._config.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=data)
                for name in self._config.partition_assignment_strategy
            ],
        )
        reply: JoinGroupResponse = await self._call(request, (1, 9), self._config.max_poll_interval_ms)
        if reply.error_code == E.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            self.state = step(self.state, MemberEvent.REBALANCE)
            return None
        if reply.error_code != 0:
            return self._refused(reply.error_code, "JoinGroup")
        return reply

    async def _call(
        self, request: JoinGroupRequest | SyncGroupRequest, versions: tuple[int, int], server_ms: int
    ) -> Any:
        """A request that the coordinator may hold until all members are there."""
        patience_ms = server_ms + self._config.request_timeout_ms
        lowest = (
            5 if self._config.group_instance_id is not None and isinstance(request, JoinGroupRequest) else versions[0]
        )
        return await self._cluster.call(
            self._target,
            request,
            (lowest, versions[1]),
            deadline_ms=self._runtime.now_ms() + patience_ms,
            server_ms=server_ms,
            code_of=lambda answer: int(answer.error_code),
        )

    def _refused(self, code: int, what: str) -> KafkaError | None:
        """What a refusal means: try again (None), or an error to raise."""
        error = error_for(code, f"{what} of group {self._group_id!r}")
        if code == E.REBALANCE_IN_PROGRESS:
            self.state = step(self.state, MemberEvent.REBALANCE)
            return None
        if code in LOST_MEMBERSHIP:
            self._lose()
            return None
        raise error

    def _lose(self) -> None:
        self.state = step(self.state, MemberEvent.LOST)
        self.generation_id, self.member_id = -1, ""

    async def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """What this leader gives each member."""
        members = {one.member_id: decode_subscription(one.metadata) for one in joined.members}
        topics = sorted({topic for wanted in members.values() for topic in wanted})
        deadline_ms = self._runtime.now_ms() + self._config.default_api_timeout_ms
        await self._cluster.refresh(topics, deadline_ms)
        known = {name: self._cluster.topics.get(name) for name in topics}
        counts = {name: len(topic.partitions) for name, topic in known.items() if topic is not None}
        self._counts = {name: counts.get(name, 0) for name in topics}
        assigned = assignor(joined.protocol_name or "range")(members, counts)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
            for member, partitions in assigned.items()
        ]

    # --- heartbeats ---

    def _start_heartbeats(self) -> None:
        if self._heartbeats is None or self._heartbeats.done():
            self._heartbeats = self._runtime.spawn(self._beat())

    async def _beat(self) -> None:
        while self.state is not MemberState.LEFT:
            await self._runtime.sleep_ms(self._config.heartbeat_interval_ms)
            if self.state is not MemberState.STABLE:
                continue
            now_ms = self._runtime.now_ms()
            if now_ms - self._last_poll_ms > self._config.max_poll_interval_ms:
                log.warning(
                    "group %r: no poll for max_poll_interval_ms (%d ms); leaving so that others can go on",
                    self._group_id,
                    self._config.max_poll_interval_ms,
                )
                await self.leave()
                self._lose()
                return
            await self._beat_once(now_ms + self._config.session_timeout_ms)

    async def _beat_once(self, deadline_ms: int) -> None:
        generation_id = self.generation_id
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=generation_id,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        try:
            reply = await self._cluster.call(
                self._target,
                request,
                (0, 4),
                deadline_ms=deadline_ms,
                code_of=lambda answer: int(answer.error_code),
            )
        except KafkaTimeoutError:
            self._lose()
            return
        except KafkaError as error:
            log.warning("group %r: heartbeat failed: %s", self._group_id, error)
            return
        if generation_id != self.generation_id or self.state is not MemberState.STABLE:
            return
        if reply.error_code == E.REBALANCE_IN_PROGRESS:
            self.state = step(self.state, MemberEvent.REBALANCE)
        elif reply.error_code in LOST_MEMBERSHIP:
            self._lose()
        elif reply.error_code == E.FENCED_INSTANCE_ID:
            self._fenced = GroupFencedError(
                f"another member of group {self._group_id!r} took group_instance_id {self._config.group_instance_id!r}",
                code=reply.error_code,
            )
            self._lose()

    # --- leaving ---

    async def leave(self) -> None:
        """Give up the membership; a static member (group_instance_id) stays, to come back without a rebalance."""
        if self.member_id and self._config.group_instance_id is None and self.state is not MemberState.LEFT:
            request = LeaveGroupRequest(
                group_id=self._group_id,
                members=[MemberIdentity(member_id=self.member_id)],
                member_id=self.member_id,
            )
            try:
                await self._cluster.call(
                    self._target,
                    request,
                    (0, 5),
                    deadline_ms=self._runtime.now_ms() + self._config.request_timeout_ms,
                    code_of=lambda answer: int(answer.error_code),
                )
            except KafkaError as error:
                log.info("group %r: could not say goodbye: %s", self._group_id, error)

    async def end(self) -> None:
        """Leave for good: partitions are given up, heartbeats stop."""
        if self._owned_before:
            await self._give_up("revoked")
        await self.leave()
        self.state = step(self.state, MemberEvent.LEAVE)
        self.generation_id, self.member_id = -1, ""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            self._heartbeats = None
