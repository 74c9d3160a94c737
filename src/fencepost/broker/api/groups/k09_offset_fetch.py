"""OffsetFetch, v1-10: a group's committed offsets. v2 can ask for all, v7 for stable ones only (KIP-447).

v8 has several groups, v9 names a member, v10 uses topic ids instead of names. While a transaction's offsets are
pending, a request for stable offsets gets UNSTABLE_OFFSET_COMMIT for these partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from fencepost.broker.api.handler import Handler
from fencepost.broker.api.visibility import when_ends_are_visible
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.base.requests import FetchedOffset, FetchedOffsets, FetchOffsets
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

__all__ = ["HANDLER"]

_FIRST_WITH_GROUPS = 8
_FIRST_WITH_TOPIC_IDS = 10
_UNSTABLE = (ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _handle(call: Call, now_ms: int, request: OffsetFetchRequest) -> None:
    """Look the offsets up.

    The reply waits for commits in progress, because reported offsets must not be lost again.

    If offsets are pending for a decided transaction, the reply also waits for its markers. That takes one sync, while a
    client that must retry sleeps first. Once EndTxn was answered, they count even if the request does not ask for
    stable offsets.
    """
    core = call.core

    def attempt(now_ms: int) -> None:
        unstable, response = _answer(call, request)
        if unstable and core.transactions.writes_markers:
            core.durability.when_durable(now_ms, partial(call.resume, request, attempt))
        else:
            call.reply_when_durable(now_ms, response)

    when_ends_are_visible(call, now_ms, request, attempt)


def _answer(call: Call, request: OffsetFetchRequest) -> tuple[bool, OffsetFetchResponse]:
    """Return (true if offsets are pending, the present response)."""
    if call.version >= _FIRST_WITH_GROUPS:
        groups = [_fetch_group(call, group, request.require_stable) for group in request.groups]
        unstable = any(
            partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
            for group in groups
            for topic in group.topics
            for partition in topic.partitions
        )
        return unstable, OffsetFetchResponse(groups=groups)
    partitions = None
    if request.topics is not None:
        partitions = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    fetched = _ask(call, request.group_id, partitions, request.require_stable)
    offsets = fetched.offsets
    if fetched.error_code and not offsets:
        # Some clients (aiokafka) read only the partitions' errors, and would treat an empty answer as "no committed
        # offsets".
        offsets = [FetchedOffset(*partition, error_code=fetched.error_code) for partition in partitions or ()]
    topics = [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=offset.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    metadata=offset.metadata,
                    error_code=offset.error_code,
                )
                for offset in of_topic
            ],
        )
        for name, of_topic in _in_request_order(offsets, request.topics)
    ]
    errors = {fetched.error_code, *(offset.error_code for offset in offsets)}
    return not errors.isdisjoint(_UNSTABLE), OffsetFetchResponse(topics=topics, error_code=fetched.error_code)


def _ask(
    call: Call,
    group_id: str,
    partitions: Sequence[tuple[str, int]] | None,
    stable: bool,
    member: tuple[str | None, int] = (None, -1),
) -> FetchedOffsets:
    wanted = FetchOffsets(
        group_id=group_id,
        partitions=partitions,
        require_stable=stable,
        member_id=member[0],
        member_epoch=member[1],
        api_version=call.version,
    )
    return call.core.groups.coordinator.fetch_offsets(wanted)


def _in_request_order(
    offsets: Iterable[FetchedOffset], requested: Sequence[OffsetFetchRequestTopic] | None
) -> list[tuple[str, list[FetchedOffset]]]:
    """Return the offsets by topic: in the order of the request, or each topic once if all were requested."""
    by_partition = {(offset.topic, offset.partition): offset for offset in offsets}
    if requested is not None:
        return [
            (
                topic.name,
                [
                    by_partition[partition]
                    for index in topic.partition_indexes
                    if (partition := (topic.name, index)) in by_partition
                ],
            )
            for topic in requested
        ]
    by_topic: dict[str, list[FetchedOffset]] = {}
    for offset in by_partition.values():
        by_topic.setdefault(offset.topic, []).append(offset)
    return [*by_topic.items()]


def _fetch_group(call: Call, group: OffsetFetchRequestGroup, stable: bool) -> OffsetFetchResponseGroup:
    topics = call.core.topics
    by_id = call.version >= _FIRST_WITH_TOPIC_IDS
    unknown = []
    wanted: list[OffsetFetchRequestTopic] | None = None
    if group.topics is not None:
        wanted = []
        for requested in group.topics:
            topic = topics.by_id(requested.topic_id) if by_id else None
            if by_id and topic is None:
                missing = [_unknown(index) for index in requested.partition_indexes]
                unknown.append(OffsetFetchResponseTopics(topic_id=requested.topic_id, partitions=missing))
                continue
            name = topic.name if topic is not None else requested.name
            wanted.append(OffsetFetchRequestTopic(name=name, partition_indexes=requested.partition_indexes))
    partitions = (
        None if wanted is None else [(topic.name, index) for topic in wanted for index in topic.partition_indexes]
    )
    found = _ask(call, group.group_id, partitions, stable, (group.member_id, group.member_epoch))
    if found.error_code:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=found.error_code)
    answers = []
    for name, offsets in _in_request_order(found.offsets, wanted):
        topic = topics.get(name)
        if topic is not None or not by_id:
            results = [_found(offset) for offset in offsets]
            topic_id = topic.topic_id if topic is not None else None
            answers.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=results))
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=[*answers, *unknown])


def _found(offset: FetchedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=offset.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=offset.error_code,
    )


def _unknown(index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, metadata="", error_code=ErrorCode.UNKNOWN_TOPIC_ID
    )


def _authorize(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse | None:
    """Remove groups and topics that the client may not describe, and refuse them one by one."""
    if call.version < 8:
        return _authorize_group(call, request)
    refused: list[OffsetFetchResponseGroup] = []
    allowed, hidden = [], {}
    for group in request.groups:
        if not call.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            refused.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
            continue
        allowed.append(group)
        if group.topics is not None:
            denied = [topic for topic in group.topics if not _describable(call, topic)]
            group.topics = [topic for topic in group.topics if topic not in denied]
            hidden[group.group_id] = [
                OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetFetchResponsePartitions(
                            partition_index=index,
                            committed_offset=-1,
                            metadata="",
                            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in denied
            ]
    if not allowed:
        return OffsetFetchResponse(groups=refused)
    request.groups = allowed

    def finish(response: OffsetFetchResponse) -> OffsetFetchResponse:
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                visible = [topic for topic in group.topics if _describable(call, topic)]
                group.topics = [*visible, *hidden.get(group.group_id, ())]
        response.groups = [*response.groups, *refused]
        return response

    call.finish = finish
    return None


def _authorize_group(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse | None:
    """Authorize v1-7, which has one group. v1 has no error code for the whole answer."""
    if not call.may(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        topics = _offsets_refused(request.topics or (), code) if call.version < 2 else []
        return OffsetFetchResponse(error_code=code, topics=topics)
    denied: Sequence[Any] = ()
    if request.topics is not None:
        denied = [topic for topic in request.topics if not _describable(call, topic)]
        request.topics = [topic for topic in request.topics if topic not in denied]

    def finish(response: OffsetFetchResponse) -> OffsetFetchResponse:
        if response.error_code == ErrorCode.NONE:
            visible = [topic for topic in response.topics if _describable(call, topic)]
            response.topics = [*visible, *_offsets_refused(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
        return response

    call.finish = finish
    return None


def _offsets_refused(topics: Sequence[OffsetFetchRequestTopic], code: int) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
                for index in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


def _describable(call: Call, topic: Any) -> bool:
    name = call.core.topic_name(topic.name, getattr(topic, "topic_id", None))
    return name is None or call.may(Operation.DESCRIBE, ResourceType.TOPIC, name)


HANDLER = Handler(_handle, authorize=_authorize)
