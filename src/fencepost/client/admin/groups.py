"""Admin calls for groups: list, delete, members, committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from fencepost.client.admin.base import AdminBase
from fencepost.client.admin.items import ItemAnswer, ManyItems, Outcomes, each_item, each_of_groups
from fencepost.client.group.committed_offsets import commit_request, fetch_committed
from fencepost.client.net import list_offsets as offsets
from fencepost.client.net.answers import refusal
from fencepost.client.net.cluster import Coordinator, CoordinatorKind
from fencepost.client.types import GroupMetadata, Isolation, K, OffsetAndMetadata, TopicPartition, numbers_by_topic
from fencepost.errors import GroupFencedError, KafkaError, UsageError, error_for
from fencepost.protocol.logs.topic_names import CONSUMER_OFFSETS
from fencepost.protocol.messages import delete_groups as dg
from fencepost.protocol.messages import leave_group as le
from fencepost.protocol.messages import list_groups as lg
from fencepost.protocol.messages import offset_commit as oc
from fencepost.protocol.messages import offset_delete as od

RESET_POINTS: Final = {"earliest": offsets.EARLIEST, "latest": offsets.LATEST}


class GroupListing(NamedTuple):
    """A listed group. State and type are "" if the broker is too old to report them."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


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

        Raises:
            ItemsFailedError: Some brokers did not answer in time. By broker id, `results` has the groups of the others,
                and `errors` the reasons; at -1 if partitions of `__consumer_offsets` have no leader.
            KafkaTimeoutError: No broker answered in time.
            UnsupportedVersionError: A broker does not support a filter.
        """
        found = await self._groups_by_broker(self._deadline(api_timeout_ms), states=states, types=types)
        return sorted(chain.from_iterable(found.results("ListGroups").values()))

    async def _groups_by_broker(
        self,
        deadline_ms: int,
        *,
        states: Sequence[str] = (),
        types: Sequence[str] = (),
        away: Mapping[int, KafkaError] | None = None,
    ) -> Outcomes[int]:
        """Return lists of GroupListing by broker id. Arguments, results and errors are those of `_of_each_broker`."""
        request = lg.ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        lowest = 5 if types else 4 if states else 0

        async def ask(node: int, until_ms: int) -> list[GroupListing]:
            reply: lg.ListGroupsResponse = await self._ask_once(node, request, (lowest, 5), until_ms)
            if reply.error_code != 0:
                raise error_for(reply.error_code, f"ListGroups of broker {node}")
            return [GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in reply.groups]

        return await self._of_each_broker("ListGroups", CONSUMER_OFFSETS, ask, deadline_ms, away)

    async def remove_group_members(
        self,
        group_id: str,
        instance_ids: Iterable[str] = (),
        *,
        member_ids: Iterable[str] = (),
        api_timeout_ms: int | None = None,
    ) -> None:
        """Remove members from a group (KIP-345). A member that polls again joins again.

        Args:
            group_id: The group.
            instance_ids: Static members, by their group.instance.id.
            member_ids: Dynamic members of the classic protocol, by the `member_id` that describe_group() shows.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            ItemsFailedError: Some ids could not be removed, such as those of no member (25); the others were.
            UsageError: The call names no member.
        """
        members = [
            *(le.MemberIdentity(member_id="", group_instance_id=instance_id) for instance_id in instance_ids),
            *(le.MemberIdentity(member_id=member_id, group_instance_id=None) for member_id in member_ids),
        ]
        if not members:
            raise UsageError(
                f"remove from group {group_id!r}: the call names no member; give instance_ids or member_ids"
            )
        operation, unanswered = f"remove members from group {group_id!r}", list[KafkaError]()
        reply: le.LeaveGroupResponse = await self.cluster.call(
            Coordinator(CoordinatorKind.GROUP, group_id),
            le.LeaveGroupRequest(group_id=group_id, members=members),
            (3, 5),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
            operation=operation,
            unanswered=unanswered,
        )
        if reply.error_code != 0:
            raise refusal(reply.error_code, operation, None, unanswered)
        outcomes: Outcomes[str] = Outcomes()
        for member in reply.members:
            name = member.group_instance_id or member.member_id
            outcomes.put(name, ItemAnswer(member.error_code), f"member {name!r}", unanswered)
        outcomes.results(operation)

    async def delete_group(self, group_id: str, *, api_timeout_ms: int | None = None) -> None:
        """Delete a group without members.

        Raises:
            BrokerError: The group has members (68).
            GroupConfigurationError: The group does not exist (69).
        """
        (await self._delete_groups([group_id], self._deadline(api_timeout_ms))).only()

    async def delete_groups(self, group_ids: Iterable[str], *, api_timeout_ms: int | None = None) -> None:
        """Delete groups without members, with one request to each coordinator.

        Args:
            group_ids: The groups, of any protocol.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            ItemsFailedError: Some groups could not be deleted; the others were.
        """
        (await self._delete_groups(group_ids, self._deadline(api_timeout_ms))).results("delete groups")

    async def _delete_groups(self, group_ids: Iterable[str], deadline_ms: int) -> Outcomes[str]:
        def read(reply: dg.DeleteGroupsResponse) -> dict[str, ItemAnswer]:
            return {each.group_id: ItemAnswer(each.error_code, each.error_message) for each in reply.results}

        call = ManyItems(
            lambda ids: dg.DeleteGroupsRequest(groups_names=list(ids)),
            (0, 3),
            read,
            lambda group_id: f"delete group {group_id!r}",
        )
        return await each_of_groups(self.cluster, group_ids, call, deadline_ms)

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
        requested = None if partitions is None else [TopicPartition(*partition) for partition in partitions]
        return await fetch_committed(
            self.cluster, group_id, requested, require_stable=require_stable, deadline_ms=self._deadline(api_timeout_ms)
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
            ItemsFailedError: Some offsets could not be set; the others were.
        """
        by_partition = {
            TopicPartition(*partition): OffsetAndMetadata(at) if isinstance(at, int) else at
            for partition, at in positions.items()
        }
        call: ManyItems[TopicPartition] = ManyItems(
            lambda pending: commit_request(
                GroupMetadata(group_id), {topic_partition: by_partition[topic_partition] for topic_partition in pending}
            ),
            (2, 9),
            _commit_answers,
            lambda topic_partition: f"commit {topic_partition.topic}-{topic_partition.partition} of group {group_id!r}",
            of_several=f"set offsets of group {group_id!r}",
        )
        coordinator = Coordinator(CoordinatorKind.GROUP, group_id)
        outcomes = await each_item(self.cluster, coordinator, by_partition, call, self._deadline(api_timeout_ms))
        for error in outcomes.failed.values():
            if isinstance(error, GroupFencedError):
                text = f"group {group_id!r} has members; stop them first ({error})"
                raise UsageError(text, code=error.code) from error
        outcomes.results(call.of_several)

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
            requested = list(
                await fetch_committed(self.cluster, group_id, None, require_stable=True, deadline_ms=deadline_ms)
            )
        else:
            requested = [TopicPartition(*partition) for partition in partitions]
        found = await self._offsets_at(dict.fromkeys(requested, timestamp), deadline_ms)
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
            ItemsFailedError: Some offsets could not be deleted, such as those of topics to which a member is subscribed
                (86); the others were.
        """
        request = od.OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                od.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[od.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
                )
                for name, numbers in numbers_by_topic(partitions).items()
            ],
        )
        operation, unanswered = f"delete offsets of group {group_id!r}", list[KafkaError]()
        reply: od.OffsetDeleteResponse = await self.cluster.call(
            Coordinator(CoordinatorKind.GROUP, group_id),
            request,
            (0, 0),
            deadline_ms=self._deadline(api_timeout_ms),
            code_of=lambda answer: int(answer.error_code),
            operation=operation,
            unanswered=unanswered,
        )
        if reply.error_code != 0:
            raise refusal(reply.error_code, f"offsets of group {group_id!r}", None, unanswered)
        outcomes: Outcomes[TopicPartition] = Outcomes()
        for topic in reply.topics:
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                name = f"offset of {topic.name}-{topic_partition.partition}"
                outcomes.put(topic_partition, ItemAnswer(partition.error_code), name, unanswered)
        outcomes.results(operation)


def _commit_answers(reply: oc.OffsetCommitResponse) -> dict[TopicPartition, ItemAnswer]:
    return {
        TopicPartition(topic.name, partition.partition_index): ItemAnswer(partition.error_code)
        for topic in reply.topics
        for partition in topic.partitions
    }
