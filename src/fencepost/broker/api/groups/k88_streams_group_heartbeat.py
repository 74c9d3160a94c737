"""StreamsGroupHeartbeat, v0-1 (KIP-1071): join, stay in and leave a streams group.

Creates its internal topics.

v1 widens a field of the answer, and can request a description of the topology, which this broker never does (KIP-1331).
The answer is sent when everything in it is durable. For a client without the right to create a missing internal topic,
the status says so, and the group waits for the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fencepost.broker.api.groups.member_topics import sees_all
from fencepost.broker.api.handler import Handler
from fencepost.broker.api.topics.k19_create_topics import create_topics
from fencepost.broker.connection import Call
from fencepost.broker.coordinator.group.streams import requests
from fencepost.broker.coordinator.group.streams.membership import StreamsGroups
from fencepost.broker.coordinator.group.streams.topology import StatusCode
from fencepost.broker.disk.changes import Change
from fencepost.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from fencepost.broker.topics.internal import is_internal
from fencepost.broker.topics.names import invalid_topic_name
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.codes import describe as describe_code
from fencepost.protocol.logs import streams_group_log as log
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from fencepost.protocol.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    KeyValue,
    ResponseEndpoint,
    ResponseTaskIds,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    TopicPartition,
    Topology,
)

__all__ = ["HANDLER"]

# Unused, because there are no warm-up tasks. Kafka's defaults.
_ACCEPTABLE_RECOVERY_LAG = 10_000
_NO_LAG = -1
_FIRST_WITH_LAG = 1  # v0 has a narrower field for it, which Apache Kafka sets to 0
_TASK_OFFSET_INTERVAL_MS = 60_000


def _handle(call: Call, now_ms: int, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse | None:
    """Pass the heartbeat to the coordinator, and create missing topics."""
    wrong = _wrong_topics(request.topology)
    if wrong is not None:
        return _response(
            call, requests.StreamsHeartbeatReply(error_code=ErrorCode.STREAMS_INVALID_TOPOLOGY, error_message=wrong)
        )
    problem = _wrong_tasks(request)
    if problem is not None:
        return _response(
            call, requests.StreamsHeartbeatReply(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
        )
    groups = call.core.groups
    result = groups.coordinator.heartbeat(now_ms, StreamsGroups, _heartbeat_request(call, request))
    reply = result.reply
    response = _response(call, reply)

    def answer() -> None:
        if reply.missing:
            call.change(request, _created(call, reply, response))
        else:
            call.reply(response)

    refused = groups.apply(now_ms, result, answer)
    if refused:
        call.reply(_refuse(call, refused))
    return None


def _created(
    call: Call, reply: requests.StreamsHeartbeatReply, response: StreamsGroupHeartbeatResponse
) -> Change[StreamsGroupHeartbeatResponse]:
    response.status = yield from _with_creation(call, reply)
    return response


def _with_creation(call: Call, reply: requests.StreamsHeartbeatReply) -> Change[list[Status]]:
    """Create the missing internal topics. Return the status, including topics that could not be created."""
    names = [topic.name for topic in reply.missing]
    refused: list[str] = []
    if not call.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        refused = [name for name in names if not call.may(Operation.CREATE, ResourceType.TOPIC, name)]
    if refused:
        more = f"; no right to create {', '.join(refused)}."
    else:
        results = yield from create_topics(call.core, [_creatable(topic) for topic in reply.missing])
        failed = [
            f"{result.name} ({result.error_message or describe_code(result.error_code)})"
            for result in results
            if result.error_code
        ]
        more = f"; could not be made: {', '.join(failed)}." if failed else ""
    return [
        Status(status_code=status.code, status_detail=status.detail + more)
        if status.code is StatusCode.MISSING_INTERNAL_TOPICS
        else Status(status_code=status.code, status_detail=status.detail)
        for status in reply.status
    ]


def _creatable(topic: log.InternalTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or -1,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
    )


def _wrong_tasks(request: StreamsGroupHeartbeatRequest) -> str | None:
    """Return the error of the member's reported tasks, or None."""
    said = {tasks is None for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks)}
    return "All three kinds of tasks have to be said, or none." if len(said) > 1 else None


def _topics_of(topology: Topology) -> set[str]:
    found: set[str] = set()
    for part in topology.subtopologies:
        found.update(part.source_topics, part.repartition_sink_topics)
        found.update(topic.name for topic in (*part.repartition_source_topics, *part.state_changelog_topics))
    return found


def _wrong_topics(topology: Topology | None) -> str | None:
    """Return the error of the topic names in a topology, or None."""
    names = [] if topology is None else sorted(_topics_of(topology))
    internal = [name for name in names if is_internal(name)]
    if internal:
        return f"A topology may not use internal topics: {', '.join(internal)}."
    invalid = [name for name in names if invalid_topic_name(name) is not None]
    return f"These cannot be names of topics: {', '.join(invalid)}." if invalid else None


