"""Admin calls that describe groups: classic, consumer (KIP-848), share (KIP-932) and streams (KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from fencepost.client.admin.base import AdminBase
from fencepost.client.admin.items import (
    ItemAnswer,
    ManyItems,
    Outcomes,
    by_coordinator,
    each_of_groups,
    outcomes_together,
)
from fencepost.client.group.assignors_wire import decode_assignment, decode_subscription
from fencepost.client.types import TopicPartition
from fencepost.errors import ProtocolError, UnsupportedVersionError
from fencepost.protocol.acls import AclOperation, operations_in
from fencepost.protocol.codec import Message
from fencepost.protocol.codes import ErrorCode as E
from fencepost.protocol.messages import consumer_group_describe as cg
from fencepost.protocol.messages import describe_groups as gd
from fencepost.protocol.messages import share_group_describe as sg
from fencepost.protocol.messages import streams_group_describe as st

CONSUMER_PROTOCOL: Final = "consumer"
_OTHER_KIND: Final = frozenset({E.GROUP_ID_NOT_FOUND, E.UNSUPPORTED_VERSION})


class StreamsTask(NamedTuple):
    """A task of a streams group's member. `role` is "active", "standby" or "warmup"."""

    subtopology: str
    partition: int
    role: str = "active"


Reader = Callable[[Any], dict[str, ItemAnswer]]


class GroupMember(NamedTuple):
    """A member of a group.

    `metadata` and `assignment` are the bytes of a classic member, b"" in the other protocols. `subscribed` and
    `assigned` are their contents for consumers. `target` is the member's part of the target assignment (consumer
    protocol), `epoch` its member epoch (-1: classic), and `tasks` its tasks (streams protocol).
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
    tasks: tuple[StreamsTask, ...] = ()


class GroupDescription(NamedTuple):
    """A group. An unknown group has state "Dead". `protocol` is the assignor's name.

    `group_type` is "classic", "consumer" (KIP-848), "share" (KIP-932) or "streams" (KIP-1071); a classic group has no
    epochs. `authorized_operations` are those of this principal; None if not asked for, or not reported.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    group_type: str = "classic"
    epoch: int = -1
    assignment_epoch: int = -1
    authorized_operations: frozenset[AclOperation] | None = None


class AdminGroupDescriptions(AdminBase):
    """Calls of `AdminCore` that describe groups."""

    async def describe_group(
        self, group_id: str, *, include_authorized_operations: bool = False, api_timeout_ms: int | None = None
    ) -> GroupDescription:
        """Return a group of any protocol with its members. An unknown group has state "Dead".

        Args:
            group_id: The group.
            include_authorized_operations: Ask for the operations on the group that this principal may perform.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        outcomes = await self._describe([group_id], deadline_ms, rights=include_authorized_operations)
        group: GroupDescription = outcomes.only()
        return group

    async def describe_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        api_timeout_ms: int | None = None,
    ) -> dict[str, GroupDescription]:
        """Return groups of any protocol, with one request to each coordinator. An unknown group has state "Dead".

        Args:
            group_ids: The groups.
            include_authorized_operations: Ask for the operations on the groups that this principal may perform.
            api_timeout_ms: Time limit of the call in ms; default: default_api_timeout_ms.

        Raises:
            ItemsFailedError: Some groups cannot be described; `results` has the others.
        """
        deadline_ms = self._deadline(api_timeout_ms)
        outcomes = await self._describe(group_ids, deadline_ms, rights=include_authorized_operations)
        return outcomes.results("describe groups")

    async def _describe(self, group_ids: Iterable[str], deadline_ms: int, *, rights: bool) -> Outcomes[str]:
        """Describe the groups of each coordinator, side by side: one may not answer."""
        together = await by_coordinator(self.cluster, list(dict.fromkeys(group_ids)), deadline_ms)
        batches = [batch for _, batch in together]
        calls = [self._describe_batch(batch, deadline_ms, rights=rights) for batch in batches]
        return await outcomes_together(self.cluster, batches, calls)

    async def _describe_batch(self, group_ids: Sequence[str], deadline_ms: int, *, rights: bool) -> Outcomes[str]:
        """Describe the groups with each protocol's request in turn, until every group is known."""
        left, outcomes = list(group_ids), Outcomes[str]()
        for ask in (_CONSUMER, _CLASSIC, _SHARE, _STREAMS):
            if not left:
                break
            call = ManyItems(partial(_request, ask, rights), ask.versions, ask.read, _group, _OTHER_KIND)
            try:
                answers = await each_of_groups(self.cluster, left, call, deadline_ms)
            except UnsupportedVersionError:
                continue  # brokers before KIP-848 have only classic groups
            left = [
                group_id
                for group_id in left
                if (error := answers.failed.get(group_id)) is not None
                and (error.code in _OTHER_KIND or isinstance(error, UnsupportedVersionError))
            ]
            outcomes.done |= {name: group for name, group in answers.done.items() if group is not None}
            outcomes.failed |= {name: error for name, error in answers.failed.items() if name not in left}
            left += [name for name, group in answers.done.items() if group is None]
        outcomes.done |= {group_id: GroupDescription(group_id, "Dead", "", "", ()) for group_id in left}
        return outcomes


