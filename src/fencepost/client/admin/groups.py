"""Admin calls for groups of the classic and the consumer protocol: list, describe, offsets, delete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.client.admin.base import AdminBase
from fencepost.client.group.assignors_wire import decode_assignment, decode_subscription
from fencepost.client.group.committed_offsets import commit, fetch_committed
from fencepost.client.net import list_offsets as offsets
from fencepost.client.net.answers import only
from fencepost.client.net.cluster import Coordinator, CoordinatorKind
from fencepost.client.types import GroupMetadata, Isolation, K, OffsetAndMetadata, TopicPartition
from fencepost.errors import GroupFencedError, ProtocolError, UnsupportedVersionError, UsageError, error_for
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages import consumer_group_describe as cg
from fencepost.protocol.messages import delete_groups as dg
from fencepost.protocol.messages import describe_groups as gd
from fencepost.protocol.messages import leave_group as le
from fencepost.protocol.messages import list_groups as lg
from fencepost.protocol.messages import offset_delete as od

CONSUMER_PROTOCOL: Final = "consumer"
RESET_POINTS: Final = {"earliest": offsets.EARLIEST, "latest": offsets.LATEST}


class GroupListing(NamedTuple):
    """A listed group. State and type are "" if the broker is too old to report them."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class GroupMember(NamedTuple):
    """A member of a group.

    `metadata` and `assignment` are the bytes of a classic member, b"" in the consumer protocol. `subscribed` and
    `assigned` are their contents for consumers. `target` is the member's part of the target assignment and `epoch` its
    member epoch (consumer protocol; -1: classic).
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    subscribed: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    target: tuple[TopicPartition, ...] = ()
    epoch: int = -1


class GroupDescription(NamedTuple):
    """A group. An unknown group has state "Dead". `protocol` is the assignor's name.

    `group_type` is "classic" or "consumer" (KIP-848); only the latter has epochs.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    group_type: str = "classic"
    epoch: int = -1
    assignment_epoch: int = -1