def _heartbeat_request(call: Call, request: StreamsGroupHeartbeatRequest) -> requests.StreamsHeartbeat:
    endpoint = request.user_endpoint
    unchanged = request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None
    owned = log.Tasks(
        dict.fromkeys(_tasks(request.active_tasks or ()), 0),
        frozenset(_tasks(request.standby_tasks or ())),
        frozenset(_tasks(request.warmup_tasks or ())),
    )
    return requests.StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topology=None if request.topology is None else _topology(request.topology),
        owned=None if unchanged else owned,
        process_id=request.process_id,
        endpoint=None if endpoint is None else log.Endpoint(endpoint.host, endpoint.port),
        client_tags=None if request.client_tags is None else _pairs(request.client_tags),
        shutdown=request.shutdown_application,
        client_id=call.client_id,
        client_host=f"/{call.connection.peer[0]}",
    )


def _topology(topology: Topology) -> log.Topology:
    parts = (_subtopology(part) for part in topology.subtopologies)
    return log.Topology(topology.epoch, tuple(sorted(parts, key=lambda part: part.subtopology_id)))


def _subtopology(part: Subtopology) -> log.Subtopology:
    return log.Subtopology(
        subtopology_id=part.subtopology_id,
        source_topics=tuple(part.source_topics),
        source_regexes=tuple(part.source_topic_regex),
        changelog_topics=tuple(map(_internal_topic, part.state_changelog_topics)),
        repartition_sink_topics=tuple(part.repartition_sink_topics),
        repartition_source_topics=tuple(map(_internal_topic, part.repartition_source_topics)),
        copartition_groups=tuple(
            log.CopartitionGroup(
                tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
            )
            for group in part.copartition_groups
        ),
    )


def _internal_topic(topic: TopicInfo) -> log.InternalTopic:
    return log.InternalTopic(topic.name, topic.partitions, topic.replication_factor, _pairs(topic.topic_configs))


def _pairs(pairs: Sequence[KeyValue]) -> tuple[tuple[str, str], ...]:
    return tuple((pair.key, pair.value) for pair in pairs)


def _tasks(listed: Iterable[TaskIds]) -> list[log.StreamsTaskId]:
    return [log.StreamsTaskId(tasks.subtopology_id, partition) for tasks in listed for partition in tasks.partitions]


def _response(call: Call, reply: requests.StreamsHeartbeatReply) -> StreamsGroupHeartbeatResponse:
    tasks = reply.tasks
    is_member = reply.error_code == 0 and reply.member_epoch > 0
    lag = _ACCEPTABLE_RECOVERY_LAG if is_member else _NO_LAG
    return StreamsGroupHeartbeatResponse(
        error_code=reply.error_code,
        error_message=reply.error_message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        acceptable_recovery_lag=lag if call.version >= _FIRST_WITH_LAG else 0,
        task_offset_interval_ms=_TASK_OFFSET_INTERVAL_MS if is_member else 0,
        status=[Status(status_code=status.code, status_detail=status.detail) for status in reply.status],
        active_tasks=None if tasks is None else _task_ids(tasks.active),
        standby_tasks=None if tasks is None else _task_ids(tasks.standby),
        warmup_tasks=None if tasks is None else _task_ids(tasks.warmup),
        endpoint_information_epoch=reply.endpoint_epoch,
        partitions_by_user_endpoint=None
        if reply.endpoints is None
        else [
            EndpointToPartitions(
                user_endpoint=ResponseEndpoint(host=entry.endpoint.host, port=entry.endpoint.port),
                active_partitions=[TopicPartition(topic=name, partitions=listed) for name, listed in entry.active],
                standby_partitions=[TopicPartition(topic=name, partitions=listed) for name, listed in entry.standby],
            )
            for entry in reply.endpoints
        ],
    )


def _task_ids(tasks: Iterable[log.StreamsTaskId]) -> list[ResponseTaskIds]:
    by_part: dict[str, list[int]] = {}
    for subtopology, partition in sorted(tasks):
        by_part.setdefault(subtopology, []).append(partition)
    return [ResponseTaskIds(subtopology_id=part, partitions=partitions) for part, partitions in by_part.items()]


def _authorize(call: Call, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse | None:
    """Refuse the request unless the client may see every topic of the topology."""
    if request.topology is None or sees_all(call, sorted(_topics_of(request.topology))):
        return None
    return _refuse(call, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _refuse(call: Call, code: int) -> StreamsGroupHeartbeatResponse:
    return replace(_response(call, requests.StreamsHeartbeatReply()), error_code=code)


HANDLER = Handler(_handle, authorize=_authorize, refuse=_refuse)