def _group(group_id: str) -> str:
    return f"group {group_id!r}"


class _Protocol(NamedTuple):
    """A request that describes groups of one protocol, and the function that reads its response.

    The arguments of `request` are the group ids and a flag: include the principal's permissions.
    """

    request: Callable[[list[str], bool], Message]
    versions: tuple[int, int]
    read: Reader


def _request(ask: _Protocol, rights: bool, group_ids: Sequence[str]) -> Message:
    return ask.request(list(group_ids), rights)


def _reader(group_type: str, protocol_type: str, member: Callable[[Any], GroupMember]) -> Reader:
    """Return the function that reads a response of a protocol with epochs."""

    def read(reply: Any) -> dict[str, ItemAnswer]:
        return {
            group.group_id: ItemAnswer(
                group.error_code,
                group.error_message,
                GroupDescription(
                    group.group_id,
                    group.group_state,
                    protocol_type,
                    group.assignor_name or "",
                    tuple(map(member, group.members)),
                    group_type,
                    group.group_epoch,
                    group.assignment_epoch,
                    operations_in(group.authorized_operations),
                ),
            )
            for group in reply.groups
        }

    return read


def _consumer_member(member: cg.Member) -> GroupMember:
    return GroupMember(
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


def _partitions(assignment: cg.Assignment | sg.Assignment | None) -> tuple[TopicPartition, ...]:
    if assignment is None:
        return ()
    return tuple(TopicPartition(topic.topic_name, n) for topic in assignment.topic_partitions for n in topic.partitions)


def _classic_groups(reply: gd.DescribeGroupsResponse) -> dict[str, ItemAnswer]:
    """Return the groups; None for a group in state "Dead" of a broker before Kafka 4.0, which may be unknown."""
    return {
        group.group_id: ItemAnswer(
            group.error_code,
            group.error_message,
            None
            if group.group_state == "Dead"
            else GroupDescription(
                group.group_id,
                group.group_state,
                group.protocol_type,
                group.protocol_data,
                tuple(_classic_member(member, group.protocol_type) for member in group.members),
                authorized_operations=operations_in(group.authorized_operations),
            ),
        )
        for group in reply.groups
    }


def _classic_member(member: gd.DescribedGroupMember, protocol_type: str) -> GroupMember:
    metadata, assignment = bytes(member.member_metadata), bytes(member.member_assignment)
    subscribed: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    if protocol_type == CONSUMER_PROTOCOL:
        try:
            subscribed = tuple(decode_subscription(metadata).topics) if metadata else ()
            assigned = tuple(decode_assignment(assignment).partitions)
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


def _share_member(member: sg.Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        None,
        member.client_id,
        member.client_host,
        b"",
        b"",
        tuple(member.subscribed_topic_names),
        _partitions(member.assignment),
        epoch=member.member_epoch,
    )


def _streams_member(member: st.Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        b"",
        b"",
        epoch=member.member_epoch,
        tasks=() if member.assignment is None else tuple(_tasks(member.assignment)),
    )


def _tasks(assignment: st.Assignment) -> Iterable[StreamsTask]:
    for role, tasks in (
        ("active", assignment.active_tasks),
        ("standby", assignment.standby_tasks),
        ("warmup", assignment.warmup_tasks),
    ):
        for task in tasks:
            yield from (StreamsTask(task.subtopology_id, number, role) for number in task.partitions)


_CONSUMER: Final = _Protocol(
    lambda ids, rights: cg.ConsumerGroupDescribeRequest(group_ids=ids, include_authorized_operations=rights),
    (0, 1),
    _reader("consumer", CONSUMER_PROTOCOL, _consumer_member),
)
_CLASSIC: Final = _Protocol(
    lambda ids, rights: gd.DescribeGroupsRequest(groups=ids, include_authorized_operations=rights),
    (0, 6),
    _classic_groups,
)
_SHARE: Final = _Protocol(
    lambda ids, rights: sg.ShareGroupDescribeRequest(group_ids=ids, include_authorized_operations=rights),
    (1, 1),
    _reader("share", "share", _share_member),
)
_STREAMS: Final = _Protocol(
    lambda ids, rights: st.StreamsGroupDescribeRequest(group_ids=ids, include_authorized_operations=rights),
    (0, 1),
    _reader("streams", "streams", _streams_member),
)
