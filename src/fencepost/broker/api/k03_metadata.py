"""Metadata, v0-13: the broker, the topics and who leads their partitions.

v0 asks for all topics with an empty list, later versions with null; v4 says whether missing topics may be created; v8
may ask for the operations allowed; v10 carries topic ids, v12 accepts them as the question; v13 has an error for the
whole answer. A topic that is created here is there at once. With one broker, it leads every partition with epoch 0.
"""

from __future__ import annotations

from fencepost.broker.acl.model import CLUSTER_NAME, Operation, ResourceType
from fencepost.broker.api.common import BROKER_ID, cluster_operations, may_see
from fencepost.broker.connection import Call
from fencepost.broker.topics import CONSUMER_OFFSETS, TRANSACTION_STATE, Topic, invalid_topic_name
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

__all__ = ["handle"]

_NOT_ASKED = -(2**31)


def handle(call: Call, now_ms: int, request: MetadataRequest) -> MetadataResponse:
    """Describe the topics asked for."""
    core = call.core
    host, port = core.address(call.connection)
    operations = request.include_topic_authorized_operations
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = [_describe(call, topic, operations) for topic in core.topics if may_see(call, topic.name, quiet=True)]
    else:
        may_create = (request.allow_auto_topic_creation or call.version < 4) and core.config.flag(
            "auto.create.topics.enable"
        )
        topics = [_answer(call, wanted, operations, may_create) for wanted in request.topics]
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=BROKER_ID, host=host, port=port),),
        cluster_id=core.meta.cluster_id,
        controller_id=BROKER_ID,
        topics=topics,
        cluster_authorized_operations=cluster_operations(call)
        if request.include_cluster_authorized_operations
        else _NOT_ASKED,
    )


def _answer(call: Call, wanted: MetadataRequestTopic, operations: bool, may_create: bool) -> MetadataResponseTopic:
    core = call.core
    if wanted.name is None or wanted.topic_id is not None:
        topic = core.topics.by_id(wanted.topic_id)
        if topic is None:
            name = wanted.name if call.version >= 12 else ""
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=wanted.topic_id)
        if not may_see(call, topic.name):
            name = None if call.version >= 12 else ""
            return MetadataResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=wanted.topic_id
            )
        return _describe(call, topic, operations)
    if not may_see(call, wanted.name):
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=wanted.name)
    topic = core.topics.get(wanted.name)
    if topic is None:
        if invalid_topic_name(wanted.name) is not None:
            return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=wanted.name)
        if not may_create:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=wanted.name)
        if not _may_create(call, wanted.name):
            return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=wanted.name)
        if wanted.name in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            topic = core.topics.internal(wanted.name)
        else:
            topic = core.topics.create(wanted.name, core.config.number("num.partitions"), {})
    return _describe(call, topic, operations)


def _may_create(call: Call, name: str) -> bool:
    return call.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True) or call.may(
        Operation.CREATE, ResourceType.TOPIC, name
    )


def _describe(call: Call, topic: Topic, operations: bool) -> MetadataResponseTopic:
    brokers = (BROKER_ID,)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            MetadataResponsePartition(
                partition_index=partition.index,
                leader_id=BROKER_ID,
                leader_epoch=0,
                replica_nodes=brokers,
                isr_nodes=brokers,
            )
            for partition in topic.partitions
        ],
        topic_authorized_operations=call.operations(ResourceType.TOPIC, topic.name) if operations else _NOT_ASKED,
    )