class AdminGroups(AdminBase):
    """Group calls of `AdminCore`."""

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = (), api_timeout_ms: int | None = None
    ) -> list[GroupListing]:
        """Return all groups of the cluster, sorted by name.

        Args:
            states: Only groups in these states, such as "Stable"; default: all.
            types: Only groups of these types, such as "classic"; default: all.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        request = lg.ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        lowest = 5 if types else 4 if states else 0

        async def ask(node: int) -> list[GroupListing]:
            reply: lg.ListGroupsResponse = await self._ask_once(node, request, (lowest, 5), deadline_ms)
            if reply.error_code != 0:
                raise error_for(reply.error_code, f"ListGroups of broker {node}")
            return [GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in reply.groups]

        return sorted(await self._of_each_broker("ListGroups", "__consumer_offsets", ask, deadline_ms))

    async def describe_group(self, group_id: str, *, api_timeout_ms: int | None = None) -> GroupDescription:
        """Return a group of either protocol with its members. An unknown group has state "Dead"."""
        deadline_ms = self._deadline(api_timeout_ms)
        try:
            found = await self._describe_consumer_group(group_id, deadline_ms)
        except UnsupportedVersionError:
            found = None  # brokers before KIP-848 have classic groups only
        return found if found is not None else await self._describe_classic_group(group_id, deadline_ms)

    async def _describe_consumer_group(self, group_id: str, deadline_ms: int) -> GroupDescription | None:
        reply: cg.ConsumerGroupDescribeResponse = await self.cluster.call(
            Coordinator(CoordinatorKind.GROUP, group_id),
            cg.ConsumerGroupDescribeRequest(group_ids=[group_id]),
            (0, 1),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(only(answer.groups).error_code),
        )
        group = only(reply.groups)
        if group.error_code in (E.GROUP_ID_NOT_FOUND, E.UNSUPPORTED_VERSION):
            return None
        if group.error_code != 0:
            raise error_for(group.error_code, f"group {group_id!r}", group.error_message)
        members = tuple(
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                b"",
                b"",
                tuple(member.subscribed_topic_names),
                _partitions(member.assignment),
                _partitions(member.target_assignment),
                member.member_epoch,
            )
            for member in group.members
        )
        return GroupDescription(
            group.group_id,
            group.group_state,
            CONSUMER_PROTOCOL,
            group.assignor_name,
            members,
            "consumer",
            group.group_epoch,
            group.assignment_epoch,
        )

    async def _describe_classic_group(self, group_id: str, deadline_ms: int) -> GroupDescription:
        reply: gd.DescribeGroupsResponse = await self.cluster.call(
            Coordinator(CoordinatorKind.GROUP, group_id),
            gd.DescribeGroupsRequest(groups=[group_id]),
            (0, 6),
            deadline_ms=deadline_ms,
            code_of=lambda answer: int(only(answer.groups).error_code),
        )
        group = only(reply.groups)
        if group.error_code == E.GROUP_ID_NOT_FOUND:
            return GroupDescription(group_id, "Dead", "", "", ())
        if group.error_code != 0:
            raise error_for(group.error_code, f"group {group_id!r}", group.error_message)
        members = tuple(_classic_member(member, group.protocol_type) for member in group.members)
        return GroupDescription(group.group_id, group.group_state, group.protocol_type, group.protocol_data, members)

    async def remove_group_members(
        self, group_id: str, instance_ids: Iterable[str], *, api_timeout_ms: int | None = None
    ) -> None:
        """Remove static members by their group.instance.id (KIP-345).

        Raises:
            GroupFencedError: An id is not a member (25).
        """
        members = [le.MemberIdentity(member_id="", group_instance_id=instance_id) for instance_id in instance_ids]
        reply: le.LeaveGroupResponse = await self.cluster.call(
            Coordinator(CoordinatorKind.GROUP, group_id),
            le.LeaveGroupRequest(group_id=group_id, members=members),
            (3, 5),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
        )
        for code in [reply.error_code, *(member.error_code for member in reply.members)]:
            if code != 0:
                raise error_for(code, f"remove members from group {group_id!r}")

    async def delete_group(self, group_id: str, *, api_timeout_ms: int | None = None) -> None:
        """Delete a group without members.

        Raises:
            BrokerError: The group has members (68).
            GroupConfigurationError: The group does not exist (69).
        """
        reply: dg.DeleteGroupsResponse = await self.cluster.call(
            Coordinator(CoordinatorKind.GROUP, group_id),
            dg.DeleteGroupsRequest(groups_names=[group_id]),
            (0, 2),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(only(answer.results).error_code),
        )
        code = only(reply.results).error_code
        if code != 0:
            raise error_for(code, f"delete group {group_id!r}")

    # --- committed offsets ---

    async def group_offsets(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        require_stable: bool = True,
        api_timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group; partitions without one are left out.

        Args:
            group_id: The group.
            partitions: The partitions; None: all with committed offsets.
            require_stable: Wait for offsets that are pending in a transaction.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.
        """
        asked = None if partitions is None else [TopicPartition(*partition) for partition in partitions]
        return await fetch_committed(
            self.cluster, group_id, asked, require_stable=require_stable, deadline_ms=self._deadline(api_timeout_ms)
        )

    async def alter_group_offsets(
        self,
        group_id: str,
        positions: Mapping[K, OffsetAndMetadata | int],
        *,
        api_timeout_ms: int | None = None,
    ) -> None:
        """Set committed offsets of a group without members.

        Raises:
            UsageError: The group has members.
        """
        wanted = {
            TopicPartition(*partition): OffsetAndMetadata(at) if isinstance(at, int) else at
            for partition, at in positions.items()
        }
        try:
            await commit(self.cluster, GroupMetadata(group_id), wanted, self._deadline(api_timeout_ms))
        except GroupFencedError as error:
            raise UsageError(f"group {group_id!r} has members; stop them first ({error})", code=error.code) from error

    async def reset_group_offsets(
        self,
        group_id: str,
        to: str | int,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        api_timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Set committed offsets to "earliest", "latest", or the first record at or after a time.

        Args:
            group_id: The group, which must have no members.
            to: "earliest", "latest", or a time in ms since 1970. If there is no later record, the end is used.
            partitions: The partitions; None: those with committed offsets.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Returns:
            The new offsets.

        Raises:
            UsageError: The group has members.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        if isinstance(to, str) and to not in RESET_POINTS:
            raise UsageError(f"reset to {to!r}: one of {', '.join(RESET_POINTS)}, or a time in ms")
        timestamp = RESET_POINTS[to] if isinstance(to, str) else to
        if partitions is None:
            asked = list(
                await fetch_committed(self.cluster, group_id, None, require_stable=True, deadline_ms=deadline_ms)
            )
        else:
            asked = [TopicPartition(*partition) for partition in partitions]
        found = await self._offsets_at(dict.fromkeys(asked, timestamp), deadline_ms)
        late = [partition for partition, at in found.items() if at < 0]
        found |= await self._offsets_at(dict.fromkeys(late, offsets.LATEST), deadline_ms)
        await self.alter_group_offsets(group_id, found, api_timeout_ms=deadline_ms - self.cluster.runtime.now_ms())
        return found

    async def _offsets_at(self, wanted: dict[TopicPartition, int], deadline_ms: int) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        found = await offsets.list_offsets(self.cluster, wanted, Isolation.READ_COMMITTED, deadline_ms)
        return {partition: at.offset for partition, at in found.items()}

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]], *, api_timeout_ms: int | None = None
    ) -> None:
        """Delete committed offsets.

        Raises:
            BrokerError: A member is subscribed to the topic (86).
        """
        by_topic: dict[str, list[int]] = defaultdict(list)
        for name, number in partitions:
            by_topic[name].append(number)
        request = od.OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                od.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[od.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
                )
                for name, numbers in by_topic.items()
            ],
        )
        reply: od.OffsetDeleteResponse = await self.cluster.call(
            Coordinator(CoordinatorKind.GROUP, group_id),
            request,
            (0, 0),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
        )
        if reply.error_code != 0:
            raise error_for(reply.error_code, f"offsets of group {group_id!r}")
        for topic in reply.topics:
            for partition in topic.partitions:
                if partition.error_code != 0:
                    what = f"offset of {topic.name}-{partition.partition_index} of group {group_id!r}"
                    raise error_for(partition.error_code, what)


def _partitions(assignment: cg.Assignment | None) -> tuple[TopicPartition, ...]:
    if assignment is None:
        return ()
    return tuple(TopicPartition(topic.topic_name, n) for topic in assignment.topic_partitions for n in topic.partitions)


def _classic_member(member: gd.DescribedGroupMember, protocol_type: str) -> GroupMember:
    metadata, assignment = bytes(member.member_metadata), bytes(member.member_assignment)
    subscribed: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    if protocol_type == CONSUMER_PROTOCOL:
        try:
            subscribed = tuple(decode_subscription(metadata).topics) if metadata else ()
            assigned = tuple(decode_assignment(assignment))
        except ProtocolError:
            subscribed, assigned = (), ()  # not in the consumer's format; the bytes are still available
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        metadata,
        assignment,
        subscribed,
        assigned,
    )
