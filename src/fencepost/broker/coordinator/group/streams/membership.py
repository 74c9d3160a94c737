"""Streams groups at run time (KIP-1071): heartbeats, leaves, session timeouts and revocation timeouts.

This module has the timers of the groups and their configured topologies. It also has the state that Kafka does not
persist either: requests for a shutdown, and the epoch of the endpoints for queries.

Source: `GroupMetadataManager.streamsGroupHeartbeat` of Apache Kafka 4.3.1. Difference: assignments are made at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from fencepost.broker.coordinator.group.base.deadlines import DeadlineKind
from fencepost.broker.coordinator.group.base.draft import Draft
from fencepost.broker.coordinator.group.base.kind import KindContext, RecordedKind
from fencepost.broker.coordinator.group.base.member_states import MemberEvent, MemberState, member_step
from fencepost.broker.coordinator.group.base.records import GroupRecord, LogCodec
from fencepost.broker.coordinator.group.base.requests import (
    CommitOffsets,
    CommitTransactionalOffsets,
    FetchOffsets,
    Out,
    Refusal,
    unknown_member,
)
from fencepost.broker.coordinator.group.base.topics import metadata_hash
from fencepost.broker.coordinator.group.streams import decide
from fencepost.broker.coordinator.group.streams.assignor import StreamsAssignee, assign
from fencepost.broker.coordinator.group.streams.group import (
    LEAVE_EPOCH,
    NO_TASKS,
    StreamsGroup,
    StreamsGroupState,
    StreamsMember,
)
from fencepost.broker.coordinator.group.streams.reconciliation import reconcile
from fencepost.broker.coordinator.group.streams.requests import (
    DescribedStreamsGroup,
    EndpointPartitions,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
)
from fencepost.broker.coordinator.group.streams.topology import (
    ConfiguredTopology,
    InvalidTopology,
    Status,
    StatusCode,
    configure,
    required_topics,
)
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.logs.streams_group_log import (
    StreamsCurrentKey,
    StreamsGroupKey,
    StreamsGroupValue,
    StreamsMemberKey,
    StreamsTargetKey,
    StreamsTargetMemberKey,
    StreamsTargetValue,
    StreamsTaskId,
    StreamsTopologyKey,
    Topology,
    decode_streams_group_key,
    decode_streams_group_value,
    encode_streams_group_key,
    encode_streams_group_value,
)

__all__ = ["StreamsGroups"]

log = logging.getLogger("fencepost.broker")

_STANDBYS = "num.standby.replicas"


class StreamsGroups(RecordedKind[DescribedStreamsGroup, StreamsGroup, StreamsHeartbeat, StreamsHeartbeatReply]):
    """The streams groups of a coordinator."""

    name = "streams"
    log = LogCodec(
        (
            StreamsGroupKey,
            StreamsMemberKey,
            StreamsTargetKey,
            StreamsTargetMemberKey,
            StreamsCurrentKey,
            StreamsTopologyKey,
        ),
        encode_streams_group_key,
        decode_streams_group_key,
        encode_streams_group_value,
        decode_streams_group_value,
    )
    group_key = StreamsGroupKey
    max_size_setting = "group.streams.max.size"
    reply = StreamsHeartbeatReply
    described = DescribedStreamsGroup
    dead = StreamsGroupState.DEAD

    def __init__(self, context: KindContext) -> None:
        super().__init__(context)
        self._configured: dict[str, tuple[Topology, int, ConfiguredTopology]] = {}
        self._endpoint_epochs: dict[str, int] = {}
        self._shutdown: dict[str, str] = {}

    def new_group(self, group_id: str) -> StreamsGroup:
        return StreamsGroup(group_id)

    def load(self, now_ms: int, out: Out) -> None:
        for group in self._groups.values():
            for member in group.members.values():
                self._touch(now_ms, group.group_id, member)

    def check(self, request: StreamsHeartbeat) -> Refusal | None:
        return decide.check_request(request)

    def heartbeat(self, now_ms: int, request: StreamsHeartbeat, out: Out) -> StreamsHeartbeatReply:
        """Handle StreamsGroupHeartbeat v0, already checked."""
        group = self.find(request.group_id) or StreamsGroup(request.group_id)
        member = group.members.get(request.member_id)
        if member is None and request.member_epoch != 0:
            return self.refusing(*unknown_member(group.group_id, request.member_id))
        if request.shutdown:
            self._shutdown[group.group_id] = request.member_id
        if request.member_epoch == LEAVE_EPOCH and member is not None:
            self._fence(group, member, out)
            return StreamsHeartbeatReply(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
        refusal = self._full(group, request.member_id) if member is None else decide.check_epoch(member, request)
        if refusal is not None:
            return self.refusing(*refusal)
        if member is None:
            member_step(MemberState.ABSENT, MemberEvent.JOINED)
        before = member or StreamsMember(member_id=request.member_id)
        draft = Draft[StreamsGroup](group)
        moved = self._move(now_ms, draft, before, request)
        if isinstance(moved, Refusal):
            return self.refusing(*moved)
        out.records.extend(draft.records)
        after, configured = moved
        self._touch(now_ms, group.group_id, after)
        return self._answer(draft.group, before, after, request, configured)

    def expire(self, now_ms: int, group: StreamsGroup, member: StreamsMember, kind: DeadlineKind, out: Out) -> None:
        if kind == DeadlineKind.SESSION or member.state is MemberState.UNREVOKED:
            self._fence(group, member, out)

    # --- offsets ---

    def refused_commits(
        self, now_ms: int, request: CommitOffsets | CommitTransactionalOffsets
    ) -> Mapping[tuple[str, int], ErrorCode]:
        return decide.refused_commits(self._groups[request.group_id], request)

    def check_fetch(self, request: FetchOffsets) -> ErrorCode:
        return decide.check_fetch(self._groups[request.group_id], request.member_id, request.member_epoch)

    # --- the group as a whole ---

    def delete(self, group_id: str, out: Out) -> None:
        for key in (StreamsTargetKey(group_id), StreamsTopologyKey(group_id), StreamsGroupKey(group_id)):
            out.records.append(GroupRecord(key, None))
        for table in (self._configured, self._endpoint_epochs, self._shutdown):
            table.pop(group_id, None)

    def describe(self, group_id: str) -> DescribedStreamsGroup | None:
        group = self.find(group_id)
        if group is None:
            return None
        return DescribedStreamsGroup(
            group_id=group_id,
            state=group.state,
            epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            topology=group.topology,
            members=[(member, group.target_of(member.member_id)) for member in group.members.values()],
        )

    # --- one heartbeat ---

    def _move(
        self, now_ms: int, draft: Draft[StreamsGroup], before: StreamsMember, request: StreamsHeartbeat
    ) -> tuple[StreamsMember, ConfiguredTopology] | Refusal:
        """Return the member one step closer to its target, or the refusal."""
        group_id, member_id = request.group_id, request.member_id
        wants = decide.merge(before.wants, request)
        changed = member_id not in draft.group.members or wants != before.wants
        if changed:
            draft.write(StreamsMemberKey(group_id, member_id), wants)
        refusal = self._learn_topology(draft, request.topology)
        if refusal is not None:
            return refusal
        try:
            configured = self._configure(draft.group)
        except InvalidTopology as error:
            return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, str(error))
        wrong = decide.check_owned(configured.tasks, request.owned) if configured.is_ready else None
        if wrong is not None:
            return wrong
        self._next_epoch(draft, configured, forced=changed)
        self._assign(now_ms, draft, configured)
        member = draft.group.members[member_id]
        after = reconcile(draft.group, member, request.owned)
        if after.current() != before.current() or member_id not in self._members_written(group_id):
            draft.write(StreamsCurrentKey(group_id, member_id), after.current())
        return draft.group.members[member_id], configured

    def _members_written(self, group_id: str) -> Iterable[str]:
        group = self.find(group_id)
        return () if group is None else group.members

    @staticmethod
    def _learn_topology(draft: Draft[StreamsGroup], topology: Topology | None) -> Refusal | None:
        known = draft.group.topology
        if topology is None:
            return None if known is not None else Refusal(ErrorCode.INVALID_REQUEST, "The group has no topology.")
        if known is None:
            draft.write(StreamsTopologyKey(draft.group.group_id), topology)
        elif known.epoch <= topology.epoch and known != topology:
            return Refusal(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return None

    def _configure(self, group: StreamsGroup) -> ConfiguredTopology:
        """Return the topology's configuration for the present topics. Raises InvalidTopology."""
        topology = group.topology
        if topology is None:
            return ConfiguredTopology()
        known = self._configured.get(group.group_id)
        if known is not None and known[:2] == (topology, self._topics.version):
            return known[2]

        def partitions_of(name: str) -> int | None:
            found = self._topics.find(name)
            return None if found is None else found[1]

        configured = configure(topology, partitions_of)
        self._configured[group.group_id] = (topology, self._topics.version, configured)
        if configured.problem is not None:
            log.info("streams group %s: %s", group.group_id, configured.problem.detail)
        return configured

    def _next_epoch(self, draft: Draft[StreamsGroup], configured: ConfiguredTopology, *, forced: bool) -> None:
        """Raise the group's epoch if `forced`, or if its topics, topology or settings have changed."""
        group, topology = draft.group, draft.group.topology
        digest = 0 if topology is None else metadata_hash(self._topics, required_topics(topology))
        validated = topology.epoch if topology is not None and configured.is_ready else -1
        configs = ((_STANDBYS, str(self._settings.of_group(group.group_id).number("streams.num.standby.replicas"))),)
        now = (digest, validated, configs)
        if forced or now != (group.metadata_hash, group.validated_topology_epoch, group.assignment_configs):
            draft.write(StreamsGroupKey(group.group_id), StreamsGroupValue(group.epoch + 1, *now))

    def _assign(self, now_ms: int, draft: Draft[StreamsGroup], configured: ConfiguredTopology) -> None:
        """Make the target assignment of the group's epoch, if it does not exist yet."""
        group = draft.group
        if group.epoch <= group.assignment_epoch:
            return
        members = {
            member_id: StreamsAssignee(member_id, member.wants.process_id, group.target_of(member_id))
            for member_id, member in sorted(group.members.items())
        }
        shares = dict.fromkeys(members, NO_TASKS)
        if configured.is_ready and group.topology is not None:
            stateful = {part.subtopology_id for part in group.topology.subtopologies if part.is_stateful}
            standbys = self._settings.of_group(group.group_id).number("streams.num.standby.replicas")
            shares = assign(members, configured.tasks, stateful, standbys)
        for member_id, share in sorted(shares.items()):
            if share != group.target.get(member_id):
                draft.write(StreamsTargetMemberKey(group.group_id, member_id), share)
        draft.write(StreamsTargetKey(group.group_id), StreamsTargetValue(group.epoch, now_ms))

    def _answer(
        self,
        group: StreamsGroup,
        before: StreamsMember,
        after: StreamsMember,
        request: StreamsHeartbeat,
        configured: ConfiguredTopology,
    ) -> StreamsHeartbeatReply:
        status = []
        topology = group.topology
        if topology is not None and after.wants.topology_epoch < topology.epoch:
            detail = f"The member's topology has epoch {after.wants.topology_epoch}, the group's {topology.epoch}."
            status.append(Status(StatusCode.STALE_TOPOLOGY, detail))
        if configured.problem is not None:
            status.append(configured.problem)
        if group.group_id in self._shutdown:
            detail = f"Member {self._shutdown[group.group_id]} asked all members to shut down, because it cannot go on."
            status.append(Status(StatusCode.SHUTDOWN_APPLICATION, detail))
        moved = request.member_epoch == 0 or after.assigned != before.assigned
        epoch = self._endpoint_epochs.get(group.group_id, 0)
        if moved and after.wants.endpoint is not None:
            epoch = self._endpoint_epochs[group.group_id] = epoch + 1
        return StreamsHeartbeatReply(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._settings.of_group(group.group_id).number("streams.heartbeat.interval.ms"),
            status=status,
            tasks=after.assigned if moved else None,
            endpoint_epoch=epoch,
            endpoints=self._endpoints(group) if epoch != request.endpoint_epoch else None,
            missing=configured.missing,
        )

    # --- endpoints for queries ---

    def _endpoints(self, group: StreamsGroup) -> list[EndpointPartitions]:
        return [
            EndpointPartitions(
                member.wants.endpoint,
                self._partitions(group, member.assigned.active),
                self._partitions(group, member.assigned.standby),
            )
            for member in group.members.values()
            if member.wants.endpoint is not None
        ]

    def _partitions(self, group: StreamsGroup, tasks: Iterable[StreamsTaskId]) -> list[tuple[str, list[int]]]:
        """Return the source partitions that the tasks read."""
        partitions_by_topic: dict[str, list[int]] = {}
        parts = {} if group.topology is None else {part.subtopology_id: part for part in group.topology.subtopologies}
        for subtopology, partition in sorted(tasks):
            part = parts.get(subtopology)
            names = (
                ()
                if part is None
                else (*part.source_topics, *(source.name for source in part.repartition_source_topics))
            )
            for name in names:
                topic = self._topics.find(name)
                if topic is not None and partition < topic[1]:
                    partitions_by_topic.setdefault(name, []).append(partition)
        return list(partitions_by_topic.items())

    # --- leaving members ---

    def _fence(self, group: StreamsGroup, member: StreamsMember, out: Out) -> None:
        """Remove a member from the group. The other members are assigned anew with their next heartbeats."""
        member_step(member.state, MemberEvent.REMOVED)
        for key in (StreamsCurrentKey, StreamsTargetMemberKey, StreamsMemberKey):
            out.records.append(GroupRecord(key(group.group_id, member.member_id), None))
        value = StreamsGroupValue(
            group.epoch + 1, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs
        )
        out.records.append(GroupRecord(StreamsGroupKey(group.group_id), value))
        if len(group.members) == 1:
            self._shutdown.pop(group.group_id, None)

    def _touch(self, now_ms: int, group_id: str, member: StreamsMember) -> None:
        timeout_ms = self._settings.of_group(group_id).number("streams.session.timeout.ms")
        self._deadlines.set(self._deadline(DeadlineKind.SESSION, group_id, member.member_id), now_ms + timeout_ms)
        revocation = self._deadline(DeadlineKind.REVOCATION, group_id, member.member_id)
        if member.state is MemberState.UNREVOKED:
            self._deadlines.set_if_absent(revocation, now_ms + member.wants.rebalance_timeout_ms)
        else:
            self._deadlines.cancel(revocation)
