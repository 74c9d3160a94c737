"""Rights that the table in `acl/rules.py` cannot say, and refusals that must not repeat what the request said.

A special check is called before the handler with (call, request); it may take items out of the request. It returns the
response that refuses all, or None with, in `call.finish`, what is to be done to the handler's response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fencepost.broker.acl.model import CLUSTER_NAME, Operation, ResourceType
from fencepost.broker.acl.rights import DENIED
from fencepost.broker.refusal import refusal
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages import (
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_topics,
    end_txn,
    find_coordinator,
    join_group,
    leave_group,
    offset_delete,
    offset_fetch,
)

if TYPE_CHECKING:
    from fencepost.broker.connection import Call

__all__ = ["CHECKS", "HIDES", "REFUSALS"]

_TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_COORDINATED = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}


def _offset_fetch(call: Call, request: offset_fetch.OffsetFetchRequest) -> offset_fetch.OffsetFetchResponse | None:
    if call.version < 8:
        return _offset_fetch_one(call, request)
    refused: list[offset_fetch.OffsetFetchResponseGroup] = []
    allowed, hidden = [], {}
    for group in request.groups:
        if not call.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            refused.append(offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
            continue
        allowed.append(group)
        if group.topics is not None:
            denied = [topic for topic in group.topics if not _describable(call, topic)]
            group.topics = [topic for topic in group.topics if topic not in denied]
            hidden[group.group_id] = [
                offset_fetch.OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        offset_fetch.OffsetFetchResponsePartitions(
                            partition_index=index, committed_offset=-1, metadata="", error_code=_TOPIC_DENIED
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in denied
            ]
    if not allowed:
        return offset_fetch.OffsetFetchResponse(groups=refused)
    request.groups = allowed

    def finish(response: offset_fetch.OffsetFetchResponse) -> offset_fetch.OffsetFetchResponse:
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                seen = [topic for topic in group.topics if _describable(call, topic)]
                group.topics = [*seen, *hidden.get(group.group_id, ())]
        response.groups = [*response.groups, *refused]
        return response

    call.finish = finish
    return None


def _offset_fetch_one(call: Call, request: offset_fetch.OffsetFetchRequest) -> offset_fetch.OffsetFetchResponse | None:
    """v1-7: one group; v1 has no error code of its own."""
    if not call.may(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        topics = _offsets_refused(request.topics or (), code) if call.version < 2 else []
        return offset_fetch.OffsetFetchResponse(error_code=code, topics=topics)
    denied: Sequence[Any] = ()
    if request.topics is not None:
        denied = [topic for topic in request.topics if not _describable(call, topic)]
        request.topics = [topic for topic in request.topics if topic not in denied]

    def finish(response: offset_fetch.OffsetFetchResponse) -> offset_fetch.OffsetFetchResponse:
        if response.error_code == ErrorCode.NONE:
            seen = [topic for topic in response.topics if _describable(call, topic)]
            response.topics = [*seen, *_offsets_refused(denied, _TOPIC_DENIED)]
        return response

    call.finish = finish
    return None


def _offsets_refused(
    topics: Sequence[offset_fetch.OffsetFetchRequestTopic], code: int
) -> list[offset_fetch.OffsetFetchResponseTopic]:
    return [
        offset_fetch.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                offset_fetch.OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=-1, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


def _describable(call: Call, topic: Any) -> bool:
    name = call.core.topic_name(topic.name, getattr(topic, "topic_id", None))
    return name is None or call.may(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _find_coordinator(
    call: Call, request: find_coordinator.FindCoordinatorRequest
) -> find_coordinator.FindCoordinatorResponse | None:
    kind = _COORDINATED.get(request.key_type)
    if kind is None:
        return None
    if call.version < 4:
        if call.may(Operation.DESCRIBE, kind, request.key):
            return None
        return find_coordinator.FindCoordinatorResponse(error_code=DENIED[kind], node_id=-1, port=-1)
    denied = [key for key in request.coordinator_keys if not call.may(Operation.DESCRIBE, kind, key)]
    refused = [
        find_coordinator.Coordinator(key=key, node_id=-1, port=-1, error_code=DENIED[kind], error_message=None)
        for key in denied
    ]
    if len(denied) == len(request.coordinator_keys):
        return find_coordinator.FindCoordinatorResponse(coordinators=refused)
    request.coordinator_keys = [key for key in request.coordinator_keys if key not in denied]

    def finish(response: find_coordinator.FindCoordinatorResponse) -> find_coordinator.FindCoordinatorResponse:
        response.coordinators = [*response.coordinators, *refused]
        return response

    call.finish = finish
    return None


def _create_topics(call: Call, request: create_topics.CreateTopicsRequest) -> create_topics.CreateTopicsResponse | None:
    allowed = list(request.topics)
    if not call.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        allowed = [topic for topic in allowed if call.may(Operation.CREATE, ResourceType.TOPIC, topic.name)]
    refused = [
        create_topics.CreatableTopicResult(name=name, error_code=_TOPIC_DENIED, error_message="Authorization failed.")
        for name in dict.fromkeys(topic.name for topic in request.topics if topic not in allowed)
    ]
    if not allowed:
        return create_topics.CreateTopicsResponse(topics=refused)
    request.topics = allowed

    def finish(response: create_topics.CreateTopicsResponse) -> create_topics.CreateTopicsResponse:
        for topic in response.topics:
            may_see = call.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, quiet=True)
            if topic.error_code == ErrorCode.NONE and not may_see:
                topic.topic_config_error_code = _TOPIC_DENIED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = ()
        response.topics = [*response.topics, *refused]
        return response

    call.finish = finish
    return None


def _add_partitions_to_txn(
    call: Call, request: add_partitions_to_txn.AddPartitionsToTxnRequest
) -> add_partitions_to_txn.AddPartitionsToTxnResponse | None:
    """v4 and later come from brokers; before, one topic that is denied keeps the others out too."""
    if call.version >= 4:
        if call.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return None
        return add_partitions_to_txn.AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    named = request.v3_and_below_transactional_id
    if not call.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, named):
        response: add_partitions_to_txn.AddPartitionsToTxnResponse = refusal(
            request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        return response
    topics = request.v3_and_below_topics
    denied = {topic.name for topic in topics if not call.may(Operation.WRITE, ResourceType.TOPIC, topic.name)}
    if not denied:
        return None

    def code(name: str, index: int) -> int:
        if name in denied:
            return _TOPIC_DENIED
        if call.core.topics.partition(name, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED

    return add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code(topic.name, index)
                    )
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def _consumer_group_heartbeat(
    call: Call, request: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest
) -> consumer_group_heartbeat.ConsumerGroupHeartbeatResponse | None:
    names = request.subscribed_topic_names or ()
    if all(call.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        return None
    return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(error_code=_TOPIC_DENIED)


def _hide_topics_of_consumer_groups(
    call: Call, response: consumer_group_describe.ConsumerGroupDescribeResponse
) -> consumer_group_describe.ConsumerGroupDescribeResponse:
    """A group is shown as a whole, so not to those who may not see all of its topics."""
    for group in response.groups:
        names = {name for member in group.members for name in member.subscribed_topic_names}
        for member in group.members:
            for assigned in (member.assignment, member.target_assignment):
                names.update(each.topic_name for each in (assigned.topic_partitions if assigned is not None else ()))
        if not all(call.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(names)):
            group.error_code = _TOPIC_DENIED
            group.error_message = "The group uses topics that the client may not describe."
            group.members = ()
    return response


def _refuse_join_group(call: Call, code: int) -> join_group.JoinGroupResponse:
    return join_group.JoinGroupResponse(error_code=code, protocol_name="" if call.version < 7 else None)


CHECKS: Mapping[str, Callable[[Call, Any], Any]] = {
    "offset_fetch": _offset_fetch,
    "find_coordinator": _find_coordinator,
    "create_topics": _create_topics,
    "add_partitions_to_txn": _add_partitions_to_txn,
    "consumer_group_heartbeat": _consumer_group_heartbeat,
}

HIDES: Mapping[str, Callable[[Call, Any], Any]] = {"topics_of_consumer_groups": _hide_topics_of_consumer_groups}

REFUSALS: Mapping[str, Callable[[Call, int], Any]] = {
    "join_group": _refuse_join_group,
    "leave_group": lambda _, code: leave_group.LeaveGroupResponse(error_code=code),
    "end_txn": lambda _, code: end_txn.EndTxnResponse(error_code=code, producer_id=-1, producer_epoch=-1),
    "offset_delete": lambda _, code: offset_delete.OffsetDeleteResponse(error_code=code),
    "consumer_group_heartbeat_refused": lambda _, code: consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
        error_code=code
    ),
}
