"""Admin calls for the placement of partitions (KIP-455) and the metadata quorum (KIP-595)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.arguments import Int32, OrMinusOne
from fencepost.client.admin.base import AdminBase
from fencepost.client.net.answers import refusal
from fencepost.client.net.cluster import AnyNode, Controller
from fencepost.client.types import K, TopicPartition
from fencepost.errors import KafkaError, error_for
from fencepost.protocol.messages import alter_partition_reassignments as ar
from fencepost.protocol.messages import describe_quorum as dq
from fencepost.protocol.messages import list_partition_reassignments as lr

__all__ = ["CONTROLLER_LANE", "AdminPlacement", "PartitionReassignment", "Quorum", "QuorumReplica"]

_METADATA: Final = "__cluster_metadata"
CONTROLLER_LANE: Final = "controller"
"""For requests that the broker passes on to the controller. If that hangs, other requests must not wait for it."""


class PartitionReassignment(NamedTuple):
    """A partition that moves: the brokers that have it now, those that are added, and those that are removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class QuorumReplica(NamedTuple):
    """A node's copy of the cluster metadata. Times are in ms since 1970, -1 if not reported (below v1)."""

    replica_id: int
    log_end_offset: int
    last_fetch_ms: OrMinusOne
    last_caught_up_ms: OrMinusOne


class Quorum(NamedTuple):
    """The metadata quorum: leader, voters and observers."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]

    def clock_ahead_ms(self, asked_ms: float, answered_ms: float) -> int | None:
        """Return how far the leader's clock is ahead of the local one, below 0 if it is behind (KIP-836).

        Args:
            asked_ms: Local time in ms since 1970, before the request.
            answered_ms: Local time in ms since 1970, after the response. A difference within the time between them
                counts as 0.

        Returns:
            Milliseconds, or None if the leader does not report its time.
        """
        leader_times = [voter.last_caught_up_ms for voter in self.voters if voter.replica_id == self.leader_id]
        if not leader_times or leader_times[0] < 0:
            return None
        return round(max(leader_times[0] - answered_ms, 0) + min(leader_times[0] - asked_ms, 0))


class AdminPlacement(AdminBase):
    """Calls of `AdminCore` for placement and the quorum."""

    async def alter_partition_reassignments(
        self, replicas: Mapping[K, Sequence[Int32] | None], *, api_timeout_ms: int | None = None
    ) -> None:
        """Start to move partitions to other brokers. The call returns when the reassignment has begun.

        If some partitions are rejected, the others are still moved.

        Args:
            replicas: Brokers by partition, the preferred leader first; None cancels a reassignment.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            KafkaError: For the first rejected partition: a broker does not exist (39), or the partition does not move
                (85).
            UnknownTopicOrPartitionError: The partition does not exist.
            ClusterAuthorizationError: The principal may not move partitions.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        wanted: defaultdict[str, list[ar.ReassignablePartition]] = defaultdict(list)
        for (topic, partition), brokers in replicas.items():
            wanted[topic].append(ar.ReassignablePartition(partition_index=partition, replicas=brokers))
        request = ar.AlterPartitionReassignmentsRequest(
            timeout_ms=self.cluster.server_timeout_ms(deadline_ms),
            topics=[ar.ReassignableTopic(name=name, partitions=partitions) for name, partitions in wanted.items()],
        )
        unanswered: list[KafkaError] = []
        reply: ar.AlterPartitionReassignmentsResponse = await self.cluster.call(
            Controller(),
            request,
            (0, 1),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(answer.error_code),
            unanswered=unanswered,
        )
        if reply.error_code != 0:
            raise refusal(reply.error_code, "reassign partitions", reply.error_message, unanswered)
        for answered in reply.responses:
            for each in answered.partitions:
                if each.error_code != 0:
                    operation = f"reassign {answered.name}-{each.partition_index}"
                    raise refusal(each.error_code, operation, each.error_message, unanswered)

    async def list_partition_reassignments(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, api_timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the partitions that are moving, all or those among `partitions`.

        Raises:
            ClusterAuthorizationError: The principal may not list reassignments.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        requested: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions or ():
            requested[topic].append(partition)
        topics = [
            lr.ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in requested.items()
        ]
        request = lr.ListPartitionReassignmentsRequest(
            timeout_ms=self.cluster.server_timeout_ms(deadline_ms), topics=None if partitions is None else topics
        )
        reply: lr.ListPartitionReassignmentsResponse = await self.cluster.call(
            Controller(), request, (0, 0), deadline_ms=deadline_ms, code_of=lambda answer: int(answer.error_code)
        )
        if reply.error_code != 0:
            raise error_for(reply.error_code, "list reassignments", reply.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): PartitionReassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in reply.topics
            for each in topic.partitions
        }

    async def describe_metadata_quorum(self, *, api_timeout_ms: int | None = None) -> Quorum:
        """Return the leader of the cluster metadata, and the progress of each node.

        Raises:
            ClusterAuthorizationError: The principal may not describe the quorum.
            UnsupportedVersionError: The cluster uses ZooKeeper.
        """
        topic = dq.TopicData(topic_name=_METADATA, partitions=[dq.PartitionData(partition_index=0)])
        reply: dq.DescribeQuorumResponse = await self.cluster.call(
            AnyNode(),
            dq.DescribeQuorumRequest(topics=[topic]),
            (0, 2),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=_quorum_code,
            lane=CONTROLLER_LANE,
        )
        code = _quorum_code(reply)
        if code != 0:
            raise error_for(code, "describe the quorum", reply.error_message)
        partition = reply.topics[0].partitions[0]
        return Quorum(
            partition.leader_id,
            partition.leader_epoch,
            partition.high_watermark,
            tuple(map(_replica, partition.current_voters)),
            tuple(map(_replica, partition.observers)),
        )


def _quorum_code(reply: dq.DescribeQuorumResponse) -> int:
    return reply.error_code or next((each.error_code for topic in reply.topics for each in topic.partitions), 0)


def _replica(state: dq.ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id, state.log_end_offset, state.last_fetch_timestamp, state.last_caught_up_timestamp
    )
