"""DescribeCluster, v0-2: cluster id, controller and brokers. v1 can ask for controllers (2), v2 for fenced brokers.

Controllers cannot be described through a broker's listener: as in Kafka, the answer is MISMATCHED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from fencepost.broker.api.common import BROKER_ID, cluster_operations
from fencepost.broker.api.handler import Handler
from fencepost.broker.connection import Call
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

__all__ = ["HANDLER"]

_BROKERS, _CONTROLLERS = 1, 2


def _handle(call: Call, now_ms: int, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the one broker."""
    if request.endpoint_type != _BROKERS:
        message = f"This is an endpoint of brokers; endpoint type {request.endpoint_type} was asked for."
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        if request.endpoint_type == _CONTROLLERS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        return DescribeClusterResponse(error_code=code, error_message=message, endpoint_type=_BROKERS)
    host, port = call.core.address(call.connection)
    return DescribeClusterResponse(
        cluster_id=call.core.meta.cluster_id,
        controller_id=BROKER_ID,
        brokers=(DescribeClusterBroker(broker_id=BROKER_ID, host=host, port=port),),
        cluster_authorized_operations=cluster_operations(call, requested=request.include_cluster_authorized_operations),
    )


HANDLER = Handler(_handle)
