"""DescribeQuorum, v0-2 (KIP-595): the controllers of the cluster, which is this broker. v1 adds times, v2 addresses.

This broker has no metadata log, so no replica can lag: its end is reported as 0, reached now. As in Kafka, the answer
is about the metadata partition if the request names nothing else.
"""

from __future__ import annotations

from fencepost.broker.api.common import BROKER_ID
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)

__all__ = ["HANDLER"]

_METADATA = [("__cluster_metadata", [0])]
_NOT_HERE = "This server does not host this topic-partition."


def _handle(call: Call, now_ms: int, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describe the metadata partition."""
    requested = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in request.topics]
    if requested != _METADATA:
        unknown = [
            ResponseTopicData(
                topic_name=topic.topic_name, partitions=[_unknown(each.partition_index) for each in topic.partitions]
            )
            for topic in request.topics
        ]
        return DescribeQuorumResponse(error_message="", topics=unknown)
    ((name, (index,)),) = _METADATA
    voter = ReplicaState(replica_id=BROKER_ID, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms)
    partition = ResponsePartitionData(
        partition_index=index, error_message="", leader_id=BROKER_ID, current_voters=[voter]
    )
    host, port = call.core.address(call.connection)
    node = Node(node_id=BROKER_ID, listeners=[Listener(name=call.connection.listener.name, host=host, port=port)])
    topics = [ResponseTopicData(topic_name=name, partitions=[partition])]
    return DescribeQuorumResponse(error_message="", topics=topics, nodes=[node])


def _unknown(index: int) -> ResponsePartitionData:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ResponsePartitionData(partition_index=index, error_code=code, error_message=_NOT_HERE)


HANDLER = Handler(_handle)
