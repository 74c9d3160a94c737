"""Membership of a share group (KIP-932): heartbeats send the subscription and receive the assignment.

Several members read a partition at the same time, so a member adopts an assignment at once and revokes nothing first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from fencepost.client.group.committed_offsets import GROUP_LANE
from fencepost.client.group.consumer_protocol import (
    FENCED,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_PATIENCE_MS,
    WAIT_STEP_MS,
    new_member_id,
)
from fencepost.client.group.leaving import send_leave
from fencepost.client.group.member import LOOK_PATIENCE_MS
from fencepost.client.metrics import ShareConsumerMetrics
from fencepost.client.net.cluster import Cluster, Coordinator, CoordinatorKind
from fencepost.client.net.runtime import Event, TaskHandle
from fencepost.client.types import TopicPartition
from fencepost.config import ShareConsumerConfig
from fencepost.errors import ClosedError, DisconnectedError, KafkaError, KafkaTimeoutError, RetriableError, error_for
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.logs.consumer_group_log import TopicIdPartition
from fencepost.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

log = logging.getLogger("fencepost.client.group")

FIRST_INTERVAL_MS: Final = 5_000  # until the first response sets it
_SWITCHED_OFF: Final = "the brokers have share groups switched off; Apache Kafka has them on from share.version=1 (4.2)"


class ShareMember:
    """One member of a share group.

    `epoch` is 0 outside the group. `partitions` has the assigned partitions and their names.
    """

    def __init__(
        self, cluster: Cluster, config: ShareConsumerConfig, metrics: ShareConsumerMetrics, changed: Event
    ) -> None:
        """Create a member that is not in the group.

        `changed` is set if the assignment changed, or an error must be raised.
        """
        self.epoch = JOIN_EPOCH
        self.partitions: dict[TopicIdPartition, TopicPartition] = {}
        self.topics: list[str] = []
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._config = config
        self._group_id = config.group_id or ""
        self.member_id = new_member_id(self._runtime)
        self._target = Coordinator(CoordinatorKind.GROUP, self._group_id)
        self._metrics = metrics
        self._changed = changed
        self._wake = self._runtime.event()
        self._goal: set[TopicIdPartition] = set()
        self._may_be_member = False
        # Heartbeats without a response may still arrive. Their response may have an assignment that no caller receives.
        self._has_strays = False
        self._known: list[str] | None = None  # topics that the coordinator has; None: the next heartbeat sends them
        self._interval_ms: float = FIRST_INTERVAL_MS
        self._last_poll_ms = self._runtime.now_ms()
        self._beating: TaskHandle | None = None
        self._fatal: Exception | None = None

    def subscribe(self, topics: Sequence[str]) -> None:
        """Replace the subscription."""
        self.topics = sorted(set(topics))
        self._wake.set()

    def polled(self) -> None:
        """Record that the application is alive, and take part in the group.

        Raises the error that ended the membership. The next poll joins again.
        """
        self._last_poll_ms = self._runtime.now_ms()
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise fatal
        if self._beating is None or self._beating.done():
            self._beating = self._runtime.spawn(self._beat())

    def describe(self) -> str:
        """Return the state in one line, for logs and tests."""
        read = len(self.partitions)
        return f"share group {self._group_id!r}: epoch {self.epoch}, member {self.member_id!r}, {read} read"

    async def _beat(self) -> None:
        while True:
            self._wake.clear()
            if self._runtime.now_ms() - self._last_poll_ms > self._config.max_poll_interval_ms:
                log.warning(
                    "share group %r: no poll for max_poll_interval_ms (%d ms); leaving, others read on",
                    self._group_id,
                    self._config.max_poll_interval_ms,
                )
                await self.leave()
                return
            pause_ms = self._interval_ms
            try:
                pause_ms = await self._beat_once()
            except RetriableError as error:
                self._metrics.heartbeat_failed_total += 1
                log.warning("share group %r: heartbeat failed: %s", self._group_id, error)
                self._cluster.forget_coordinator(self._target)
                self._known = None
                pause_ms = min(pause_ms, WAIT_STEP_MS)
            except ClosedError:
                return
            except Exception as error:  # noqa: BLE001 (the next poll raises it)
                self._fatal = error
                self._forget()
                self._changed.set()
                return
            await self._wake.wait(pause_ms)

    async def _beat_once(self) -> float:
        """Send one heartbeat. Return the wait before the next, in ms.

        Raises errors that end the membership, and errors of lost responses.
        """
        topics = list(self.topics)

        def request() -> ShareGroupHeartbeatRequest:
            known, self._known = None if self._has_strays else self._known, None
            return ShareGroupHeartbeatRequest(
                group_id=self._group_id,
                member_id=self.member_id,
                member_epoch=self.epoch,
                rack_id=(self._config.client_rack or None) if known is None else None,
                subscribed_topic_names=topics if known is None or known != topics else None,
            )

        self._metrics.heartbeat_total += 1
        self._may_be_member = True
        unanswered: list[KafkaError] = []
        try:
            reply: ShareGroupHeartbeatResponse = await self._cluster.call(
                self._target,
                request(),
                (1, 1),
                deadline_ms=self._runtime.now_ms() + self._config.request_timeout_ms,
                code_of=lambda answer: int(answer.error_code),
                lane=GROUP_LANE,
                again=request,
                unanswered=unanswered,
            )
        finally:
            self._has_strays = self._has_strays or bool(unanswered)
        code = reply.error_code
        if code in FENCED:
            log.warning("%s; joining again", error_for(code, f"share group {self._group_id!r}", reply.error_message))
            self._metrics.heartbeat_failed_total += 1
            self._forget()
            return 0
        if code != 0:
            message = reply.error_message or (_SWITCHED_OFF if code == E.UNSUPPORTED_VERSION else None)
            raise error_for(code, f"share group {self._group_id!r}", message)
        self._known = topics
        self.epoch = reply.member_epoch
        self._interval_ms = reply.heartbeat_interval_ms or self._interval_ms
        if reply.assignment is not None:
            goal = {
                TopicIdPartition(topic.topic_id, number)
                for topic in reply.assignment.topic_partitions
                if topic.topic_id is not None
                for number in topic.partitions
            }
            self._metrics.rebalance_total += goal != self._goal
            self._goal = goal
        await self._look_up_names(topics)
        return self._interval_ms if len(self.partitions) == len(self._goal) else min(self._interval_ms, WAIT_STEP_MS)

    async def _look_up_names(self, topics: list[str]) -> None:
        """Look up the names of assigned topics, and report subscribed topics that do not exist."""
        deadline_ms = self._runtime.now_ms() + LOOK_PATIENCE_MS
        known = self._cluster.topics
        missing = [name for name in topics if name not in known or known[name].error_code != 0]
        try:
            if missing:
                await self._cluster.refresh(missing, deadline_ms)
                for name in missing:
                    self._report_missing_topic(name)
            unnamed = {partition.topic_id for partition in self._goal} - set(self._names())
            if unnamed:
                await self._cluster.learn_topic_ids(unnamed, deadline_ms)
        except (DisconnectedError, KafkaTimeoutError) as error:
            log.warning("share group %r: no metadata of its topics yet: %s", self._group_id, error)
        names = self._names()
        partitions = {
            partition: TopicPartition(names[partition.topic_id], partition.partition)
            for partition in self._goal
            if partition.topic_id in names
        }
        if partitions != self.partitions:
            self.partitions = partitions
            self._changed.set()

    def _report_missing_topic(self, name: str) -> None:
        found, operation = self._cluster.topics.get(name), f"topic {name!r}"
        if found is not None and found.error_code != 0:
            self._cluster.lasting_errors.record(operation, error_for(found.error_code, operation))
        else:
            self._cluster.lasting_errors.succeeded(operation)

    def _names(self) -> dict[object, str]:
        return {topic.topic_id: name for name, topic in self._cluster.topics.items() if topic.topic_id is not None}

    def _forget(self) -> None:
        """Forget the membership. Records in hand stay locked, and can still be acknowledged."""
        self.epoch, self._known = JOIN_EPOCH, None
        self._goal, self.partitions = set(), {}

    async def leave(self, deadline_ms: int | None = None) -> None:
        """Leave the group. Nothing is read until the next heartbeat."""
        self._forget()
        if not self._may_be_member:
            return
        self._may_be_member = False
        request = ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH
        )
        error = await send_leave(self._cluster, self._target, request, (1, 1), LEAVE_PATIENCE_MS, deadline_ms)
        if error is not None:
            log.warning("share group %r: could not leave (%s); its session ends by time", self._group_id, error)

    async def end(self, deadline_ms: int) -> None:
        """Leave permanently. Waits for brokers until the deadline at most."""
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
        await self.leave(deadline_ms)
